"""Natural gradients of the variational distribution."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul
from tickgp.gp.variational import FullRank


def natural_step(q: FullRank, gradient: FullRank, size: Float[Array, ""] | float) -> FullRank:
    """One step of natural-gradient ascent on q = N(m, S), given the gradient of the objective with respect to it.

    S'⁻¹ = S⁻¹ − 2 size ∂S,    m' = m + size S' ∂m:    with a Gaussian likelihood a step of size 1 lands on the optimum.

    With S = LLᵀ this is S'⁻¹ = L⁻ᵀ B L⁻¹, B = I + size A, A = −2 Lᵀ ∂S L. If the likelihood is log-concave, the true A
    is at least −I, and B at least 1 − size; an estimate from a minibatch may be less. Where B is below half of that,
    B = I + size A + (size A)²/2 is taken instead: the same to first order and at least ½ whatever A is, so that no
    step, however noisy, makes S' indefinite (W. Lin, M. Schmidt, M. E. Khan, ICML 2020).
    """

    def one_latent(m: Array, L: Array, dm: Array, dL: Array) -> tuple[Array, Array]:
        lower = jnp.tril(matmul(L.T, jnp.tril(dL)))
        step = -size * (lower + jnp.tril(lower, -1).T)
        identity = jnp.eye(len(m))
        least = jnp.maximum(1 - size, 0) / 2
        sound = jnp.all(jnp.isfinite(jnp.linalg.cholesky((1 - least) * identity + step)))
        B = identity + step + jnp.where(sound, 0, matmul(step, step) / 2)
        root = _upper_cholesky(B)
        new_L = jax.scipy.linalg.solve_triangular(root, L.T, lower=False).T
        return m + size * matmul(new_L, matmul(new_L.T, dm)), new_L

    arrays = (q.q_mu.value, q.q_sqrt.value, gradient.q_mu.raw, gradient.q_sqrt.raw)
    return eqx.tree_at(lambda p: (p.q_mu.raw, p.q_sqrt.raw), q, jax.vmap(one_latent)(*arrays))


def _upper_cholesky(B: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The upper-triangular U with B = U Uᵀ."""
    return jnp.linalg.cholesky(B[::-1, ::-1])[::-1, ::-1]
