"""Inducing variables: what they stand on, and how to choose it from data."""

# Without `from __future__ import annotations`: equinox does not see an AbstractVar in a string.
from abc import abstractmethod
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from threadpoolctl import threadpool_limits

from tickgp.gp.convolution import PatchResponse
from tickgp.gp.images import to_pixels
from tickgp.gp.kernels import AbstractKernel
from tickgp.gp.params import Real
from tickgp.gp.patches import Located, PatchGrid, SizeError

Initialiser = Literal["random", "kmeans", "greedy"]
Places = Literal["none", "uniform", "true"]


class AbstractInducing(eqx.Module):
    """M inducing variables."""

    Z: eqx.AbstractVar[Real]

    @property
    @abstractmethod
    def value(self) -> Any:
        """What a covariance takes as Z."""

    @property
    def num_inducing(self) -> int:
        """M."""
        return len(self.Z.value)


class InducingPoints(AbstractInducing):
    """u = f(Z) at M points of the input space."""

    Z: Real

    @property
    def value(self) -> Float[Array, "M D"]:
        return self.Z.value


class InducingPatches(AbstractInducing):
    """u = g(Z, places): responses to M patches, with the places they stand at if the prior has a location kernel.

    Paper: K_uu, k_u of inducing patches
    """

    Z: Real
    places: Real | None = None

    @property
    def value(self) -> Located:
        return Located(self.Z.value, None if self.places is None else self.places.value)


def choose_patches(
    grid: PatchGrid,
    images: np.ndarray,
    num_inducing: int,
    response: PatchResponse,
    *,
    how: Initialiser = "random",
    places: Places = "none",
    key: PRNGKeyArray,
) -> InducingPatches:
    """M inducing patches from images (N, H, W, C).

    how: `random` takes distinct patches, `kmeans` centres of clusters, `greedy` one patch after the other where the
    variance given those before it is largest.
    places: `none` for a prior without location kernel; `true` where the patch was found; `uniform` anywhere in
    [0, H] × [0, W], as in the paper. With places, a patch counts as distinct from the same patch at another place (the
    background is worth knowing place by place), and clusters are of both together.
    Paper: inducing patches from training images
    """
    if places not in get_args(Places):
        raise ValueError(f"places {places!r} are not known; choose one of: {', '.join(get_args(Places))}")
    rng, located = _generator(key), places != "none"
    kind = "pairs of patch and place" if located else "patches"
    patches, found = _choose(grid, images, num_inducing, response, how, located, kind, rng)
    if not located:
        return InducingPatches(Real(patches))
    if places == "uniform":
        found = rng.uniform(0.0, grid.image_shape[:2], (num_inducing, 2))
    return InducingPatches(Real(patches), Real(found))


def choose_points(
    x: np.ndarray, num_inducing: int, kernel: AbstractKernel, *, how: Initialiser = "random", key: PRNGKeyArray
) -> InducingPoints:
    """M inducing points from inputs (N, …), which are taken as vectors; `how` as for patches."""
    rows = np.asarray(x).reshape(len(x), 1, -1, 1)
    whole = PatchGrid(rows.shape[1:], rows.shape[1:3])
    points, _ = _choose(whole, rows, num_inducing, PatchResponse(kernel), how, False, "inputs", _generator(key))
    return InducingPoints(Real(points))


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _choose(
    grid: PatchGrid,
    images: np.ndarray,
    num_inducing: int,
    response: PatchResponse,
    how: Initialiser,
    located: bool,
    kind: str,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    if num_inducing < 1:
        raise ValueError(f"{num_inducing} inducing variables were asked for; use at least 1")
    pool = num_inducing if how == "random" else max(10 * num_inducing, 10_000)
    patches, places = _distinct(grid, images, num_inducing, pool, located, rng)
    if len(patches) < num_inducing:
        raise SizeError(
            f"{num_inducing} inducing variables were asked for, but the {len(images)} images have only {len(patches)} "
            f"distinct {kind}; use at most {len(patches)} (num-inducing)"
        )
    match how:
        case "random":
            return patches[:num_inducing], places[:num_inducing]
        case "kmeans":
            return _cluster(patches, places if located else 0 * places, num_inducing, rng)
        case "greedy":
            picked = _greedy(response, Located(jnp.asarray(patches), jnp.asarray(places)), num_inducing)
            return patches[picked], places[picked]
        case _:
            raise ValueError(f"initialiser {how!r} is not known; choose one of: {', '.join(get_args(Initialiser))}")


def _distinct(
    grid: PatchGrid, images: np.ndarray, least: int, wished: int, located: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct patches drawn at random and where they were found, at most `wished`.

    Those among 4 · `wished` drawn; more are drawn only while these are fewer than `least`, until all were looked at.
    """
    P, total, dtype = grid.num_patches, len(images) * grid.num_patches, jnp.zeros(()).dtype
    size = min(4 * wished, total)
    while True:
        image, patch = np.divmod(rng.choice(total, size, replace=False), P)
        patches = np.asarray(to_pixels(jnp.asarray(grid.windows(images, image, patch))))
        places = grid.corners(patch).astype(dtype)
        rows = np.concatenate([patches, places], axis=1) if located else patches
        first = np.sort(np.unique(rows, axis=0, return_index=True)[1])[:wished]
        if len(first) >= least or size == total:
            return patches[first], places[first]
        size = min(4 * size, total)


def _cluster(
    patches: np.ndarray, places: np.ndarray, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Centres of clusters of patches and places together, places weighted to have the spread of patches."""
    from sklearn.cluster import KMeans  # a second to import, and needed here alone

    spread = lambda rows: np.sqrt(rows.var(axis=0).sum()) or 1.0
    weight = spread(patches) / spread(places)
    rows = np.concatenate([patches, weight * places], axis=1)
    with threadpool_limits(1, user_api="blas"):  # thousands of small products, whose threads would wait for each other
        centres = KMeans(num, n_init=1, random_state=int(rng.integers(2**31))).fit(rows).cluster_centers_
    return centres[:, :-2], centres[:, -2:] / weight


def _greedy(response: PatchResponse, pool: Located, num: int) -> np.ndarray:
    """Greedy conditional variance: a pivoted Cholesky factorisation of k_g over the pool that stops after `num`."""
    row = jax.jit(lambda i: response(jax.tree.map(lambda a: a[i][None], pool), pool)[0])
    variance = np.array(response.diag(pool), float)
    least = np.finfo(np.float32).eps * variance.max()
    factor, picked = np.zeros((num, len(variance))), np.zeros(num, int)
    for i in range(num):
        picked[i] = pivot = int(variance.argmax())
        rest = np.asarray(row(pivot), float) - factor[:i, pivot] @ factor[:i]
        factor[i] = rest / np.sqrt(max(variance[pivot], least))
        variance -= factor[i] ** 2
        variance[picked[: i + 1]] = -np.inf
    return picked
