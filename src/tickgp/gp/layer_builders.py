"""Layers ready to train, from the images that they are to see."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal, SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional, PatchResponse
from tickgp.gp.covariances import Pointwise
from tickgp.gp.images import to_pixels
from tickgp.gp.inducing import Initialiser, Places, choose_patches, choose_points
from tickgp.gp.kernels import AbstractKernel, SquaredExponential
from tickgp.gp.layers import Layer
from tickgp.gp.means import AbstractMean, IdentityConv, Zero
from tickgp.gp.multioutput import Shared
from tickgp.gp.params import Normal, Positive, Real, Triangular
from tickgp.gp.patches import PatchGrid
from tickgp.gp.variational import AbstractVariational, FullRank, MeanField, SparseGP

_FEW = 500
"""How many images are looked at where a sample will do."""
_PATCHES = 16
"""Patches along the shorter side of an image that a laptop can work through."""
_MOST_PATCHES = 2**14
"""Patches of an image that a last layer can have: it sums over all pairs of them, an array of 1 GiB for each image."""

Size = SupportsIndex | tuple[SupportsIndex, SupportsIndex]
"""A whole number, or the height and the width; those of numpy too."""
Lengthscale = float | Float[np.ndarray, " D"] | Literal["median"]
"""A number, or one for each dimension, or half the median distance between the patches, or vectors, of a layer."""
KernelFamily = Callable[[float, Any], AbstractKernel]
"""Makes a kernel from a variance and a lengthscale: `SquaredExponential`, `Matern52`, or a function of one's own."""
LocationFamily = Callable[[int], AbstractKernel]
"""Makes a kernel on places from the shorter side, in pixels, of the images that they are in."""


def image_layer(
    images: np.ndarray,
    channels: int,
    *,
    patch_size: Size = 5,
    stride: Size | None = 1,
    num_inducing: int = 384,
    kernel: KernelFamily = SquaredExponential,
    variance: float = 0.1,
    lengthscale: Lengthscale = 2.0,
    q_mu: float = 0.01,
    initialiser: Initialiser = "random",
    mean_field: bool = False,
    key: PRNGKeyArray,
) -> Layer:
    """A hidden layer from images to images: an independent MOCK for each output channel, around the identity.

    stride: step from one patch to the next; None takes the least that leaves at most 16 along the shorter side (for
    patches of 5 pixels 1 up to 20 pixels, 2 up to 36, and so on), but no more than the size of a patch.
    kernel: between patches, with variance and lengthscale at the start. These decide how much noise the layer begins
    with, where patches are far from all inducing ones: with much of it the layer above sees nothing else, and learns
    nothing (docs/experiments.md).
    q_mu: standard deviation of the noise in q's mean that tells the channels apart at the start; the paper's 0 leaves
    them alike. mean_field: a diagonal q instead of a full one.
    Paper: hidden layer set-up
    """
    if channels < 1:
        raise ValueError(f"{channels} channels were asked for; a hidden layer needs at least 1")
    grid = _grid(images, patch_size, stride)
    key_inducing, key_q = jax.random.split(key)
    response = PatchResponse(kernel(variance, _number(lengthscale, images, grid)))
    inducing = choose_patches(grid, images, num_inducing, response, how=initialiser, key=key_inducing)
    q = _initial_q(channels, num_inducing, 1e-3, mean_field)
    noise = q_mu * jax.random.normal(key_q, (channels, num_inducing))
    q = eqx.tree_at(lambda q: q.q_mu, q, Real(noise))
    gp = SparseGP(Shared(MultiOutputConvolutional(grid, response)), (inducing,), q)
    return Layer(gp, IdentityConv(grid, channels), (grid.rows, grid.columns, channels))


def class_layer(
    images: np.ndarray,
    num_outputs: int,
    *,
    patch_size: Size = 5,
    stride: Size | None = 1,
    num_inducing: int = 384,
    location: AbstractKernel | LocationFamily | None = None,
    weights: bool = True,
    weight_prior: Normal | None = None,
    kernel: KernelFamily = SquaredExponential,
    variance: float = 5.0,
    lengthscale: Lengthscale = 1.0,
    initialiser: Initialiser = "random",
    places: Places = "true",
    mean_field: bool = False,
    key: PRNGKeyArray,
) -> Layer:
    """A last layer from images to class scores: for each class an independent weighted sum over patch responses.

    location: the kernel on the places of patches, or a function that makes it, for a TICK-GP; places: how those of the
    inducing patches start (see `choose_patches`). weights: learn one for each patch, from 1 on; weight_prior: their
    prior, such as Normal(1, 1), which keeps them from fitting few images too closely. The rest as for `image_layer`.
    Paper: last layer set-up
    """
    grid = _grid(images, patch_size, stride)
    if grid.num_patches > _MOST_PATCHES:
        raise ValueError(
            f"images of {images.shape[1]}x{images.shape[2]} have {grid.num_patches:,} patches, and a last layer, which "
            f"sums over all pairs of them, can have {_MOST_PATCHES:,}; use smaller images (image-size), or larger "
            "patches (patch-size) further apart (stride)"
        )
    location = _location(location, min(images.shape[1:3]))
    response = PatchResponse(kernel(variance, _number(lengthscale, images, grid)), location)
    where: Places = "none" if location is None else places
    inducing = choose_patches(grid, images, num_inducing, response, how=initialiser, places=where, key=key)
    w = Real(jnp.ones(grid.num_patches), prior=weight_prior) if weights else None
    covariance = Convolutional(grid, response, w)
    q = _initial_q(num_outputs, num_inducing, 1.0, mean_field)
    return Layer(SparseGP(Shared(covariance), (inducing,), q), Zero(num_outputs), (num_outputs,))


