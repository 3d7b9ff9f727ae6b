"""Dense linear algebra, in the full precision of its inputs unless said otherwise.

On a GPU a float32 matrix product is rounded to TF32 (10 bits) unless it is asked not to be. Squared distances and
conditional variances are differences of nearly equal numbers and do not survive that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.lax.linalg import triangular_solve
from jaxtyping import Array, Bool, Float

from tickgp.gp.compiling import platform

matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
rounded_matmul = jnp.matmul
"""TF32 on a GPU, several times as fast there: for sums of squares, gradients and steps, where an error of 1e-3 is far
below what a minibatch makes. `jax_default_matmul_precision` sets it."""

_BLOCK = 32


def add_diagonal(K: Float[Array, "*stack M M"], jitter: Float[Array, "*_"]) -> Float[Array, "*stack M M"]:
    """K + jitter · I, which has a Cholesky factor where K is too close to singular for one."""
    return K + jitter[..., None, None] * jnp.eye(K.shape[-1], dtype=K.dtype)


@jax.custom_jvp
def cholesky_of_rounded(K: Float[Array, "*stack M M"], jitter: Float[Array, "*_"]) -> Float[Array, "*stack M M"]:
    """The Cholesky factor L of K + c · jitter · I, for each matrix with the least c of 1, 10 and 100 that has one.

    For covariances that are differences, and by rounding not quite positive; NaN where even 100 is too little. The
    derivative is that of the chosen c: dL = L Φ(L⁻¹ dK L⁻ᵀ), Φ as in `whiten`.
    """
    return _grown_cholesky(K, jitter)[0]


@cholesky_of_rounded.defjvp
def _cholesky_derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (L, c), (dK, djitter) = _grown_cholesky(*primals), tangents
    dK = add_diagonal((dK + dK.mT) / 2, c * djitter)
    inner = _solve_lower(L, _solve_lower(L, dK).mT)
    return L, matmul(L, _lower_half(inner))


def _grown_cholesky(K: Array, jitter: Array) -> tuple[Float[Array, "*stack M M"], Float[Array, "*stack"]]:
    """L and c. All matrices are tried again as long as one of them needs more."""

    def attempt(c: Float[Array, "*stack"]) -> tuple[Array, Array]:
        return _cholesky(add_diagonal(K, c * jitter)), c

    def fails(L: Array, c: Array) -> Bool[Array, "*stack"]:
        return ~jnp.all(jnp.isfinite(L), axis=(-2, -1)) & (c < 100)

    return jax.lax.while_loop(
        lambda tried: jnp.any(fails(*tried)),
        lambda tried: attempt(jnp.where(fails(*tried), 10 * tried[1], tried[1])),
        attempt(jnp.ones(K.shape[:-2], K.dtype)),
    )


@jax.custom_vjp
def whiten(K: Float[Array, "*stack M M"], B: Float[Array, "*stack M T"]) -> Float[Array, "*stack M T"]:
    """A = L⁻¹B with L Lᵀ = K; NaN where K is too close to singular.

    L⁻¹ is computed once, and all else is matrix products, which a GPU does far faster than triangular solves. So is the
    gradient. From B = LA: ∂B = L⁻ᵀ ∂A and ∂L = −∂B Aᵀ. That of the Cholesky factorisation, with Φ the lower triangle
    with half the diagonal, is ∂K = sym(L⁻ᵀ Φ(Lᵀ ∂L) L⁻¹) (I. Murray, 2016), and here Lᵀ ∂L = −∂A Aᵀ:
        ∂K = −sym(L⁻ᵀ Φ(∂A Aᵀ) L⁻¹).
    """
    return _whiten(K, B)[0]


def _whiten(K: Array, B: Array) -> tuple[Array, tuple[Array, Array]]:
    inverse = inverse_lower(_cholesky(K))
    A = matmul(inverse, B)
    return A, (inverse, A)


def _whiten_gradient(saved: tuple[Array, Array], dA: Float[Array, "*stack M T"]) -> tuple[Array, Array]:
    inverse, A = saved
    outer = rounded_matmul(dA, A.mT)
    dK = rounded_matmul(inverse.mT, rounded_matmul(_lower_half(outer), inverse))
    return -(dK + dK.mT) / 2, rounded_matmul(inverse.mT, dA)


whiten.defvjp(_whiten, _whiten_gradient)


def _lower_half(K: Float[Array, "*stack M M"]) -> Float[Array, "*stack M M"]:
    """Φ: the lower triangle with half the diagonal."""
    return jnp.tril(K) - K * jnp.eye(K.shape[-1], dtype=K.dtype) / 2


def inverse_lower(L: Float[Array, "*stack M M"]) -> Float[Array, "*stack M M"]:
    """L⁻¹ of a lower-triangular L.

    On a CPU by substitution. Elsewhere small blocks on the diagonal are inverted, all at once, then joined two by two:
    the inverse of [[A, 0], [B, D]] is [[A⁻¹, 0], [−D⁻¹BA⁻¹, D⁻¹]].
    """
    M = L.shape[-1]
    if platform() == "cpu":
        return _solve_lower(L, jnp.broadcast_to(jnp.eye(M, dtype=L.dtype), L.shape))
    return _inverse_by_blocks(L)


def over_unit_lower(B: Float[Array, "*stack N M"], N: Float[Array, "*stack M M"]) -> Float[Array, "*stack N M"]:
    """B(I + N)⁻¹ with N below the diagonal.

    On a CPU by substitution. Elsewhere B − B(I − (I + N)⁻¹), all of whose products are rounded: what is rounded is the
    difference from B, which is small with N.
    """
    eye = jnp.eye(N.shape[-1], dtype=N.dtype)
    if platform() == "cpu":
        return _each(functools.partial(triangular_solve, left_side=False, lower=True), eye + N, B)
    return B - rounded_matmul(B, eye - _inverse_by_blocks(eye + N, rounded_matmul))


def _inverse_by_blocks(
    L: Float[Array, "*stack M M"], product: Callable[[Array, Array], Array] = matmul
) -> Float[Array, "*stack M M"]:
    M, size = L.shape[-1], _BLOCK
    while size < M:
        size *= 2
    stack = L.shape[:-2]
    outside = jnp.diag(jnp.where(jnp.arange(size) < M, 0, 1).astype(L.dtype))
    L = outside + jnp.pad(L, [(0, 0)] * len(stack) + [(0, size - M)] * 2)

    def blocks(side: int, row: int, step: int) -> Float[Array, "*stack number side side"]:
        """Blocks of L below the diagonal by `row` of them, every `step`-th."""
        number = size // side
        cut = L.reshape(*stack, number, side, number, side)
        taken = [cut[..., i + row, :, i, :] for i in range(0, number - row, step)]
        return jnp.stack(taken, axis=-3)

    diagonal = blocks(_BLOCK, 0, 1)
    inverse = _solve_lower(diagonal, jnp.broadcast_to(jnp.eye(_BLOCK, dtype=L.dtype), diagonal.shape))
    side = _BLOCK
    while side < size:
        A, D = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        below = -product(D, product(blocks(side, 1, 2), A))
        inverse = jnp.block([[A, jnp.zeros_like(A)], [below, D]])
        side *= 2
    return inverse[..., 0, :M, :M]


def _solve_lower(L: Float[Array, "*stack M M"], B: Float[Array, "*stack M T"]) -> Float[Array, "*stack M T"]:
    return _each(functools.partial(triangular_solve, left_side=True, lower=True), L, B)


def _cholesky(K: Float[Array, "*stack M M"]) -> Float[Array, "*stack M M"]:
    return _each(jnp.linalg.cholesky, K)


def _each(call: Callable[..., Array], *stacks: Float[Array, "*stack _ _"]) -> Float[Array, "*stack _ _"]:
    """`call` on each matrix of some stacks: on a CPU one after the other.

    There LAPACK's calls on stacks (jaxlib 0.10) hand parts to the threads that XLA computes with, and wait for these.
    Two such calls at once, on a machine of two cores, wait for each other for ever.
    """
    shape = stacks[0].shape[:-2]
    if platform() != "cpu" or math.prod(shape) == 1:
        return call(*stacks)
    flat = [stack.reshape(math.prod(shape), *stack.shape[-2:]) for stack in stacks]
    results = jax.lax.map(lambda matrices: call(*matrices), tuple(flat))
    return results.reshape(*shape, *results.shape[-2:])
