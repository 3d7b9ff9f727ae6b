"""Sums over patches, Σ_p C_mp k(z_m, x_n[p]) and Σ_pq C_pq k(x_n[p], x_n[q]), without storing the values of k.

Written out, the values of k are N·P·M and N·P·P numbers, far more than goes in or comes out. Here they are summed up as
they are computed, a bounded number at a time, and the backward pass computes them again. For a stationary kernel
k = c(d), with d the squared distance times a scale, the derivatives are matrix products:
with T = (cotangent) · C · c'(d),
    ∂z_m = 2 scale Σ_np T_mnp (z_m − x_n[p]),   ∂x_n[p] = 2 scale Σ_m T_mnp (x_n[p] − z_m),
    ∂C_mp = Σ_n (cotangent) c(d_mnp),   ∂scale = Σ_mnp T_mnp |z_m − x_n[p]|².
Values and gradients are those of the plain sums. There are two implementations, chosen by the device and the patches:
`patch_sums_groups`, a few images at a time, and `patch_sums_gpu`, fused kernels.
"""

from __future__ import annotations

import functools
from types import ModuleType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp import patch_sums_groups
from tickgp.gp.compiling import platform
from tickgp.gp.kernels import Correlation


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def cross_sums(
    c: Correlation, scale: Float[Array, ""], C: Float[Array, "M P"], z: Float[Array, "M E"], x: Float[Array, "N P E"]
) -> Float[Array, "M N"]:
    """S_mn = Σ_p C_mp c(scale · |z_m − x_n[p]|²)."""
    return _implementation(x).cross_sums(c, scale, C, z, x)


def _cross_forward(c: Correlation, *arrays: Array) -> tuple[Array, tuple[Array, ...]]:
    return cross_sums(c, *arrays), arrays


def _cross_backward(c: Correlation, arrays: tuple[Array, ...], cotangent: Float[Array, "M N"]) -> tuple[Array, ...]:
    return _written_out(_implementation(arrays[-1]).cross_sums_gradient(c, *arrays, cotangent))


cross_sums.defvjp(_cross_forward, _cross_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def self_sums(
    c: Correlation, scale: Float[Array, ""], C: Float[Array, "P P"], x: Float[Array, "N P E"]
) -> Float[Array, " N"]:
    """S_n = Σ_pq C_pq c(scale · |x_n[p] − x_n[q]|²), for a symmetric C."""
    return _implementation(x).self_sums(c, scale, C, x)


def _self_forward(c: Correlation, *arrays: Array) -> tuple[Array, tuple[Array, ...]]:
    return self_sums(c, *arrays), arrays


def _self_backward(c: Correlation, arrays: tuple[Array, ...], cotangent: Float[Array, " N"]) -> tuple[Array, ...]:
    return _written_out(_implementation(arrays[-1]).self_sums_gradient(c, *arrays, cotangent))


self_sums.defvjp(_self_forward, _self_backward)


def _written_out(gradients: tuple[Array, ...]) -> tuple[Array, ...]:
    """The same, with ∂x, the last, worked out once: not anew for every pixel of an image whose gradient it is in."""
    return *gradients[:-1], jax.lax.optimization_barrier(gradients[-1])


def _implementation(x: Float[Array, "N P E"]) -> ModuleType:
    if platform() == "gpu" and x.dtype == jnp.float32 and x.shape[-1] <= _longest():
        from tickgp.gp import patch_sums_gpu  # not every platform has what it imports

        return patch_sums_gpu
    return patch_sums_groups


def _longest() -> int:
    """Pixels of a patch for which the fused kernels fit into the memory that a block shares: about 2 kB for each."""
    roomy = ("8.0", "9.0", "10.0")  # compute capabilities with 160 kB or more; others have about 100
    return 62 if getattr(jax.devices()[0], "compute_capability", None) in roomy else 30
