"""Tiles of values of k: their sizes, how patches are laid out for them, and the arithmetic inside of one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

INDUCING, PATCHES = 64, 64
"""The sides of a tile."""
TILES = 1000
"""As many as keep all of a GPU busy: images are shared out among as many programs as that takes."""
UNROLL = 2
"""Images in a row, so that one's loads overlap with another's arithmetic."""
INTERPRET = False
"""Run without a GPU, step by step: for tests."""


@dataclass(frozen=True)
class Tiles:
    """Arrays in whole tiles, a program for each tile of C and share of the images, and what each program sees."""

    arrays: tuple[Array, ...]
    """C first, then what distances are made of."""
    grid: tuple[int, int, int]
    images: int
    """In a share."""
    seen: list[Any]


def left(scale: Array, rows: Float[Array, "... T E"], tile: int) -> Float[Array, "... padded W"]:
    """scale · [−2z, |z|², 1]."""
    squares = jnp.sum(rows**2, axis=-1, keepdims=True)
    extended = scale * jnp.concatenate([-2 * rows, squares, jnp.ones_like(squares)], axis=-1)
    return padded(extended, (tile, width(rows.shape[-1])))


def right(rows: Float[Array, "... T E"], tile: int) -> Float[Array, "... padded W"]:
    """[x, 1, |x|²]."""
    squares = jnp.sum(rows**2, axis=-1, keepdims=True)
    extended = jnp.concatenate([rows, jnp.ones_like(squares), squares], axis=-1)
    return padded(extended, (tile, width(rows.shape[-1])))


def padded(array: Array, tile: tuple[int, int]) -> Array:
    """With zeros at the end of the last two axes, to whole tiles."""
    widths = [(0, 0)] * (array.ndim - 2) + [(0, -n % side) for n, side in zip(array.shape[-2:], tile, strict=True)]
    return jnp.pad(array, widths)


def width(E: int) -> int:
    """Of the extended vectors: a power of two, as the kernels need it."""
    return max(16, 1 << (E + 1).bit_length())


def shares(N: int, tiles: int) -> int:
    """In how many shares the images are dealt out: the least divisor of N with enough programs in all."""
    return min(share for share in range(1, N + 1) if N % share == 0 and (share * tiles >= TILES or share == N))


def each(n: int, image: Callable[[Array, Any], Any], start: Any) -> Any:
    """image(i, sums so far) → sums, for the images 0 … n − 1."""
    together = math.gcd(n, UNROLL)

    def some(i: Array, sums: Any) -> Any:
        for j in range(together):
            sums = image(i * together + j, sums)
        return sums

    return jax.lax.fori_loop(0, n // together, some, start)


def distances(left: Float[Array, "A W"], right: Float[Array, "B W"]) -> Float[Array, "A B"]:
    return jnp.maximum(dot(left, right.T), 0)


def patch_distances(
    scale: Array, left: Any, right: Any, i: Array | int, E: int, some: Any = slice(None)
) -> Float[Array, "A B"]:
    """scale · |x[p] − x[q]|² from extended patches of image i in memory: all on the left, some on the right."""
    pixels = (jnp.arange(left.shape[2]) < E).astype(jnp.float32)
    product = dot(left[i] * pixels, right[i, some, :].T)
    return scale * jnp.maximum(left[i, :, E + 1][:, None] + right[i, some, E + 1][None, :] - 2 * product, 0)


def times(p: Array, q: Array) -> Array:
    """How often a tile counts: those above the diagonal also for their mirror images below it."""
    return (p == q).astype(jnp.float32) + 2 * (p < q).astype(jnp.float32)


def apart(p: Array, q: Array) -> Float[Array, "A B"]:
    """0 between a patch and itself, 1 elsewhere: rounding must not part a patch from itself."""
    places = jnp.arange(PATCHES)
    return (p * PATCHES + places[:, None] != q * PATCHES + places[None, :]).astype(jnp.float32)


def dot(a: Array, b: Array, algorithm: Any = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3) -> Array:
    precision = jax.lax.Precision.HIGHEST if INTERPRET else algorithm
    return jax.lax.dot(a, b, precision=precision, preferred_element_type=a.dtype)


def rounded_dot(a: Array, b: Array) -> Array:
    return dot(a, b, jax.lax.DotAlgorithmPreset.TF32_TF32_F32)


def call(kernel: Any, grid: tuple[int, ...], inputs: list[Any], outputs: list[Any], shapes: list[Any]) -> Any:
    """A function of arrays: `kernel` for each member of `grid`, on the blocks of them that it sees."""
    run = lambda *arrays: pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=inputs,
        out_specs=outputs,
        out_shape=[jax.ShapeDtypeStruct(shape, arrays[0].dtype) for shape in shapes],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=INTERPRET,
    )(*arrays)
    return run
