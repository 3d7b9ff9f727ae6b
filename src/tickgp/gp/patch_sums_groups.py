"""Sums over patches, a few images at a time: their values of k stay in fast memory. See `patch_sums`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.compiling import platform
from tickgp.gp.kernels import Correlation, with_slope
from tickgp.gp.linalg import matmul, rounded_matmul

AT_ONCE = {"cpu": 2**16}
OTHERWISE = 2**25
"""Values of k that are worked on at a time: as fit into a core's cache, or as keep a GPU busy."""
BANDS = 2
"""Into so many bands of rows k(x[p], x[q]) is cut, to compute it once for p < q and p > q."""


def cross_sums(c: Correlation, scale: Array, C: Array, z: Array, x: Array) -> Float[Array, "M N"]:
    def one_group(x: Float[Array, "n P E"]) -> Float[Array, "n M"]:
        return jnp.sum(c(scale * _cross_distances(z, x)) * C[:, None, :], axis=-1).T

    return _in_groups(one_group, x, per_image=C.size).T


def cross_sums_gradient(
    c: Correlation, scale: Array, C: Array, z: Array, x: Array, cotangent: Float[Array, "M N"]
) -> tuple[Array, Array, Array, Array]:
    E = z.shape[1]

    def one_group(
        sums: tuple[Array, Array, Array], group: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array, Array], Array]:
        (dscale, dC, dz), (x, g) = sums, group
        d = _cross_distances(z, x)
        value, slope = with_slope(c, scale * d)
        g, rows = g.T[:, :, None], x.reshape(-1, E)
        T = (g * C[:, None, :] * slope).reshape(len(C), -1)
        dscale += jnp.sum(T * d.reshape(T.shape))
        dC += jnp.sum(g * value, axis=1)
        dz += jnp.sum(T, axis=1, keepdims=True) * z - rounded_matmul(T, rows)
        dx = 2 * scale * (jnp.sum(T, axis=0)[:, None] * rows - rounded_matmul(T.T, z))
        return (dscale, dC, dz), dx.reshape(x.shape)

    start = jnp.zeros_like(scale), jnp.zeros_like(C), jnp.zeros_like(z)
    (dscale, dC, dz), dx = _scan_groups(one_group, start, (x, cotangent.T), per_image=C.size)
    return dscale, dC, 2 * scale * dz, dx


def self_sums(c: Correlation, scale: Array, C: Array, x: Array) -> Float[Array, " N"]:
    def one_group(x: Float[Array, "n P E"]) -> Float[Array, " n"]:
        bands = [(_self_distances(x, band), _counted(C, band)) for band in _bands(len(C))]
        return sum(
            (jnp.sum(c(scale * d) * weights, axis=(1, 2)) for d, weights in bands), start=jnp.zeros(len(x), x.dtype)
        )

    return _in_groups(one_group, x, per_image=C.size)


def self_sums_gradient(
    c: Correlation, scale: Array, C: Array, x: Array, cotangent: Float[Array, " N"]
) -> tuple[Array, Array, Array]:
    def one_group(sums: tuple[Array, Array], group: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        x, g = group
        (dscale, dC), dx, g = sums, jnp.zeros_like(x), g[:, None, None]
        for band in _bands(len(C)):
            first, last = band
            d = _self_distances(x, band)
            value, slope = with_slope(c, scale * d)
            dscale += jnp.sum(g * _counted(C, band) * slope * d)
            dC = dC.at[first:last, first:].add(jnp.sum(g * value, axis=0))
            T, rows, columns = g * C[first:last, first:] * slope, x[:, first:last], x[:, first:]
            dx = dx.at[:, first:last].add(jnp.sum(T, axis=2)[..., None] * rows - rounded_matmul(T, columns))
            T, columns = T[:, :, last - first :], x[:, last:]
            dx = dx.at[:, last:].add(jnp.sum(T, axis=1)[..., None] * columns - rounded_matmul(T.mT, rows))
        return (dscale, dC), 4 * scale * dx

    start = jnp.zeros_like(scale), jnp.zeros_like(C)
    (dscale, dC), dx = _scan_groups(one_group, start, (x, cotangent), per_image=C.size)
    return dscale, _mirrored(dC), dx


def _bands(P: int) -> list[tuple[int, int]]:
    """Rows first … last − 1 of P×P: with their columns from `first` on, little more than half of a symmetric matrix."""
    edges = [P * i // BANDS for i in range(BANDS + 1)]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def _counted(C: Float[Array, "P P"], band: tuple[int, int]) -> Float[Array, "p q"]:
    """C in the band; what stands right of the square on the diagonal counts for its mirror image as well."""
    first, last = band
    return C[first:last, first:] * jnp.where(jnp.arange(first, len(C)) < last, 1, 2)


def _mirrored(bands: Float[Array, "P P"]) -> Float[Array, "P P"]:
    """The symmetric matrix that has these bands."""
    return jnp.triu(bands) + jnp.triu(bands, 1).T


def _cross_distances(z: Float[Array, "M E"], x: Float[Array, "n P E"]) -> Float[Array, "M n P"]:
    rows = x.reshape(-1, x.shape[-1])
    d = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(rows**2, axis=1) - 2 * matmul(z, rows.T)
    return jnp.maximum(d, 0).reshape(len(z), *x.shape[:2])


def _self_distances(x: Float[Array, "n P E"], band: tuple[int, int]) -> Float[Array, "n p q"]:
    first, last = band
    rows, columns = x[:, first:last], x[:, first:]
    squares = jnp.sum(x**2, axis=2)
    d = squares[:, first:last, None] + squares[:, None, first:] - 2 * matmul(rows, columns.mT)
    # Rounding must not part a patch from itself: Matérn's correlation falls steeply there.
    same = jnp.eye(last - first, columns.shape[1], dtype=bool)
    return jnp.where(same, 0, jnp.maximum(d, 0))


def _in_groups(one_group: Callable[[Array], Array], x: Float[Array, "N P E"], per_image: int) -> Float[Array, "N ..."]:
    """one_group(x), a group of images at a time."""
    return _scan_groups(lambda sums, group: (sums, one_group(*group)), (), (x,), per_image)[1]


def _scan_groups(
    one_group: Callable[..., Any], start: Any, arrays: tuple[Array, ...], per_image: int
) -> tuple[Any, Float[Array, "N ..."]]:
    """one_group(sums so far, group) → (sums, part), a group of images at a time; all the parts are put together.

    What remains after groups of one size is a smaller one.
    """
    N = len(arrays[0])
    if (size := _group_size(N, per_image)) == N:
        return one_group(start, arrays)
    whole = N // size * size
    sums, parts = jax.lax.scan(one_group, start, tuple(a[:whole].reshape(-1, size, *a.shape[1:]) for a in arrays))
    parts = parts.reshape(whole, *parts.shape[2:])
    if whole == N:
        return sums, parts
    sums, rest = one_group(sums, tuple(a[whole:] for a in arrays))
    return sums, jnp.concatenate([parts, rest])


def _group_size(N: int, per_image: int) -> int:
    """Images with no more values of k than are worked on at a time: all N, or a power of two.

    Of the usual batches, of 64 or 128 images, nothing then remains, which would be compiled once more.
    """
    most = max(1, AT_ONCE.get(platform(), OTHERWISE) // per_image)
    return N if most >= N else 2 ** (most.bit_length() - 1)
