"""Tiny GPs beside the covariances that `reference` computes for them, and what else several tests need.

A problem is one latent: its prior and inducing variables as the library has them, and Kuu (M,M), Kuf (M,T), Kff (T,T)
over the T = N·Q points that N inputs with Q sites make.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import reference

from tickgp.gp import variational
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional, PatchResponse
from tickgp.gp.covariances import AbstractCovariance, Pointwise
from tickgp.gp.inducing import AbstractInducing, InducingPatches, InducingPoints
from tickgp.gp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import AbstractLikelihood
from tickgp.gp.means import Zero
from tickgp.gp.models import DeepGP
from tickgp.gp.multioutput import Shared
from tickgp.gp.params import Positive, Real, Triangular
from tickgp.gp.patches import PatchGrid
from tickgp.gp.variational import FullRank, MeanField, SparseGP

H, W, PATCH, P, E, M = 3, 4, (2, 2), 6, 4, 5
GRID = PatchGrid((H, W, 1), PATCH)
PLACES = reference.places(H, W, *PATCH)
KERNELS = {
    "se": (SquaredExponential, reference.se),
    "matern12": (Matern12, reference.matern12),
    "matern32": (Matern32, reference.matern32),
    "matern52": (Matern52, reference.matern52),
}


def posterior(
    gp: SparseGP, x: jax.Array, jitter: float = 0.0
) -> tuple[variational.Marginals, variational.Joint, jax.Array]:
    """All of q(f), and the KL."""
    return _posterior(gp, x, jnp.asarray(jitter, float))


@eqx.filter_jit
def _posterior(gp: SparseGP, x: jax.Array, jitter: jax.Array) -> Any:
    return variational.marginals(gp, x, jitter), variational.joint(gp, x, jitter), gp.q.kl()


@dataclass
class Problem:
    prior: AbstractCovariance
    inducing: AbstractInducing
    Kuu: np.ndarray
    Kuf: np.ndarray
    Kff: np.ndarray


def images(N: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(N, H, W, 1))


def kernels(name: str, variance: float, lengthscale: Any) -> tuple[Any, Callable[..., float]]:
    """The same kernel twice: the library's and the reference's."""
    ours, theirs = KERNELS[name]
    return ours(variance, jnp.asarray(lengthscale, float)), theirs(variance, lengthscale)


def pointwise(x: np.ndarray, seed: int = 1, kernel: tuple[Any, ...] = ("se", 1.3, 4.0), Z: Any = None) -> Problem:
    rows = x.reshape(len(x), -1)
    Z = np.random.default_rng(seed).normal(size=(M, rows.shape[1])) if Z is None else Z
    ours, k = kernels(*kernel)
    matrices = (reference.gram(k, a, b) for a, b in ((Z, Z), (Z, rows), (rows, rows)))
    return Problem(Pointwise(ours), InducingPoints(Real(Z)), *matrices)


def convolutional(
    x: np.ndarray,
    seed: int = 1,
    *,
    summed: bool = True,
    kernel: tuple[Any, ...] = ("se", 1.7, 1.5),
    location: tuple[Any, ...] | None = ("matern32", 1.0, 2.0),
    Z: tuple[np.ndarray, np.ndarray | None] | None = None,
) -> Problem:
    """A TICK (`summed`, with patch weights) or a MOCK; without `location` the invariant one."""
    rng = np.random.default_rng(seed)
    patch, k_patch = kernels(*kernel)
    loc, k_loc = kernels(*location) if location else (None, None)
    weights, drawn = rng.normal(1.0, 0.5, P), (rng.normal(size=(M, E)), rng.uniform(0, [H, W], (M, 2)))
    patches, where = Z or (drawn[0], drawn[1] if location else None)
    k_g, x_patches = reference.patch_response(k_patch, k_loc), reference.patches(x, *PATCH)
    inducing = InducingPatches(Real(patches), None if where is None else Real(where))
    Kuu, response, T = reference.inducing_Kuu(k_g, patches, where), PatchResponse(patch, loc), len(x) * P
    if summed:
        Kuf = reference.summed_Kuf(k_g, patches, where, x_patches, PLACES, weights)
        Kff = reference.summed_Kff(k_g, x_patches, x_patches, PLACES, weights)
        return Problem(Convolutional(GRID, response, Real(weights)), inducing, Kuu, Kuf, Kff)
    Kuf = reference.mock_Kuf(k_g, patches, where, x_patches, PLACES).reshape(-1, T)
    Kff = reference.mock_Kff(k_g, x_patches, x_patches, PLACES).reshape(T, T)
    return Problem(MultiOutputConvolutional(GRID, response), inducing, Kuu, Kuf, Kff)


def mock(x: np.ndarray, seed: int = 1, **settings: Any) -> Problem:
    return convolutional(x, seed, summed=False, **settings)


def random_q(L: int, num_inducing: int = M, seed: int = 2, signs: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """q_mu (L,M) and lower-triangular q_sqrt (L,M,M); with `signs` some entries of its diagonal are negative."""
    rng = np.random.default_rng(seed)
    q_sqrt = np.tril(rng.normal(scale=0.3, size=(L, num_inducing, num_inducing)), -1)
    diagonal = rng.uniform(0.3, 1.2, (L, num_inducing))
    if signs:
        diagonal *= np.where(np.arange(num_inducing) % 2, 1, -1)
    return rng.normal(size=(L, num_inducing)), q_sqrt + diagonal[:, :, None] * np.eye(num_inducing)


def full_rank(q_mu: np.ndarray, q_sqrt: np.ndarray) -> FullRank:
    return FullRank(Real(q_mu), Triangular(q_sqrt))


def mean_field(q_mu: np.ndarray, q_sqrt: np.ndarray) -> MeanField:
    """Only the diagonals of q_sqrt."""
    return MeanField(Real(q_mu), Positive(np.diagonal(q_sqrt, axis1=1, axis2=2)))


def shared_gp(problem: Problem, q: variational.AbstractVariational) -> SparseGP:
    return SparseGP(Shared(problem.prior), (problem.inducing,), q)


def single_layer(problem: Problem, q: variational.AbstractVariational, likelihood: AbstractLikelihood) -> DeepGP:
    """A model of one layer, with all sites of all latents as outputs."""
    F = likelihood.num_outputs
    return DeepGP((Layer(shared_gp(problem, q), Zero(F), (F,)),), likelihood, jitter=1e-12)


def whiten(Kuu: np.ndarray, m: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q_mu = Lu⁻¹ m and q_sqrt = chol(Lu⁻¹ S Lu⁻ᵀ): the inverse of `reference.unwhiten`."""
    inverse = np.linalg.inv(np.linalg.cholesky(Kuu))
    return inverse @ m, np.linalg.cholesky(inverse @ S @ inverse.T)


def optimum(
    problem: Problem, y: np.ndarray, noise: float, points: slice = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """q_mu (L,M) and q_sqrt (L,M,M) of the best q for targets y (T,L) at some of the points, one column per latent."""
    best = [reference.optimal_q(problem.Kuu, problem.Kuf[:, points], noise, column) for column in y.T]
    q_mu, q_sqrt = zip(*(whiten(problem.Kuu, *q) for q in best), strict=True)
    return np.stack(q_mu), np.stack(q_sqrt)


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr, those of functions called in it as well."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
            if hasattr(inner, "eqns"):
                yield from equations(getattr(inner, "jaxpr", inner))


def traced(function: Callable[..., Any], *arguments: Any) -> list[tuple[str, tuple[int, ...]]]:
    """(operation, shape of its result) of everything `function` computes on the way."""
    arrays, static = eqx.partition(arguments, eqx.is_array)
    call = lambda arrays: eqx.filter(function(*eqx.combine(arrays, static)), eqx.is_array)
    closed = jax.make_jaxpr(call)(arrays)
    return [(e.primitive.name, v.aval.shape) for e in equations(closed.jaxpr) for v in e.outvars]
