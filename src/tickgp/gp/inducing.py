"""Inducing variables: what they stand on, and how to choose it from data."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from tickgp.gp.convolution import PatchResponse
from tickgp.gp.kernels import AbstractKernel
from tickgp.gp.params import Real
from tickgp.gp.patches import Located, PatchGrid

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

    how: `random` takes distinct patches, `kmeans` centres of clusters of patches, `greedy` one patch after the other
    where the variance given those before it is largest.
    places: `none` for a prior without location kernel; `true` where the patch was found (for `kmeans`, where the
    patch nearest to the centre was); `uniform` anywhere in [0, H] × [0, W], as in the paper. With places, a patch
    counts as distinct from the same patch at another place: the background is worth knowing place by place.
    Paper: inducing patches from training images
    """
    rng = _generator(key)
    patches, found = _choose(grid, images, num_inducing, response, how, places != "none", rng)
    if places == "none":
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
    return InducingPoints(
        Real(_choose(whole, rows, num_inducing, PatchResponse(kernel), how, False, _generator(key))[0])
    )


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _choose(
    grid: PatchGrid,
    images: np.ndarray,
    num_inducing: int,
    response: PatchResponse,
    how: Initialiser,
    by_place: bool,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    pool = num_inducing if how == "random" else max(10 * num_inducing, 10_000)
    patches, places = _distinct(grid, images, pool, by_place, rng)
    if len(patches) < num_inducing:
        kind = "pairs of patch and place" if by_place else "patches"
        raise ValueError(
            f"{num_inducing} inducing variables were asked for, but the {len(images)} images have only {len(patches)} "
            f"distinct {kind}; use at most {len(patches)}"
        )
    match how:
        case "random":
            return patches[:num_inducing], places[:num_inducing]
        case "kmeans":
            return _cluster(patches, places, num_inducing, rng)
        case "greedy":
            picked = _greedy(response, Located(jnp.asarray(patches), jnp.asarray(places)), num_inducing)
            return patches[picked], places[picked]


def _distinct(
    grid: PatchGrid, images: np.ndarray, num: int, by_place: bool, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """`num` distinct patches drawn at random and where they were found, or all there are if those are fewer."""
    P, total = grid.num_patches, len(images) * grid.num_patches
    size = min(4 * num, total)
    while True:
        image, patch = np.divmod(rng.choice(total, size, replace=False), P)
        patches, places = grid.windows(images, image, patch).astype(float), grid.corners(patch).astype(float)
        rows = np.concatenate([patches, places], axis=1) if by_place else patches
        first = np.sort(np.unique(rows, axis=0, return_index=True)[1])[:num]
        if len(first) == num or size == total:
            return patches[first], places[first]
        size = min(4 * size, total)


def _cluster(
    patches: np.ndarray, places: np.ndarray, num: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.cluster import KMeans  # a second to import, and needed here alone
    from sklearn.metrics import pairwise_distances_argmin

    centres = KMeans(num, n_init=1, random_state=int(rng.integers(2**31))).fit(patches).cluster_centers_
    return centres, places[pairwise_distances_argmin(centres, patches)]


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
