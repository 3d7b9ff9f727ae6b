"""Σ_pq C_pq c(|x_n[p] − x_n[q]|²) and its gradients, as fused kernels: the tiles on and above the diagonal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from tickgp.gp.kernels import Correlation, with_slope
from tickgp.gp.patch_sums_gpu import tiles


def _in_tiles(scale: Array, C: Array, x: Array) -> tiles.Tiles:
    """C, the scale, and the extended x as rows and as columns."""
    rows, tiled = tiles.right(x, tiles.PATCHES), tiles.padded(C, (tiles.PATCHES, tiles.PATCHES))
    (N, _, W), side = rows.shape, rows.shape[1] // tiles.PATCHES
    shares = tiles.shares(N, side * side // 2)
    n = N // shares
    seen = [
        pl.BlockSpec((tiles.PATCHES, tiles.PATCHES), lambda p, q, s: (p, q)),
        pl.BlockSpec((1,), lambda p, q, s: (0,)),
        pl.BlockSpec((n, tiles.PATCHES, W), lambda p, q, s: (s, p, 0)),
        pl.BlockSpec((n, tiles.PATCHES, W), lambda p, q, s: (s, q, 0)),
    ]
    return tiles.Tiles((tiled, scale[None], rows, rows), (side, side, shares), n, seen)


def self_sums(c: Correlation, scale: Array, C: Array, x: Array) -> Float[Array, " N"]:
    t, E = _in_tiles(scale, C, x), x.shape[2]
    side = t.grid[0]

    def kernel(C: Any, scale: Any, left: Any, right: Any, sums: Any) -> None:
        p, q = pl.program_id(0), pl.program_id(1)
        weights, apart = tiles.times(p, q) * C[...], tiles.apart(p, q)

        def image(i: Array, _: None) -> None:
            sums[0, i] = jnp.sum(weights * c(apart * tiles.patch_distances(scale[0], left, right, i, E)))

        def nothing(i: Array, _: None) -> None:
            sums[0, i] = 0.0

        pl.when(p <= q)(lambda: tiles.each(t.images, image, None))
        pl.when(p > q)(lambda: tiles.each(t.images, nothing, None))

    parts = tiles.call(
        kernel,
        t.grid,
        t.seen,
        [pl.BlockSpec((1, t.images), lambda p, q, s: (p * side + q, s))],
        [(side * side, len(x))],
    )(*t.arrays)[0]
    return jnp.sum(parts, axis=0)


def self_sums_gradient(
    c: Correlation, scale: Array, C: Array, x: Array, cotangent: Float[Array, " N"]
) -> tuple[Array, Array, Array]:
    dscale, dC = _self_sums_gradient(c, scale, C, x, cotangent)
    return dscale, dC, _self_sums_gradient_x(c, scale, C, x, cotangent)


def _self_sums_gradient(c: Correlation, scale: Array, C: Array, x: Array, cotangent: Array) -> tuple[Array, Array]:
    t, E = _in_tiles(scale, C, x), x.shape[2]
    P, side = len(t.arrays[0]), t.grid[0]

    def kernel(C: Any, scale: Any, left: Any, right: Any, g: Any, dC: Any, dscale: Any) -> None:
        p, q, s = (pl.program_id(i) for i in range(3))
        weights, apart = tiles.times(p, q) * C[...], tiles.apart(p, q)
        dscale[0, 0] = 0.0

        def image(i: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            d = apart * tiles.patch_distances(scale[0], left, right, i, E)
            value, slope = with_slope(c, d)
            return sums[0] + g[i] * value, sums[1] + g[i] * slope * d

        def sum_up() -> None:
            zero = jnp.zeros(weights.shape, weights.dtype)
            values, slopes = tiles.each(t.images, image, (zero, zero))
            rows, columns = pl.ds(p * tiles.PATCHES, tiles.PATCHES), pl.ds(q * tiles.PATCHES, tiles.PATCHES)
            dC[s, rows, columns], dC[s, columns, rows] = values, values.T
            dscale[0, 0] = jnp.sum(weights * slopes)

        pl.when(p <= q)(sum_up)

    dC, dscale = tiles.call(
        kernel,
        t.grid,
        [*t.seen, pl.BlockSpec((t.images,), lambda p, q, s: (s,))],
        [pl.BlockSpec(), pl.BlockSpec((1, 1), lambda p, q, s: (p * side + q, s))],
        [(t.grid[2], P, P), (side * side, t.grid[2])],
    )(*t.arrays, cotangent)
    return jnp.sum(dscale) / scale, jnp.sum(dC, axis=0)[: len(C), : len(C)]


def _self_sums_gradient_x(c: Correlation, scale: Array, C: Array, x: Array, cotangent: Array) -> Float[Array, "N P E"]:
    arrays = _in_tiles(scale, C, x).arrays
    (N, P, W), E = arrays[-1].shape, x.shape[2]

    def kernel(C: Any, scale: Any, left: Any, right: Any, moments: Any) -> None:
        p = pl.program_id(0)

        def others(q: Array, sums: Array) -> Array:
            some = pl.ds(q * tiles.PATCHES, tiles.PATCHES)
            d = tiles.apart(p, q) * tiles.patch_distances(scale[0], left, right, 0, E, some)
            return sums + tiles.rounded_dot(C[:, some] * with_slope(c, d)[1], right[0, some])

        moments[0] = jax.lax.fori_loop(0, P // tiles.PATCHES, others, jnp.zeros((tiles.PATCHES, W), C.dtype))

    moments = tiles.call(
        kernel,
        (P // tiles.PATCHES, N),
        [
            pl.BlockSpec((tiles.PATCHES, P), lambda p, n: (p, 0)),
            pl.BlockSpec((1,), lambda p, n: (0,)),
            pl.BlockSpec((1, tiles.PATCHES, W), lambda p, n: (n, p, 0)),
            pl.BlockSpec((1, P, W), lambda p, n: (n, 0, 0)),
        ],
        [pl.BlockSpec((1, tiles.PATCHES, W), lambda p, n: (n, p, 0))],
        [(N, P, W)],
    )(*arrays)[0][:, : x.shape[1]]
    return 4 * scale * cotangent[:, None, None] * (moments[:, :, E, None] * x - moments[:, :, :E])
