"""Σ_p C_mp c(|z_m − x_n[p]|²) and its gradients, as fused kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from tickgp.gp.kernels import Correlation, with_slope
from tickgp.gp.patch_sums_gpu import tiles


def _in_tiles(scale: Array, C: Array, z: Array, x: Array) -> tiles.Tiles:
    """C, the extended z and the extended x."""
    left, right = tiles.left(scale, z, tiles.INDUCING), tiles.right(x, tiles.PATCHES)
    tiled = tiles.padded(C, (tiles.INDUCING, tiles.PATCHES))
    (M, P), (N, _, W) = tiled.shape, right.shape
    shares = tiles.shares(N, M * P // (tiles.INDUCING * tiles.PATCHES))
    n = N // shares
    seen = [
        pl.BlockSpec((tiles.INDUCING, tiles.PATCHES), lambda m, p, s: (m, p)),
        pl.BlockSpec((tiles.INDUCING, W), lambda m, p, s: (m, 0)),
        pl.BlockSpec((n, tiles.PATCHES, W), lambda m, p, s: (s, p, 0)),
    ]
    return tiles.Tiles((tiled, left, right), (M // tiles.INDUCING, P // tiles.PATCHES, shares), n, seen)


def cross_sums(c: Correlation, scale: Array, C: Array, z: Array, x: Array) -> Float[Array, "M N"]:
    t = _in_tiles(scale, C, z, x)

    def kernel(C: Any, left: Any, right: Any, sums: Any) -> None:
        weights, z = C[...], left[...]

        def image(i: Array, _: None) -> None:
            sums[0, i] = jnp.sum(weights * c(tiles.distances(z, right[i])), axis=1)

        tiles.each(t.images, image, None)

    parts = tiles.call(
        kernel,
        t.grid,
        t.seen,
        [pl.BlockSpec((1, t.images, tiles.INDUCING), lambda m, p, s: (p, s, m))],
        [(t.grid[1], len(x), len(t.arrays[0]))],
    )(*t.arrays)[0]
    return jnp.sum(parts, axis=0)[:, : len(z)].T


def cross_sums_gradient(
    c: Correlation, scale: Array, C: Array, z: Array, x: Array, cotangent: Float[Array, "M N"]
) -> tuple[Array, Array, Array, Array]:
    dscale, dC, dz = _cross_sums_gradient(c, scale, C, z, x, cotangent)
    return dscale, dC, dz, _cross_sums_gradient_x(c, scale, C, z, x, cotangent)


def _cross_sums_gradient(
    c: Correlation, scale: Array, C: Array, z: Array, x: Array, cotangent: Array
) -> tuple[Array, Array, Array]:
    t, g = _in_tiles(scale, C, z, x), tiles.padded(cotangent.T, (1, tiles.INDUCING))
    (M, P), W, E = t.arrays[0].shape, t.arrays[1].shape[1], z.shape[1]

    def kernel(C: Any, left: Any, right: Any, g: Any, dC: Any, moments: Any, Td: Any) -> None:
        weights, z = C[...], left[...]

        def image(i: Array, sums: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, cotangent = right[i], g[i][:, None]
            d = tiles.distances(z, x)
            value, slope = with_slope(c, d)
            T = cotangent * weights * slope
            return sums[0] + cotangent * value, sums[1] + tiles.rounded_dot(T, x), sums[2] + jnp.sum(T * d, axis=1)

        start = (jnp.zeros(shape, z.dtype) for shape in (weights.shape, z.shape, z.shape[:1]))
        dC[0], moments[0, 0], Td[0, 0] = tiles.each(t.images, image, tuple(start))

    dC, moments, Td = tiles.call(
        kernel,
        t.grid,
        [*t.seen, pl.BlockSpec((t.images, tiles.INDUCING), lambda m, p, s: (s, m))],
        [
            pl.BlockSpec((1, tiles.INDUCING, tiles.PATCHES), lambda m, p, s: (s, m, p)),
            pl.BlockSpec((1, 1, tiles.INDUCING, W), lambda m, p, s: (s, p, m, 0)),
            pl.BlockSpec((1, 1, tiles.INDUCING), lambda m, p, s: (s, p, m)),
        ],
        [(t.grid[2], M, P), (*t.grid[2:0:-1], M, W), (*t.grid[2:0:-1], M)],
    )(*t.arrays, g)
    moments = jnp.sum(moments, axis=(0, 1))[: len(z)]
    Tx, T = moments[:, :E], moments[:, E, None]
    return jnp.sum(Td) / scale, jnp.sum(dC, axis=0)[: C.shape[0], : C.shape[1]], 2 * scale * (T * z - Tx)


def _cross_sums_gradient_x(
    c: Correlation, scale: Array, C: Array, z: Array, x: Array, cotangent: Array
) -> Float[Array, "N P E"]:
    tiled, left, right = _in_tiles(scale, C, z, x).arrays
    (M, P), (N, _, W), E = tiled.shape, right.shape, z.shape[1]
    g, rows = tiles.padded(cotangent.T, (1, tiles.INDUCING)), tiles.right(z, tiles.INDUCING)

    def kernel(C: Any, left: Any, rows: Any, right: Any, g: Any, moments: Any) -> None:
        x = right[0]

        def inducing(i: Array, sums: Array) -> Array:
            some = pl.ds(i * tiles.INDUCING, tiles.INDUCING)
            slope = with_slope(c, tiles.distances(left[some, :], x))[1]
            T = g[0, some][:, None] * C[some, :] * slope
            return sums + tiles.rounded_dot(T.T, rows[some, :])

        moments[0] = jax.lax.fori_loop(0, M // tiles.INDUCING, inducing, jnp.zeros(x.shape, x.dtype))

    moments = tiles.call(
        kernel,
        (P // tiles.PATCHES, N),
        [
            pl.BlockSpec((M, tiles.PATCHES), lambda p, n: (0, p)),
            pl.BlockSpec((M, W), lambda p, n: (0, 0)),
            pl.BlockSpec((M, W), lambda p, n: (0, 0)),
            pl.BlockSpec((1, tiles.PATCHES, W), lambda p, n: (n, p, 0)),
            pl.BlockSpec((1, M), lambda p, n: (n, 0)),
        ],
        [pl.BlockSpec((1, tiles.PATCHES, W), lambda p, n: (n, p, 0))],
        [(N, P, W)],
    )(tiled, left, rows, right, g)[0][:, : x.shape[1]]
    return 2 * scale * (moments[:, :, E, None] * x - moments[:, :, :E])
