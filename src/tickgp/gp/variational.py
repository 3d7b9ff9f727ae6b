"""Sparse variational inference: q(u), its KL divergence, and the posterior q(f) that it implies.

Everything is whitened: u = Lu v with Lu Luᵀ = Kuu, so that the prior of v is N(0, I) and q(v) = N(q_mu, q_sqrt q_sqrtᵀ)
stands for the paper's m = Lu q_mu and S = Lu q_sqrt q_sqrtᵀ Luᵀ. With a = Lu⁻¹ k_u(x), eq. qf becomes
    mean = aᵀ q_mu,    variance = k(x, x) − aᵀa + |q_sqrtᵀ a|².
"""

# Without `from __future__ import annotations`: equinox does not see an AbstractVar in a string.
from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from tickgp.gp.compiling import platform
from tickgp.gp.linalg import add_diagonal, cholesky_of_rounded, einsum, matmul, rounded_matmul, whiten
from tickgp.gp.multioutput import AbstractMultiOutput, Inducing
from tickgp.gp.params import Positive, Real, Triangular

Sampling = Literal["marginal", "full", "correlated"]


class AbstractVariational(eqx.Module):
    """q(v) of L latents, independent of each other.

    Paper: KL term
    """

    q_mu: eqx.AbstractVar[Real]

    @abstractmethod
    def spread(self, a: Float[Array, "J M T"]) -> Float[Array, "T L M"]:
        """aᵀ q_sqrt of every latent, J = 1 if all share a."""

    @abstractmethod
    def variance(self, a: Float[Array, "J M T"]) -> Float[Array, "T L"]:
        """That of aᵀv, of every latent: the squared length of `spread`."""

    @abstractmethod
    def draw(self, noise: Float[Array, "L N M"]) -> Float[Array, "L N M"]:
        """q_mu + q_sqrt noise: N samples of v, from standard normal noise."""

    @abstractmethod
    def kl(self) -> Float[Array, ""]:
        """KL[q(v) || N(0, I)] = KL[q(u) || p(u)], summed over latents."""


