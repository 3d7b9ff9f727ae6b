"""Natural gradients of the variational distribution."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul
from tickgp.gp.variational import FullRank


def natural_step(q: FullRank, gradient: FullRank, size: Float[Array, ""] | float) -> FullRank:
    """One step of natural-gradient ascent on q, given the gradient of the objective with respect to it.

    In the natural parameters S⁻¹m and −S⁻¹/2 the step is `size` times the gradient with respect to m and S + mmᵀ:
        S'⁻¹ = S⁻¹ − 2 size G,    S'⁻¹ m' = S⁻¹ m + size (∂m − 2 G m),    with G = ∂S.
    With a Gaussian likelihood a step of size 1 lands on the optimum. With another it may be too large: then S'⁻¹ is not
    positive definite and the result is NaN.
    """

    def one_latent(m: Array, L: Array, dm: Array, dL: Array) -> tuple[Array, Array]:
        identity = jnp.eye(len(m))
        S, precision = matmul(L, L.T), jax.scipy.linalg.cho_solve((L, True), identity)
        (dS,) = jax.vjp(jnp.linalg.cholesky, S)[1](jnp.tril(dL) * jnp.sign(jnp.diag(L)))
        factor = jnp.linalg.cholesky(precision - 2 * size * dS)
        new_m = jax.scipy.linalg.cho_solve((factor, True), matmul(precision, m) + size * (dm - 2 * matmul(dS, m)))
        return new_m, jnp.linalg.cholesky(jax.scipy.linalg.cho_solve((factor, True), identity))

    arrays = (q.q_mu.value, q.q_sqrt.value, gradient.q_mu.raw, gradient.q_sqrt.raw)
    return eqx.tree_at(lambda p: (p.q_mu.raw, p.q_sqrt.raw), q, jax.vmap(one_latent)(*arrays))
