"""The floor of a training step: the arithmetic and the memory traffic that cannot be done without.

It is that of an implementation that keeps no N·P·M or N·P·P values for the backward pass. Both are lower bounds: what
is of lower order is left out, symmetric and triangular matrices count by their half, and memory traffic is only what
cannot stay on the chip from one step to the next. The time of a floor is that of the slower of the two at the rates of
the machine; the latency of M×M linear algebra, step after step, is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.rows import LayerSizes, Row

VALUE = 4
"""Flops of a value of the kernel beside its E-long product: two norms added, an exponential, a multiplication."""
ROUNDED = ("gradients of k", "q_sqrt", "projection gradient", "Cholesky gradient")
"""Terms that may be computed in the precision that products have by default: TF32 on a GPU."""
DISTANCES = ("Kuf", "Kff", "Kuu")
"""Terms that are as precise if made of three products in that precision, where this is faster."""
ADAM = 7 * 4
"""Bytes for each number that Adam moves: it, its gradient and two moments are read, all but the gradient written."""


@dataclass(frozen=True)
class Floor:
    """Flops and bytes, by what they are for."""

    flops: dict[str, float]
    bytes: dict[str, float]

    def at(self, rates: dict[str, float]) -> dict[str, Any]:
        """Milliseconds at rates of `exact` and `default` float32 products (flops) and of `copy` (bytes) per second."""
        compute = 1e3 * sum(flops / _rate(term, rates) for term, flops in self.flops.items())
        memory = 1e3 * sum(self.bytes.values()) / rates["copy"]
        return {
            "flops": sum(self.flops.values()),
            "bytes": sum(self.bytes.values()),
            "compute_ms": compute,
            "memory_ms": memory,
            "ms": max(compute, memory),
            "bound": "compute" if compute >= memory else "memory",
            "flops_by_term": self.flops,
            "bytes_by_term": self.bytes,
        }


def _rate(term: str, rates: dict[str, float]) -> float:
    if term in ROUNDED:
        return rates["default"]
    return max(rates["exact"], rates["default"] / 3) if term in DISTANCES else rates["exact"]


def count(row: Row) -> Floor:
    """The floor of one step of a row."""
    flops: dict[str, float] = {}
    layers = list(row.layers())
    numbers = 0
    for i, sizes in enumerate(layers):
        terms = _layer(row, sizes, first=i == 0, last=i == len(layers) - 1)
        flops = {name: flops.get(name, 0) + terms.get(name, 0) for name in flops | terms}
        numbers += _parameters(row, sizes, last=i == len(layers) - 1)
    height, width, channels = row.image
    return Floor(flops, {"Adam": ADAM * numbers, "batch": row.B * height * width * channels})


def _layer(row: Row, sizes: LayerSizes, *, first: bool, last: bool) -> dict[str, float]:
    M, B, K, P, E = row.M, row.B, sizes.outputs, sizes.P, sizes.E
    T = B if last else B * P  # columns of Kuf
    by_x = 0 if first else 1  # the gradient by the images, but not by the data
    cross, among, inducing = M * B * P, B * P * (P + 1) / 2 if last else 0.0, M * (M + 1) / 2
    value = 2 * E + VALUE
    # The summed kernel's values are made again in the backward pass; those of a hidden layer's Kuf are kept.
    kernel = {
        "Kuf": (2 if last else 1) * cross * value,
        "Kff": 2 * among * value,
        "Kuu": inducing * value,
        # A product for each patch that a pair moves: z and, after the first layer, x; both x[p] and x[q]; z and z'.
        "gradients of k": 2 * E * (cross * (1 + by_x) + among * 2 * by_x + inducing * 2),
    }
    algebra = {
        "Cholesky": M**3 / 3,
        "inverse": M**3 / 3,
        # Lu⁻ᵀ Φ Lu⁻¹ with Φ lower triangular: lower times lower (M³/3), then upper times lower (2M³/3).
        "Cholesky gradient": M**3,
        # Lu⁻¹ Kuf, its gradient by Kuf and that by Lu: three products with a triangle, M² T each.
        "projection": M**2 * T,
        "projection gradient": 2 * M**2 * T,
        # A with q_mu, or with the draw of v: forward and two gradients, 2 K M T each.
        "mean": 3 * 2 * K * M * T,
        # q_sqrtᵀ A for all columns, forward and two gradients; or q_sqrt ε for each image, whose noise has no gradient.
        "q_sqrt": 2 * K * M**2 * B if row.sampling == "correlated" and not last else 3 * K * M**2 * T,
    }
    return kernel | algebra


def _parameters(row: Row, sizes: LayerSizes, *, last: bool) -> int:
    """Numbers that training moves: q_sqrt's triangles, q_mu, Z, and in the last layer places and patch weights."""
    M, K = row.M, sizes.outputs
    return K * M * (M + 1) // 2 + K * M + M * sizes.E + (2 * M + sizes.P if last else 0)
