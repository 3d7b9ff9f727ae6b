"""Sums over patches as fused GPU kernels (Pallas, by way of Triton): no value of k leaves the chip. See `patch_sums`.

A kernel works on a tile of values of k, of some inducing patches and some patches, for one image after the other. The
squared distance is a single product of extended vectors, [−2z, |z|², 1]·[x, 1, |x|²], and the product of T with the
extended x gives all the sums that the gradients need. Distances are made of three products in TF32, which keeps about
as many digits as float32; gradients, of one. Arrays are padded with zeros to whole tiles; there C is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


def cross(c: Callable[[Array], Array], scale: Array, C: Array, z: Array, x: Array) -> Float[Array, "M N"]:
    left, right, tiles = _left(scale, z, INDUCING), _right(x, PATCHES), _padded(C, (INDUCING, PATCHES))
    (M, P), (N, _, W) = tiles.shape, right.shape
    grid = (M // INDUCING, P // PATCHES, _shares(N, M * P // (INDUCING * PATCHES)))
    n = N // grid[2]

    def kernel(C: Any, left: Any, right: Any, sums: Any) -> None:
        weights, z = C[...], left[...]

        def image(i: Array, _: None) -> None:
            sums[0, i] = jnp.sum(weights * c(_distances(z, right[i])), axis=1)

        _each(n, image, None)

    parts = _call(
        kernel,
        grid,
        [
            pl.BlockSpec((INDUCING, PATCHES), lambda m, p, s: (m, p)),
            pl.BlockSpec((INDUCING, W), lambda m, p, s: (m, 0)),
            pl.BlockSpec((n, PATCHES, W), lambda m, p, s: (s, p, 0)),
        ],
        [pl.BlockSpec((1, n, INDUCING), lambda m, p, s: (p, s, m))],
        [(grid[1], N, M)],
    )(tiles, left, right)[0]
    return jnp.sum(parts, axis=0)[:, : len(z)].T


def cross_gradient(
    c: Callable[[Array], Array], scale: Array, C: Array, z: Array, x: Array, cotangent: Float[Array, "M N"]
) -> tuple[Array, Array, Array, Array]:
    dscale, dC, dz = _cross_gradient(c, scale, C, z, x, cotangent)
    return dscale, dC, dz, _cross_gradient_x(c, scale, C, z, x, cotangent)


def _cross_gradient(
    c: Callable[[Array], Array], scale: Array, C: Array, z: Array, x: Array, cotangent: Array
) -> tuple[Array, Array, Array]:
    left, right, tiles = _left(scale, z, INDUCING), _right(x, PATCHES), _padded(C, (INDUCING, PATCHES))
    (M, P), (N, _, W), E = tiles.shape, right.shape, z.shape[1]
    g = _padded(cotangent.T, (1, INDUCING))
    grid = (M // INDUCING, P // PATCHES, _shares(N, M * P // (INDUCING * PATCHES)))
    n = N // grid[2]

    def kernel(C: Any, left: Any, right: Any, g: Any, dC: Any, moments: Any) -> None:
        weights, z = C[...], left[...]

        def image(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            x, cotangent = right[i], g[i][:, None]
            value, slope = _with_slope(c, _distances(z, x))
            return sums[0] + cotangent * value, sums[1] + _rounded_dot(cotangent * weights * slope, x)

        start = jnp.zeros(weights.shape, weights.dtype), jnp.zeros(z.shape, z.dtype)
        dC[0], moments[0, 0] = _each(n, image, start)

    dC, moments = _call(
        kernel,
        grid,
        [
            pl.BlockSpec((INDUCING, PATCHES), lambda m, p, s: (m, p)),
            pl.BlockSpec((INDUCING, W), lambda m, p, s: (m, 0)),
            pl.BlockSpec((n, PATCHES, W), lambda m, p, s: (s, p, 0)),
            pl.BlockSpec((n, INDUCING), lambda m, p, s: (s, m)),
        ],
        [
            pl.BlockSpec((1, INDUCING, PATCHES), lambda m, p, s: (s, m, p)),
            pl.BlockSpec((1, 1, INDUCING, W), lambda m, p, s: (s, p, m, 0)),
        ],
        [(grid[2], M, P), (*grid[2:0:-1], M, W)],
    )(tiles, left, right, g)
    moments = jnp.sum(moments, axis=(0, 1))[: len(z)]
    Tx, T, Txx = moments[:, :E], moments[:, E], moments[:, E + 1]
    dscale = jnp.sum(T * jnp.sum(z**2, axis=1) - 2 * jnp.sum(z * Tx, axis=1) + Txx)
    return dscale, jnp.sum(dC, axis=0)[: C.shape[0], : C.shape[1]], 2 * scale * (T[:, None] * z - Tx)


def _cross_gradient_x(
    c: Callable[[Array], Array], scale: Array, C: Array, z: Array, x: Array, cotangent: Array
) -> Float[Array, "N P E"]:
    left, right, tiles = _left(scale, z, INDUCING), _right(x, PATCHES), _padded(C, (INDUCING, PATCHES))
    (M, P), (N, _, W), E = tiles.shape, right.shape, z.shape[1]
    g, rows = _padded(cotangent.T, (1, INDUCING)), _right(z, INDUCING)

    def kernel(C: Any, left: Any, rows: Any, right: Any, g: Any, moments: Any) -> None:
        x = right[0]

        def inducing(i: Array, sums: Array) -> Array:
            some = pl.ds(i * INDUCING, INDUCING)
            slope = _with_slope(c, _distances(left[some, :], x))[1]
            T = g[0, some][:, None] * C[some, :] * slope
            return sums + _rounded_dot(T.T, rows[some, :])

        moments[0] = jax.lax.fori_loop(0, M // INDUCING, inducing, jnp.zeros(x.shape, x.dtype))

    moments = _call(
        kernel,
        (P // PATCHES, N),
        [
            pl.BlockSpec((M, PATCHES), lambda p, n: (0, p)),
            pl.BlockSpec((M, W), lambda p, n: (0, 0)),
            pl.BlockSpec((M, W), lambda p, n: (0, 0)),
            pl.BlockSpec((1, PATCHES, W), lambda p, n: (n, p, 0)),
            pl.BlockSpec((1, M), lambda p, n: (n, 0)),
        ],
        [pl.BlockSpec((1, PATCHES, W), lambda p, n: (n, p, 0))],
        [(N, P, W)],
    )(tiles, left, rows, right, g)[0][:, : x.shape[1]]
    return 2 * scale * (moments[:, :, E, None] * x - moments[:, :, :E])


def self(c: Callable[[Array], Array], scale: Array, C: Array, x: Array) -> Float[Array, " N"]:
    rows, tiles = _right(x, PATCHES), _padded(C, (PATCHES, PATCHES))
    P, (N, _, W), E = len(tiles), rows.shape, x.shape[2]
    side = P // PATCHES
    grid = (side, side, _shares(N, side * side // 2))
    n = N // grid[2]

    def kernel(C: Any, scale: Any, left: Any, right: Any, sums: Any) -> None:
        p, q = pl.program_id(0), pl.program_id(1)
        weights, apart = _times(p, q) * C[...], _apart(p, q)

        def image(i: Array, _: None) -> None:
            sums[0, i] = jnp.sum(weights * c(apart * _patch_distances(scale[0], _take(left, i, E), _take(right, i, E))))

        def nothing(i: Array, _: None) -> None:
            sums[0, i] = 0.0

        pl.when(p <= q)(lambda: _each(n, image, None))
        pl.when(p > q)(lambda: _each(n, nothing, None))

    parts = _call(
        kernel,
        grid,
        [
            pl.BlockSpec((PATCHES, PATCHES), lambda p, q, s: (p, q)),
            pl.BlockSpec((1,), lambda p, q, s: (0,)),
            pl.BlockSpec((n, PATCHES, W), lambda p, q, s: (s, p, 0)),
            pl.BlockSpec((n, PATCHES, W), lambda p, q, s: (s, q, 0)),
        ],
        [pl.BlockSpec((1, n), lambda p, q, s: (p * side + q, s))],
        [(side * side, N)],
    )(tiles, scale[None], rows, rows)[0]
    return jnp.sum(parts, axis=0)


def self_gradient(
    c: Callable[[Array], Array], scale: Array, C: Array, x: Array, cotangent: Float[Array, " N"]
) -> tuple[Array, Array, Array]:
    dscale, dC = _self_gradient(c, scale, C, x, cotangent)
    return dscale, dC, _self_gradient_x(c, scale, C, x, cotangent)


def _self_gradient(
    c: Callable[[Array], Array], scale: Array, C: Array, x: Array, cotangent: Array
) -> tuple[Array, Array]:
    rows, tiles = _right(x, PATCHES), _padded(C, (PATCHES, PATCHES))
    P, (N, _, W), E = len(tiles), rows.shape, x.shape[2]
    side = P // PATCHES
    grid = (side, side, _shares(N, side * side // 2))
    n = N // grid[2]

    def kernel(C: Any, scale: Any, left: Any, right: Any, g: Any, dC: Any, dscale: Any) -> None:
        p, q, s = (pl.program_id(i) for i in range(3))
        weights, apart = _times(p, q) * C[...], _apart(p, q)
        dscale[0, 0] = 0.0

        def image(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            d = apart * _patch_distances(scale[0], _take(left, i, E), _take(right, i, E))
            value, slope = _with_slope(c, d)
            return sums[0] + g[i] * value, sums[1] + g[i] * slope * d

        def above() -> None:
            zero = jnp.zeros(weights.shape, weights.dtype)
            values, slopes = _each(n, image, (zero, zero))
            above, left = pl.ds(p * PATCHES, PATCHES), pl.ds(q * PATCHES, PATCHES)
            dC[s, above, left], dC[s, left, above] = values, values.T
            dscale[0, 0] = jnp.sum(weights * slopes)

        pl.when(p <= q)(above)

    dC, dscale = _call(
        kernel,
        grid,
        [
            pl.BlockSpec((PATCHES, PATCHES), lambda p, q, s: (p, q)),
            pl.BlockSpec((1,), lambda p, q, s: (0,)),
            pl.BlockSpec((n, PATCHES, W), lambda p, q, s: (s, p, 0)),
            pl.BlockSpec((n, PATCHES, W), lambda p, q, s: (s, q, 0)),
            pl.BlockSpec((n,), lambda p, q, s: (s,)),
        ],
        [pl.BlockSpec(), pl.BlockSpec((1, 1), lambda p, q, s: (p * side + q, s))],
        [(grid[2], P, P), (side * side, grid[2])],
    )(tiles, scale[None], rows, rows, cotangent)
    return jnp.sum(dscale) / scale, jnp.sum(dC, axis=0)[: len(C), : len(C)]


def _self_gradient_x(
    c: Callable[[Array], Array], scale: Array, C: Array, x: Array, cotangent: Array
) -> Float[Array, "N P E"]:
    rows, tiles = _right(x, PATCHES), _padded(C, (PATCHES, PATCHES))
    P, (N, _, W), E = len(tiles), rows.shape, x.shape[2]

    def kernel(C: Any, scale: Any, left: Any, right: Any, moments: Any) -> None:
        p = pl.program_id(0)

        def others(q: Array, sums: Array) -> Array:
            some = pl.ds(q * PATCHES, PATCHES)
            d = _apart(p, q) * _patch_distances(scale[0], _take(left, 0, E), _take(right, 0, E, some))
            return sums + _rounded_dot(C[:, some] * _with_slope(c, d)[1], right[0, some])

        moments[0] = jax.lax.fori_loop(0, P // PATCHES, others, jnp.zeros((PATCHES, W), C.dtype))

    moments = _call(
        kernel,
        (P // PATCHES, N),
        [
            pl.BlockSpec((PATCHES, P), lambda p, n: (p, 0)),
            pl.BlockSpec((1,), lambda p, n: (0,)),
            pl.BlockSpec((1, PATCHES, W), lambda p, n: (n, p, 0)),
            pl.BlockSpec((1, P, W), lambda p, n: (n, 0, 0)),
        ],
        [pl.BlockSpec((1, PATCHES, W), lambda p, n: (n, p, 0))],
        [(N, P, W)],
    )(tiles, scale[None], rows, rows)[0][:, : x.shape[1]]
    return 4 * scale * cotangent[:, None, None] * (moments[:, :, E, None] * x - moments[:, :, :E])


def _left(scale: Array, rows: Float[Array, "... T E"], tile: int) -> Float[Array, "... padded W"]:
    """scale · [−2z, |z|², 1]."""
    squares = jnp.sum(rows**2, axis=-1, keepdims=True)
    extended = scale * jnp.concatenate([-2 * rows, squares, jnp.ones_like(squares)], axis=-1)
    return _padded(extended, (tile, _width(rows.shape[-1])))


def _right(rows: Float[Array, "... T E"], tile: int) -> Float[Array, "... padded W"]:
    """[x, 1, |x|²]."""
    squares = jnp.sum(rows**2, axis=-1, keepdims=True)
    extended = jnp.concatenate([rows, jnp.ones_like(squares), squares], axis=-1)
    return _padded(extended, (tile, _width(rows.shape[-1])))


def _padded(array: Array, tile: tuple[int, int]) -> Array:
    """With zeros at the end of the last two axes, to whole tiles."""
    widths = [(0, 0)] * (array.ndim - 2) + [(0, -n % side) for n, side in zip(array.shape[-2:], tile, strict=True)]
    return jnp.pad(array, widths)


def _width(E: int) -> int:
    """Of the extended vectors: a power of two, as the kernels need it."""
    return max(16, 1 << (E + 1).bit_length())


def _shares(N: int, tiles: int) -> int:
    """In how many shares the images are dealt out: the least divisor of N with enough programs in all."""
    return min(share for share in range(1, N + 1) if N % share == 0 and (share * tiles >= TILES or share == N))


def _each(n: int, image: Callable[[Array, Any], Any], start: Any) -> Any:
    """image(i, sums so far) → sums, for the images 0 … n − 1."""
    together = math.gcd(n, UNROLL)

    def some(i: Array, sums: Any) -> Any:
        for j in range(together):
            sums = image(i * together + j, sums)
        return sums

    return jax.lax.fori_loop(0, n // together, some, start)


def _distances(left: Float[Array, "A W"], right: Float[Array, "B W"]) -> Float[Array, "A B"]:
    return jnp.maximum(_dot(left, right.T), 0)


Patches = tuple[Float[Array, "A W"], Float[Array, " A"]]
"""Patches that were loaded, with zeros after their pixels, and their squares |x|²."""


def _take(rows: Any, i: Array | int, E: int, some: Any = slice(None)) -> Patches:
    """Image i's extended patches, from memory."""
    return rows[i, some, :] * (jnp.arange(rows.shape[2]) < E).astype(jnp.float32), rows[i, some, E + 1]


