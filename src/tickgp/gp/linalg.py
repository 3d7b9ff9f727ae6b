"""Dense linear algebra in the full precision of its inputs.

On a GPU a float32 matrix product is rounded to TF32 (10 bits) unless it is asked not to be. Squared distances and
conditional variances are differences of nearly equal numbers and do not survive that.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def cholesky(K: Float[Array, "*stack M M"], jitter: Float[Array, "*_"]) -> Float[Array, "*stack M M"]:
    """The lower Cholesky factor of K + jitter · I; NaN where that is too close to singular."""
    return jnp.linalg.cholesky(K + jitter[..., None, None] * jnp.eye(K.shape[-1], dtype=K.dtype))


def solve_lower(L: Float[Array, "*stack M M"], B: Float[Array, "*stack M T"]) -> Float[Array, "*stack M T"]:
    """L⁻¹ B for a lower-triangular L."""
    return jax.scipy.linalg.solve_triangular(L, B, lower=True)