class FullRank(AbstractVariational):
    """q(v) = N(q_mu, q_sqrt q_sqrtᵀ) with a lower-triangular q_sqrt."""

    q_mu: Real
    q_sqrt: Triangular

    def spread(self, a: Float[Array, "J M T"]) -> Float[Array, "T L M"]:
        return _each_latent(rounded_matmul, a, self.q_sqrt.value)

    def variance(self, a: Float[Array, "J M T"]) -> Float[Array, "T L"]:
        L, (_, M, T) = self.q_sqrt.value, a.shape
        if T < M or platform() != "cpu":
            return jnp.sum(self.spread(a) ** 2, axis=-1)
        # In bands of columns, without the zeros above each: four of them leave out three eighths of the work, which a
        # GPU loses again by the narrower products.
        width = -(-M // min(max(M // 64, 1), 4))
        bands = (_each_latent(rounded_matmul, a[:, i:], L[:, i:, i : i + width]) for i in range(0, M, width))
        return sum((jnp.sum(band**2, axis=-1) for band in bands), start=jnp.zeros((), a.dtype))

    def draw(self, noise: Float[Array, "L N M"]) -> Float[Array, "L N M"]:
        return self.q_mu.value[:, None] + einsum("lmk,lnk->lnm", self.q_sqrt.value, noise)

    def kl(self) -> Float[Array, ""]:
        m, L = self.q_mu.value, self.q_sqrt.value
        ones_beside = jnp.where(jnp.eye(m.shape[1], dtype=bool), L, 1)  # whose logarithms add nothing
        return 0.5 * jnp.sum(m**2) + 0.5 * jnp.sum(L**2) - 0.5 * m.size - jnp.sum(jnp.log(jnp.abs(ones_beside)))


class MeanField(AbstractVariational):
    """q(v) = N(q_mu, diag(q_std²))."""

    q_mu: Real
    q_std: Positive

    def spread(self, a: Float[Array, "J M T"]) -> Float[Array, "T L M"]:
        return jnp.moveaxis(self.q_std.value[:, :, None] * a, -1, 0)

    def variance(self, a: Float[Array, "J M T"]) -> Float[Array, "T L"]:
        return _each_latent(matmul, a**2, self.q_std.value[:, :, None] ** 2)[..., 0]

    def draw(self, noise: Float[Array, "L N M"]) -> Float[Array, "L N M"]:
        return self.q_mu.value[:, None] + self.q_std.value[:, None] * noise

    def kl(self) -> Float[Array, ""]:
        m, s = self.q_mu.value, self.q_std.value
        return 0.5 * jnp.sum(m**2 + s**2 - 1) - jnp.sum(jnp.log(s))


class SparseGP(eqx.Module):
    """A vector-valued GP prior, its inducing variables, and q of them."""

    kernel: AbstractMultiOutput
    inducing: Inducing
    q: AbstractVariational

    def __check_init__(self) -> None:
        L, M = self.q.q_mu.value.shape
        kernels, sets, mixing = len(self.kernel.covariances), len(self.inducing), self.kernel.mixing
        if {kernels, sets} - {1, L}:
            raise ValueError(
                f"q has {L} latents, but there are {kernels} kernels and {sets} sets of inducing variables; "
                "give one for all latents, or one for each"
            )
        if mixing is not None and mixing.shape[1] != L:
            raise ValueError(f"q has {L} latents, but W mixes {mixing.shape[1]}; give W a column for each latent")
        if any(Z.num_inducing != M for Z in self.inducing):
            numbers = [Z.num_inducing for Z in self.inducing]
            raise ValueError(f"q has {M} inducing variables for each latent, but Z has {numbers}; make them equal")


class Marginals(eqx.Module):
    """q(f) at each input: f = W g + offset, with independent Gaussian latents g at every site.

    Outputs are numbered site by site: F = Q·O, output o of site q is q·O + o. Without `mixing` W = I.
    """

    latent_mean: Float[Array, "N Q L"]
    latent_variance: Float[Array, "N Q L"]
    mixing: Float[Array, "O L"] | None
    offset: Float[Array, "N F"] | float = 0.0

    @property
    def mean(self) -> Float[Array, "N F"]:
        return _mix(self.latent_mean, self.mixing) + self.offset

    @property
    def variance(self) -> Float[Array, "N F"]:
        return _mix(self.latent_variance, None if self.mixing is None else self.mixing**2)

    def sample(self, *, key: PRNGKeyArray, common: bool = False) -> Float[Array, "N F"]:
        """f, independent between sites; the outputs of one site are correlated as W says."""
        return self.at(_normal(key, self.latent_mean.shape, common))

    def at(self, noise: Float[Array, "#N Q L"]) -> Float[Array, "N F"]:
        """f where the latents deviate from their means by so many of their standard deviations."""
        return _mix(self.latent_mean + jnp.sqrt(self.latent_variance) * noise, self.mixing) + self.offset

    def softmax_curvature(self, p: Float[Array, "N F"]) -> Float[Array, "N Q L"]:
        """−∂² log p/∂g² of a softmax for every latent g: Var_{k∼p}[W_kg], or p(1 − p) without mixing."""
        p = p.reshape(*self.latent_mean.shape[:2], -1)
        if self.mixing is None:
            return p * (1 - p)
        mean = matmul(p, self.mixing)
        elsewhere = jnp.maximum(1 - jnp.sum(p, axis=-1, keepdims=True), 0)  # other sites have a weight of 0
        return jnp.sum(p[..., None] * (self.mixing - mean[..., None, :]) ** 2, axis=-2) + elsewhere * mean**2


class Joint(eqx.Module):
    """q(f) at each input with the covariance between its sites, latent by latent."""

    latent_mean: Float[Array, "N Q L"]
    latent_covariance: Float[Array, "L N Q Q"]
    mixing: Float[Array, "O L"] | None

    @property
    def mean(self) -> Float[Array, "N F"]:
        return _mix(self.latent_mean, self.mixing)

    @property
    def covariance(self) -> Float[Array, "N F F"]:
        """cov[f(x), f(x)] between all outputs of all sites: (Q·O)² numbers for each input."""
        L, N, Q, _ = self.latent_covariance.shape
        W = jnp.eye(L) if self.mixing is None else self.mixing
        return einsum("lnpq,ol,rl->npoqr", self.latent_covariance, W, W).reshape(N, Q * len(W), Q * len(W))


def inducing_covariance(gp: SparseGP, jitter: Float[Array, ""]) -> Float[Array, "J M M"]:
    """Kuu + jitter · mean(diag Kuu) · I, for each distinct latent; Lu is its Cholesky factor."""
    Kuu = gp.kernel.Kuu(gp.inducing)
    return add_diagonal(Kuu, jitter * _mean_diagonal(Kuu))


def _mean_diagonal(K: Float[Array, "J M M"]) -> Float[Array, " J"]:
    return jnp.trace(K, axis1=1, axis2=2) / K.shape[-1]


def marginals(gp: SparseGP, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Marginals:
    """q(f(x)) at each input and site.

    Paper: eq. qf
    """
    A, residual = _project(gp, x, jitter)
    through_u = gp.q.variance(_flat(A)).reshape(*A.shape[2:], -1)
    return Marginals(_mean(gp.q, A), jnp.moveaxis(residual, 0, -1) + through_u, gp.kernel.mixing)


def features(gp: SparseGP, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Float[Array, "N D"]:
    """a(x) = Lu⁻¹ k_u(x), of which q(f(x)) is made, averaged over sites; those of distinct latents in a row."""
    A, _ = _project(gp, x, jitter)
    return jnp.moveaxis(jnp.mean(A, axis=3), 2, 0).reshape(len(x), -1)


def joint(gp: SparseGP, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Joint:
    """q(f(x)) with the covariance between the sites of each input.

    Paper: eq. qf
    """
    A, _ = _project(gp, x, jitter)
    spread = gp.q.spread(_flat(A)).reshape(*A.shape[2:], -1, A.shape[1])
    explained = einsum("jmnp,jmnq->jnpq", A, A)
    covariance = gp.kernel.Kff_joint(x) - explained + einsum("nplm,nqlm->lnpq", spread, spread)
    return Joint(_mean(gp.q, A), covariance, gp.kernel.mixing)


def sample(
    gp: SparseGP,
    x: Float[Array, "N ..."],
    jitter: Float[Array, ""],
    how: Sampling,
    *,
    key: PRNGKeyArray,
    common: bool = False,
) -> Float[Array, "N F"]:
    """A draw of f(x) from q for each input, independent between inputs.

    marginal:   f_q ~ q(f_q) on its own. Ignores all correlation between sites.
    full:       f ~ q(f_1 … f_Q): v ~ q(v) once for each input and latent, then f = Aᵀv + R ε with RRᵀ = Kff − AᵀA,
                what u leaves unexplained. Latents that share a kernel share this Cholesky factor of a Q×Q matrix.
    correlated: as full, but with the diagonal of Kff − AᵀA alone. Its marginals are those of eq. qf, correlation
                through u is exact, that of the prior given u is left out. Linear in Q.

    With `common`, every input gets the same noise, so that a draw does not depend on the other inputs of the batch.
    Paper: sampling hidden layers
    """
    match how:
        case "marginal":
            return marginals(gp, x, jitter).sample(key=key, common=common)
        case "full" | "correlated":
            return _mix(_sample_through_u(gp, x, jitter, key, common, jointly=how == "full"), gp.kernel.mixing)
    raise ValueError(f"{how!r} was given as the way to sample; use marginal, full or correlated")


def _project(
    gp: SparseGP, x: Float[Array, "N ..."], jitter: Float[Array, ""]
) -> tuple[Float[Array, "J M N Q"], Float[Array, "J N Q"]]:
    """A = Lu⁻¹ Kuf, and the variance Kff − diag AᵀA that u leaves unexplained, for each distinct latent."""
    Kuu = inducing_covariance(gp, jitter)
    Kuf, Kff = gp.kernel.Kuf(gp.inducing, x), gp.kernel.Kff(x)
    A = whiten(Kuu, Kuf.reshape(*Kuf.shape[:2], -1)).reshape(Kuf.shape)
    # Positive but for rounding: the floor keeps the square root of it differentiable, even where Kff itself vanishes.
    eps = jnp.finfo(Kff.dtype).eps
    floor = jnp.maximum(jitter, eps) * jnp.maximum(Kff, eps * jnp.mean(_mean_diagonal(Kuu)))
    return A, jnp.maximum(Kff - jnp.sum(A**2, axis=1), floor)


def _mean(q: AbstractVariational, A: Float[Array, "J M N Q"]) -> Float[Array, "N Q L"]:
    """Aᵀ q_mu of every latent."""
    return _each_latent(matmul, _flat(A), q.q_mu.value[:, :, None]).reshape(*A.shape[2:], -1)


def _flat(A: Float[Array, "J M N Q"]) -> Float[Array, "J M T"]:
    """All sites of all inputs in a row."""
    return A.reshape(*A.shape[:2], -1)


def _each_latent(
    product: Callable[[Array, Array], Array], A: Float[Array, "J M T"], columns: Float[Array, "L M R"]
) -> Float[Array, "T L R"]:
    """A_lᵀ · columns_l. Where all share A it is one product, unless A is the smaller factor: then it is repeated."""
    L, M, R = columns.shape
    if len(A) == 1 and (A.shape[2] >= M or R == 1):
        return product(A[0].T, jnp.moveaxis(columns, 0, 1).reshape(M, L * R)).reshape(-1, L, R)
    return jnp.moveaxis(product(A.mT, columns), 0, 1)


def _times(K: Float[Array, "J N Q R"], v: Float[Array, "L N R"]) -> Float[Array, "L N Q"]:
    """K_l v_l of every latent and input; with J = 1 all latents share K."""
    return einsum("lnqr,lnr->lnq" if len(K) == len(v) else "jnqr,lnr->lnq", K, v)


def _sample_through_u(
    gp: SparseGP, x: Array, jitter: Array, key: PRNGKeyArray, common: bool, *, jointly: bool
) -> Float[Array, "N Q L"]:
    A, unexplained = _project(gp, x, jitter)
    key_u, key_f = jax.random.split(key)
    N, L = len(x), len(gp.q.q_mu.value)
    noise_u = jnp.moveaxis(_normal(key_u, (N, L, A.shape[1]), common), 1, 0)
    noise_f = jnp.moveaxis(_normal(key_f, (N, A.shape[3], L), common), 2, 0)
    through_u = _times(jnp.moveaxis(A, 1, -1), gp.q.draw(noise_u))
    if not jointly:
        return jnp.moveaxis(through_u + jnp.sqrt(unexplained) * noise_f, 0, -1)
    covariance = gp.kernel.Kff_joint(x) - einsum("jmnp,jmnq->jnpq", A, A)
    # Relative to the prior: where u says nearly all of f, rounding is far larger than what is left of its covariance.
    R = cholesky_of_rounded(covariance, jitter * jnp.mean(gp.kernel.Kff(x), axis=-1))
    return jnp.moveaxis(through_u + _times(R, noise_f), 0, -1)


def _normal(key: PRNGKeyArray, shape: tuple[int, ...], common: bool) -> Array:
    """Standard normal noise; with `common` the same for every entry of the first axis."""
    return jnp.broadcast_to(jax.random.normal(key, (1, *shape[1:])), shape) if common else jax.random.normal(key, shape)


def _mix(latents: Float[Array, "N Q L"], mixing: Float[Array, "O L"] | None) -> Float[Array, "N F"]:
    outputs = latents if mixing is None else einsum("nql,ol->nqo", latents, mixing)
    return outputs.reshape(len(latents), -1)
