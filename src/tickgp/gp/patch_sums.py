"""Sums over patches, Σ_p C_mp k(z_m, x_n[p]) and Σ_pq C_pq k(x_n[p], x_n[q]), a few images at a time.

Written out, the values of k are N·P·M and N·P·P numbers, far more than goes in or comes out. Here a few images are
summed up at a time, so that their values of k stay in fast memory, and the backward pass computes them again instead of
keeping them. For a stationary kernel k = c(d), with d the squared distance, the derivatives are matrix products: with
T = (cotangent) · C · c'(d),
    ∂z_m = 2 Σ_np T_mnp (z_m − x_n[p]),   ∂x_n[p] = 2 Σ_m T_mnp (x_n[p] − z_m),   ∂C_mp = Σ_n (cotangent) c(d_mnp).
Values and gradients are those of the plain sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul

Correlation = Callable[[Array], Array]
"""c(d), elementwise."""

AT_ONCE = {"cpu": 2**16}
OTHERWISE = 2**24
"""Values of k that are worked on at a time: as fit into a core's cache, or as keep a GPU busy."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def cross_sums(
    c: Correlation, C: Float[Array, "M P"], z: Float[Array, "M E"], x: Float[Array, "N P E"]
) -> Float[Array, "M N"]:
    """S_mn = Σ_p C_mp c(|z_m − x_n[p]|²)."""

    def few(x: Float[Array, "n P E"]) -> Float[Array, "n M"]:
        return jnp.sum(c(_cross_distances(z, x)) * C[:, None, :], axis=-1).T

    return _in_groups(few, x, per_image=C.size).T


def _cross_forward(c: Correlation, C: Array, z: Array, x: Array) -> tuple[Array, tuple[Array, ...]]:
    return cross_sums(c, C, z, x), (C, z, x)


def _cross_backward(c: Correlation, saved: tuple[Array, ...], cotangent: Float[Array, "M N"]) -> tuple[Array, ...]:
    C, z, x = saved
    E = z.shape[1]

    def few(sums: tuple[Array, Array], group: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        x, g = group
        value, slope = _with_slope(c, _cross_distances(z, x))
        g = g.T[:, :, None]
        T = (g * C[:, None, :] * slope).reshape(len(C), -1)
        rows = x.reshape(-1, E)
        ones = jnp.ones((len(rows), 1), x.dtype)
        moments = matmul(T, jnp.concatenate([rows, ones], axis=1))
        dx = 2 * (jnp.sum(T, axis=0)[:, None] * rows - matmul(T.T, z))
        return (sums[0] + jnp.sum(g * value, axis=1), sums[1] + moments), dx.reshape(x.shape)

    start = (jnp.zeros_like(C), jnp.zeros((len(C), E + 1), C.dtype))
    (dC, moments), dx = _scan_groups(few, start, (x, cotangent.T), per_image=C.size)
    return dC, 2 * (moments[:, E:] * z - moments[:, :E]), dx


cross_sums.defvjp(_cross_forward, _cross_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def self_sums(c: Correlation, C: Float[Array, "P P"], x: Float[Array, "N P E"]) -> Float[Array, " N"]:
    """S_n = Σ_pq C_pq c(|x_n[p] − x_n[q]|²), for a symmetric C."""

    def few(x: Float[Array, "n P E"]) -> Float[Array, " n"]:
        return jnp.sum(c(_self_distances(x)) * C, axis=(1, 2))

    return _in_groups(few, x, per_image=C.size)


def _self_forward(c: Correlation, C: Array, x: Array) -> tuple[Array, tuple[Array, ...]]:
    return self_sums(c, C, x), (C, x)


def _self_backward(c: Correlation, saved: tuple[Array, ...], cotangent: Float[Array, " N"]) -> tuple[Array, ...]:
    C, x = saved

    def few(dC: Array, group: tuple[Array, Array]) -> tuple[Array, Array]:
        x, g = group
        value, slope = _with_slope(c, _self_distances(x))
        g = g[:, None, None]
        T = g * C * slope
        dx = 4 * (jnp.sum(T, axis=2)[..., None] * x - matmul(T, x))
        return dC + jnp.sum(g * value, axis=0), dx

    return _scan_groups(few, jnp.zeros_like(C), (x, cotangent), per_image=C.size)


self_sums.defvjp(_self_forward, _self_backward)


def _cross_distances(z: Float[Array, "M E"], x: Float[Array, "n P E"]) -> Float[Array, "M n P"]:
    rows = x.reshape(-1, x.shape[-1])
    d = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(rows**2, axis=1) - 2 * matmul(z, rows.T)
    return jnp.maximum(d, 0).reshape(len(z), *x.shape[:2])


def _self_distances(x: Float[Array, "n P E"]) -> Float[Array, "n P P"]:
    squares = jnp.sum(x**2, axis=2)
    d = squares[:, :, None] + squares[:, None, :] - 2 * matmul(x, x.mT)
    # Rounding must not part a patch from itself: Matérn's correlation falls steeply there.
    return jnp.where(jnp.eye(x.shape[1], dtype=bool), 0, jnp.maximum(d, 0))


def _with_slope(c: Correlation, d: Array) -> tuple[Array, Array]:
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