def point_layer(
    x: np.ndarray,
    mean: AbstractMean,
    num_outputs: int,
    *,
    num_inducing: int = 384,
    kernel: KernelFamily = SquaredExponential,
    variance: float = 1.0,
    lengthscale: Lengthscale = "median",
    q_std: float = 1.0,
    initialiser: Initialiser = "random",
    mean_field: bool = False,
    key: PRNGKeyArray,
) -> Layer:
    """A layer on whole images or vectors: an independent GP for each output, around `mean`.

    q_std: standard deviation of q at the start. The rest as for `image_layer`.
    """
    covariance = kernel(variance, _number(lengthscale, x))
    inducing = choose_points(x, num_inducing, covariance, how=initialiser, key=key)
    q = _initial_q(num_outputs, num_inducing, q_std, mean_field)
    return Layer(SparseGP(Shared(Pointwise(covariance)), (inducing,), q), mean, (num_outputs,))


def _grid(images: np.ndarray, patch_size: Size, stride: Size | None) -> PatchGrid:
    patch = _pair(patch_size)
    if stride is None:
        places = min(side - length + 1 for side, length in zip(images.shape[1:3], patch, strict=True))
        stride = min(max(math.ceil(places / _PATCHES), 1), *patch)
    return PatchGrid(images.shape[1:], patch, _pair(stride))


def _location(location: AbstractKernel | LocationFamily | None, side: int) -> AbstractKernel | None:
    if location is None or isinstance(location, AbstractKernel):
        return location
    made = None if isinstance(location, type) or not callable(location) else location(side)
    if not isinstance(made, AbstractKernel):
        raise ValueError(
            f"{location!r} was given as the location kernel; use a kernel, such as Matern32(lengthscale=3.0), or a "
            "function that makes one from the shorter side of the image in pixels"
        )
    return made


def _initial_q(num_latents: int, num_inducing: int, scale: float, mean_field: bool) -> AbstractVariational:
    """q(v) = N(0, scale² I) for each latent."""
    q_mu = Real(jnp.zeros((num_latents, num_inducing)))
    if mean_field:
        return MeanField(q_mu, Positive(jnp.full((num_latents, num_inducing), scale)))
    return FullRank(q_mu, Triangular(jnp.tile(scale * jnp.eye(num_inducing), (num_latents, 1, 1))))


def _number(lengthscale: Lengthscale, x: np.ndarray, grid: PatchGrid | None = None) -> Any:
    """The lengthscale as a number, or one for each dimension; a median is that of a few hundred pairs that differ."""
    if not isinstance(lengthscale, str) and lengthscale is not None:
        length, what = (math.prod(x.shape[1:]), "an input") if grid is None else (grid.patch_length, "a patch")
        if (shape := np.shape(lengthscale)) not in ((), (length,)):
            raise ValueError(
                f"a lengthscale of shape {shape} was given; use a number, or a vector of {length}, one for each number "
                f"of {what}"
            )
        return lengthscale
    if lengthscale != "median":
        raise ValueError(f"lengthscale {lengthscale!r} was given; use a number, or 'median'")
    rng = np.random.default_rng(0)
    pick = rng.integers(len(x), size=2 * _FEW)
    rows = (
        x[pick].reshape(len(pick), -1)
        if grid is None
        else grid.windows(x, pick, rng.integers(grid.num_patches, size=len(pick)))
    )
    pixels = np.asarray(to_pixels(jnp.asarray(rows)))
    distances = np.linalg.norm(pixels[:_FEW] - pixels[_FEW:], axis=1)
    return float(np.median(distances[distances > 0])) / 2 if (distances > 0).any() else 1.0


def some_images(x: np.ndarray) -> np.ndarray:
    """Some of all images: enough to choose patches from, few enough to send through a layer."""
    return x if len(x) <= _FEW else x[np.sort(np.random.default_rng(0).choice(len(x), _FEW, replace=False))]


def _pair(size: Size) -> tuple[int, int]:
    try:
        height, width = map(operator.index, size if isinstance(size, tuple) else (size, size))
    except (TypeError, ValueError):
        raise ValueError(f"size {size} was given; use a whole number, or a pair of them: (height, width)") from None
    return height, width
