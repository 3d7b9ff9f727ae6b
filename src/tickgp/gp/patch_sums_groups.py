"""Sums over patches, a few images at a time: their values of k stay in fast memory. See `patch_sums`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul

AT_ONCE = {"cpu": 2**16}
OTHERWISE = 2**25
"""Values of k that are worked on at a time: as fit into a core's cache, or as keep a GPU busy."""


def cross(c: Callable[[Array], Array], scale: Array, C: Array, z: Array, x: Array) -> Float[Array, "M N"]:
    def few(x: Float[Array, "n P E"]) -> Float[Array, "n M"]:
        return jnp.sum(c(scale * _cross_distances(z, x)) * C[:, None, :], axis=-1).T

    return _in_groups(few, x, per_image=C.size).T


def cross_gradient(
    c: Callable[[Array], Array], scale: Array, C: Array, z: Array, x: Array, cotangent: Float[Array, "M N"]
) -> tuple[Array, Array, Array, Array]:
    E = z.shape[1]

    def few(sums: tuple[Array, ...], group: tuple[Array, Array]) -> tuple[tuple[Array, ...], Array]:
        x, g = group
        d = _cross_distances(z, x)
        value, slope = _with_slope(c, scale * d)
        g = g.T[:, :, None]
        T = g * C[:, None, :] * slope
        dscale, dC = jnp.sum(T * d), jnp.sum(g * value, axis=1)
        T, rows = T.reshape(len(C), -1), x.reshape(-1, E)
        ones = jnp.ones((len(rows), 1), x.dtype)
        moments = matmul(T, jnp.concatenate([rows, ones], axis=1))
        dx = 2 * scale * (jnp.sum(T, axis=0)[:, None] * rows - matmul(T.T, z))
        return jax.tree.map(jnp.add, sums, (dscale, dC, moments)), dx.reshape(x.shape)

    start = (jnp.zeros_like(scale), jnp.zeros_like(C), jnp.zeros((len(C), E + 1), C.dtype))
    (dscale, dC, moments), dx = _scan_groups(few, start, (x, cotangent.T), per_image=C.size)
    return dscale, dC, 2 * scale * (moments[:, E:] * z - moments[:, :E]), dx


def self(c: Callable[[Array], Array], scale: Array, C: Array, x: Array) -> Float[Array, " N"]:
    def few(x: Float[Array, "n P E"]) -> Float[Array, " n"]:
        return jnp.sum(c(scale * _self_distances(x)) * C, axis=(1, 2))

    return _in_groups(few, x, per_image=C.size)


def self_gradient(
    c: Callable[[Array], Array], scale: Array, C: Array, x: Array, cotangent: Float[Array, " N"]
) -> tuple[Array, Array, Array]:
    def few(sums: tuple[Array, Array], group: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        x, g = group
        d = _self_distances(x)
        value, slope = _with_slope(c, scale * d)
        g = g[:, None, None]
        T = g * C * slope
        dx = 4 * scale * (jnp.sum(T, axis=2)[..., None] * x - matmul(T, x))
        return (sums[0] + jnp.sum(T * d), sums[1] + jnp.sum(g * value, axis=0)), dx

    start = jnp.zeros_like(scale), jnp.zeros_like(C)
    (dscale, dC), dx = _scan_groups(few, start, (x, cotangent), per_image=C.size)
    return dscale, dC, dx


def _cross_distances(z: Float[Array, "M E"], x: Float[Array, "n P E"]) -> Float[Array, "M n P"]:
    rows = x.reshape(-1, x.shape[-1])
    d = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(rows**2, axis=1) - 2 * matmul(z, rows.T)
    return jnp.maximum(d, 0).reshape(len(z), *x.shape[:2])


def _self_distances(x: Float[Array, "n P E"]) -> Float[Array, "n P P"]:
    squares = jnp.sum(x**2, axis=2)
    d = squares[:, :, None] + squares[:, None, :] - 2 * matmul(x, x.mT)
    # Rounding must not part a patch from itself: Matérn's correlation falls steeply there.
    return jnp.where(jnp.eye(x.shape[1], dtype=bool), 0, jnp.maximum(d, 0))


def _with_slope(c: Callable[[Array], Array], d: Array) -> tuple[Array, Array]:
    return jax.jvp(c, (d,), (jnp.ones_like(d),))


def _in_groups(few: Callable[[Array], Array], x: Float[Array, "N P E"], per_image: int) -> Float[Array, "N ..."]:
    """few(x), a group of images at a time."""
    if (size := _group_size(len(x), per_image)) == len(x):
        return few(x)
    parts = jax.lax.map(few, _grouped(x, size))
    return parts.reshape(len(x), *parts.shape[2:])


def _scan_groups(few: Callable[..., Any], start: Any, arrays: tuple[Array, ...], per_image: int) -> tuple[Any, Array]:
    """few(sums so far, group) → (sums, part), a group of images at a time; all the parts are put together."""
    if (size := _group_size(len(arrays[0]), per_image)) == len(arrays[0]):
        return few(start, arrays)
    sums, parts = jax.lax.scan(few, start, tuple(_grouped(array, size) for array in arrays))
    return sums, parts.reshape(len(arrays[0]), *parts.shape[2:])


def _group_size(N: int, per_image: int) -> int:
    """The largest divisor of N with which a group has no more values of k than are worked on at a time."""
    most = max(1, AT_ONCE.get(jax.default_backend(), OTHERWISE) // per_image)
    return max(size for size in range(1, N + 1) if N % size == 0 and size <= most)


def _grouped(array: Float[Array, "N ..."], size: int) -> Float[Array, "G n ..."]:
    return array.reshape(-1, size, *array.shape[1:])
