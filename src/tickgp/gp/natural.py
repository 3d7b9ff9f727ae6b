"""Natural gradients of the variational distribution."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul, over_lower, rounded_matmul
from tickgp.gp.variational import FullRank


def natural_step(q: FullRank, gradient: FullRank, size: Float[Array, ""] | float) -> FullRank:
    """One step of natural-gradient ascent on q = N(m, S), given the gradient of the objective with respect to it.

    S'⁻¹ = S⁻¹ − 2 size ∂S + O(size²),    m' = m + size S' ∂m.

    With S = LLᵀ the first is L⁻ᵀ(I + size A)L⁻¹, A = −2 Lᵀ ∂S L. Here TᵀT stands for I + size A, with
    T = I + size Φ(A) and Φ the lower triangle with half the diagonal, because Φ + Φᵀ = A. Then L' = LT⁻¹ is triangular
    without a new factorisation, and S' is positive definite however wrong a gradient from a minibatch is (cf. the local
    parametrisations of W. Lin, F. Nielsen, M. E. Khan, M. Schmidt, ICML 2021). With a log-concave likelihood A is at
    least −I, so that the precision never falls below 1 − size of what it was.
    """
    m, L = q.q_mu.value, q.q_sqrt.value
    identity = jnp.eye(L.shape[-1], dtype=L.dtype)
    lower = rounded_matmul(L.mT, jnp.tril(gradient.q_sqrt.raw))  # the gradient of L is 2 ∂S L
    T = identity - size * (jnp.tril(lower) - lower * identity / 2)
    T = jnp.where(identity > 0, jnp.maximum(T, 0.5), T)
    new_L = jnp.tril(over_lower(L, T))
    weights = matmul(new_L.mT, gradient.q_mu.raw[..., None])
    new_m = m + size * matmul(new_L, weights)[..., 0]
    return eqx.tree_at(lambda p: (p.q_mu.raw, p.q_sqrt.raw), q, (new_m, new_L))