def _patch_distances(scale: Array, a: Patches, b: Patches) -> Float[Array, "A B"]:
    return scale * jnp.maximum(a[1][:, None] + b[1][None, :] - 2 * _dot(a[0], b[0].T), 0)


def _times(p: Array, q: Array) -> Array:
    """How often a tile counts: those above the diagonal also for their mirror images below it."""
    return (p == q).astype(jnp.float32) + 2 * (p < q).astype(jnp.float32)


def _apart(p: Array, q: Array) -> Float[Array, "A B"]:
    """0 between a patch and itself, 1 elsewhere: rounding must not part a patch from itself."""
    places = jnp.arange(PATCHES)
    return (p * PATCHES + places[:, None] != q * PATCHES + places[None, :]).astype(jnp.float32)


def _with_slope(c: Callable[[Array], Array], d: Array) -> tuple[Array, Array]:
    return jax.jvp(c, (d,), (jnp.ones_like(d),))


def _dot(a: Array, b: Array, algorithm: Any = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3) -> Array:
    precision = jax.lax.Precision.HIGHEST if INTERPRET else algorithm
    return jax.lax.dot(a, b, precision=precision, preferred_element_type=a.dtype)


def _rounded_dot(a: Array, b: Array) -> Array:
    return _dot(a, b, jax.lax.DotAlgorithmPreset.TF32_TF32_F32)


def _call(kernel: Any, grid: tuple[int, ...], inputs: list[Any], outputs: list[Any], shapes: list[Any]) -> Any:
    def call(*arrays: Array) -> Any:
        return pl.pallas_call(
            kernel,
            grid=grid,
            in_specs=inputs,
            out_specs=outputs,
            out_shape=[jax.ShapeDtypeStruct(shape, arrays[0].dtype) for shape in shapes],
            compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
            interpret=INTERPRET,
        )(*arrays)

    return call
