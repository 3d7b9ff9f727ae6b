"""Natural gradients of the variational distribution."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul, over_unit_lower, rounded_matmul
from tickgp.gp.variational import FullRank


def natural_step(q: FullRank, gradient: FullRank, size: Float[Array, ""] | float) -> FullRank:
    """One step of natural-gradient ascent on q = N(m, S), given the gradient of the objective with respect to it.

    S'⁻¹ = S⁻¹ − 2 size ∂S,    m' = m + size S' ∂m.

    With S = LLᵀ the first is L⁻ᵀ(I + size A)L⁻¹, A = −2 Lᵀ ∂S L, and L' = LT⁻¹ for any factor T of I + size A = TᵀT.
    Instead of the exact factor we take the triangular T = (I + N)D, with D² the diagonal of I + size A and N the
    strictly lower part of size D⁻¹AD⁻¹. Then TᵀT = I + size A + DNᵀND: the error is of order size². The extra term
    makes S' too small while size A is large; later steps correct that, except for a bias of order `size` under
    minibatch noise. L' is triangular without a new factorisation (cf. the local parametrisations of W. Lin, F. Nielsen,
    M. E. Khan, M. Schmidt, ICML 2021). Where the expected log-likelihood has no positive derivative by a variance
    (`AbstractLikelihood.falls_with_variance`), A is at least −I, and the precision never falls below 1 − size of what
    it was. Against rounding, D is at least ½.
    """
    m, L = q.q_mu.value, q.q_sqrt.value
    step = -size * jnp.tril(rounded_matmul(L.mT, jnp.tril(gradient.q_sqrt.raw)))  # size A: ∂L is 2 ∂S L
    on_diagonal = jnp.diagonal(step, axis1=-2, axis2=-1)
    D = jnp.sqrt(jnp.maximum(1 + on_diagonal, 0.25))[..., None]
    N = jnp.tril(step / (D * D.mT), -1)
    new_L = jnp.tril(over_unit_lower(L / D.mT, N))
    S_dm = matmul(new_L, matmul(new_L.mT, gradient.q_mu.raw[..., None]))
    return eqx.tree_at(lambda p: (p.q_mu.raw, p.q_sqrt.raw), q, (m + size * S_dm[..., 0], new_L))
