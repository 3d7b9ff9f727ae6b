"""The paper's models, ready to train: se, conv, tick, deep_se, deep_conv, deep_tick.

Images are (N, H, W, C), bytes or numbers between 0 and 1; inducing patches are chosen among theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key, PRNGKeyArray

from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional, PatchResponse
from tickgp.gp.covariances import Pointwise
from tickgp.gp.images import Standardise, check_images, to_pixels
from tickgp.gp.inducing import Initialiser, Places, choose_patches, choose_points
from tickgp.gp.kernels import AbstractKernel, Matern32, SquaredExponential
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import AbstractLikelihood
from tickgp.gp.means import IdentityConv, Zero, principal_components
from tickgp.gp.models import DeepGP
from tickgp.gp.multioutput import Shared
from tickgp.gp.params import Positive, Real, Triangular
from tickgp.gp.patches import PatchGrid
from tickgp.gp.variational import AbstractVariational, FullRank, MeanField, Sampling, SparseGP

_FEW = 500
"""How many images are sent through hidden layers to choose the inducing patches above them."""
_PATCHES = 16
"""Patches along the shorter side of an image that a laptop can work through."""

Size = int | tuple[int, int]


def se(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    num_inducing: int = 1000,
    key: PRNGKeyArray,
    **settings: Any,
) -> DeepGP:
    """A GP with a squared-exponential kernel on raw pixels. Settings: those of `pointwise`."""
    return pointwise(images, likelihood, depth=1, num_inducing=num_inducing, key=key, **settings)


def conv(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    num_inducing: int = 1000,
    key: PRNGKeyArray,
    **settings: Any,
) -> DeepGP:
    """Conv-GP: a response to each patch, wherever it stands. Settings: those of `convolutional`."""
    return convolutional(images, likelihood, depth=1, num_inducing=num_inducing, key=key, **settings)


def tick(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    location: AbstractKernel | None = None,
    num_inducing: int = 1000,
    key: PRNGKeyArray,
    **settings: Any,
) -> DeepGP:
    """TICK-GP: a response to each patch that depends on where it stands. Settings: those of `convolutional`."""
    location = location or default_location()
    return convolutional(images, likelihood, depth=1, location=location, num_inducing=num_inducing, key=key, **settings)


def deep_se(
    images: ArrayLike, likelihood: AbstractLikelihood, *, depth: int = 2, key: PRNGKeyArray, **settings: Any
) -> DeepGP:
    """A deep GP with squared-exponential kernels on raw pixels. Settings: those of `pointwise`."""
    return pointwise(images, likelihood, depth=depth, key=key, **settings)


def deep_conv(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    depth: int = 2,
    lengthscale: float | None = 4.0,
    key: PRNGKeyArray,
    **settings: Any,
) -> DeepGP:
    """Deep Conv-GP: image-to-image layers below a Conv-GP. Settings: those of `convolutional`.

    lengthscale: of the last layer's kernel; it sees more channels than a single layer does, and their noise.
    """
    return convolutional(images, likelihood, depth=depth, lengthscale=lengthscale, key=key, **settings)


def deep_tick(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    location: AbstractKernel | None = None,
    key: PRNGKeyArray,
    **settings: Any,
) -> DeepGP:
    """Deep TICK-GP: image-to-image layers below a TICK-GP. Settings: those of `deep_conv`."""
    return deep_conv(images, likelihood, location=location or default_location(), key=key, **settings)


def default_location(lengthscale: float = 3.0) -> Matern32:
    """The paper's location kernel, Matérn-3/2. Its variance stays 1: the patch kernel has one already.

    Paper: location kernel
    """
    return Matern32(Positive(1.0, trainable=False), lengthscale)


def convolutional(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    depth: int = 1,
    location: AbstractKernel | None = None,
    patch_size: Size = 5,
    stride: Size | None = 1,
    hidden_stride: Size | None = 1,
    channels: int = 10,
    num_inducing: int = 384,
    weights: bool = True,
    variance: float = 5.0,
    lengthscale: float | None = 1.0,
    hidden_variance: float = 0.1,
    hidden_lengthscale: float | None = 2.0,
    hidden_q_mu: float = 0.01,
    hidden_mean_field: bool = False,
    initialiser: Initialiser = "random",
    places: Places = "true",
    mean_field: bool = False,
    sampling: Sampling = "marginal",
    jitter: float = 1e-5,
    standardise: bool = False,
    key: PRNGKeyArray,
) -> DeepGP:
    """`depth` − 1 of `image_layer`, then a `class_layer`: see these for the settings, the first ones named hidden.

    mean_field is for all layers, hidden_mean_field for all but the last. standardise: shift and scale every channel to
    mean 0 and deviation 1 over `images`; the model does it to all images it is given.
    """
    x, first = _prepared(images, standardise)
    both: dict[str, Any] = {"patch_size": patch_size, "num_inducing": num_inducing, "initialiser": initialiser}
    hidden: dict[str, Any] = {
        "stride": hidden_stride,
        "variance": hidden_variance,
        "lengthscale": hidden_lengthscale,
        "q_mu": hidden_q_mu,
        "mean_field": mean_field or hidden_mean_field,
    }
    last: dict[str, Any] = {
        "stride": stride,
        "variance": variance,
        "lengthscale": lengthscale,
        "mean_field": mean_field,
        "location": location,
        "weights": weights,
        "places": places,
    }
    layers: list[Layer] = []
    for i, layer_key in enumerate(_layer_keys(key, depth), start=1):
        with _naming(i, depth):
            if i == depth:
                layers.append(class_layer(x, likelihood.num_outputs, **both, **last, key=layer_key))
            else:
                layers.append(image_layer(x, channels, **both, **hidden, key=layer_key))
                x = np.asarray(layers[-1].mean(jnp.asarray(few(x)))).reshape(-1, *layers[-1].output_shape)
    return DeepGP(tuple(layers), likelihood, jitter=jitter, sampling=sampling, standardise=first)


def pointwise(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    depth: int = 1,
    width: int = 30,
    num_inducing: int = 384,
    variance: float = 5.0,
    lengthscale: float | None = None,
    initialiser: Initialiser = "random",
    mean_field: bool = False,
    sampling: Sampling = "marginal",
    jitter: float = 1e-5,
    standardise: bool = False,
    key: PRNGKeyArray,
) -> DeepGP:
    """`depth` − 1 hidden layers of `width` outputs, each around a fixed linear (PCA) map, then the class scores.

    All kernels are squared exponentials on whole images or vectors; settings as for `class_layer`, and `standardise` as
    for `convolutional`. variance, lengthscale: of the last layer; hidden ones start with 1 and half the median distance
    between their inputs.
    Paper: SE-GP
    """
    x, first = _prepared(images, standardise)
    outputs = likelihood.num_outputs
    layers: list[Layer] = []
    for i, layer_key in enumerate(_layer_keys(key, depth), start=1):
        hidden = i < depth
        size = width if hidden else outputs
        kernel = SquaredExponential(
            1.0 if hidden else variance, _half_median(x) if hidden or lengthscale is None else lengthscale
        )
        with _naming(i, depth):
            inducing = choose_points(x, num_inducing, kernel, how=initialiser, key=layer_key)
            mean = principal_components(x, width) if hidden else Zero(outputs)
        q = _initial_q(size, num_inducing, 1e-3 if hidden else 1.0, mean_field)
        layers.append(Layer(SparseGP(Shared(Pointwise(kernel)), (inducing,), q), mean, (size,)))
        x = np.asarray(mean(jnp.asarray(x)))
    return DeepGP(tuple(layers), likelihood, jitter=jitter, sampling=sampling, standardise=first)


def image_layer(
    images: np.ndarray,
    channels: int,
    *,
    patch_size: Size = 5,
    stride: Size | None = 1,
    num_inducing: int = 384,
    variance: float = 0.1,
    lengthscale: float | None = 2.0,
    q_mu: float = 0.01,
    initialiser: Initialiser = "random",
    mean_field: bool = False,
    key: PRNGKeyArray,
) -> Layer:
    """A hidden layer from images to images: an independent MOCK for each output channel, around the identity.

    stride: step from one patch to the next; None takes the least that leaves at most 16 along the shorter side (for
    patches of 5 pixels 1 up to 20 pixels, 2 up to 36, and so on), but no more than the size of a patch.
    variance, lengthscale: of the patch kernel at the start; None takes half the median distance between patches. They
    decide how much noise the layer begins with, where patches are far from all inducing ones: with much of it the layer
    above sees nothing else, and learns nothing (docs/findings.md).
    q_mu: standard deviation of the noise in q's mean that tells the channels apart at the start; the paper's 0 leaves
    them alike. mean_field: a diagonal q instead of a full one.
    Paper: hidden layer set-up
    """
    if channels < 1:
        raise ValueError(f"{channels} channels were asked for; a hidden layer needs at least 1")
    grid = _grid(images, patch_size, stride)
    key_inducing, key_q = jax.random.split(key)
    if lengthscale is None:
        lengthscale = _half_median(images, grid)
    response = PatchResponse(SquaredExponential(variance, lengthscale))
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
    location: AbstractKernel | None = None,
    weights: bool = True,
    variance: float = 5.0,
    lengthscale: float | None = 1.0,
    initialiser: Initialiser = "random",
    places: Places = "true",
    mean_field: bool = False,
    key: PRNGKeyArray,
) -> Layer:
    """A last layer from images to class scores: for each class an independent weighted sum over patch responses.

    location: the kernel on the places of patches, which makes it a TICK-GP; places: how those of the inducing patches
    start (see `choose_patches`). weights: learn a weight for each patch. The rest as for `image_layer`.
    Paper: last layer set-up
    """
    grid = _grid(images, patch_size, stride)
    if lengthscale is None:
        lengthscale = _half_median(images, grid)
    response = PatchResponse(SquaredExponential(variance, lengthscale), location)
    where: Places = "none" if location is None else places
    inducing = choose_patches(grid, images, num_inducing, response, how=initialiser, places=where, key=key)
    covariance = Convolutional(grid, response, Real(jnp.ones(grid.num_patches)) if weights else None)
    q = _initial_q(num_outputs, num_inducing, 1.0, mean_field)
    return Layer(SparseGP(Shared(covariance), (inducing,), q), Zero(num_outputs), (num_outputs,))


def _grid(images: np.ndarray, patch_size: Size, stride: Size | None) -> PatchGrid:
    patch = _pair(patch_size)
    if stride is None:
        places = min(side - length + 1 for side, length in zip(images.shape[1:3], patch, strict=True))
        stride = min(max(math.ceil(places / _PATCHES), 1), *patch)
    return PatchGrid(images.shape[1:], patch, _pair(stride))


def _layer_keys(key: PRNGKeyArray, depth: int) -> Key[Array, " depth"]:
    if depth < 1:
        raise ValueError(f"a model of depth {depth} was asked for; the least is 1, a single layer")
    return jax.random.split(key, depth)


def _initial_q(num_latents: int, num_inducing: int, scale: float, mean_field: bool) -> AbstractVariational:
    """q(v) = N(0, scale² I) for each latent."""
    q_mu = Real(jnp.zeros((num_latents, num_inducing)))
    if mean_field:
        return MeanField(q_mu, Positive(jnp.full((num_latents, num_inducing), scale)))
    return FullRank(q_mu, Triangular(jnp.tile(scale * jnp.eye(num_inducing), (num_latents, 1, 1))))


def _half_median(x: np.ndarray, grid: PatchGrid | None = None) -> float:
    """Half the median distance between patches, or between whole inputs, of a few hundred that differ."""
    rng = np.random.default_rng(0)
    pick = rng.integers(len(x), size=2 * _FEW)
    rows = (
        x[pick].reshape(len(pick), -1)
        if grid is None
        else grid.windows(x, pick, rng.integers(grid.num_patches, size=len(pick)))
    )
    distances = np.linalg.norm(rows[:_FEW] - rows[_FEW:], axis=1)
    return float(np.median(distances[distances > 0])) / 2 if (distances > 0).any() else 1.0


@contextmanager
def _naming(layer: int, depth: int) -> Iterator[None]:
    """Errors of a layer of a deep model say which one it is: it does not see the user's images."""
    try:
        yield
    except ValueError as error:
        if depth == 1:
            raise
        smaller = ", or a smaller stride of hidden layers" if layer > 1 else ""
        raise ValueError(f"layer {layer} of {depth}: {error}{smaller}") from None


def _prepared(images: ArrayLike, standardise: bool) -> tuple[np.ndarray, Standardise | None]:
    """Images as the first layer sees them, and what is done to pixels before it."""
    x = as_pixels(images)
    first = Standardise(x) if standardise else None
    return (x if first is None else np.asarray(first(jnp.asarray(x)))), first


def few(x: np.ndarray) -> np.ndarray:
    """A few images of all: enough to choose patches from, few enough to send through a layer."""
    return x if len(x) <= _FEW else x[np.sort(np.random.default_rng(0).choice(len(x), _FEW, replace=False))]


def as_pixels(images: ArrayLike) -> np.ndarray:
    """Images (N, H, W, C) as floats, checked."""
    return np.asarray(to_pixels(jnp.asarray(check_images(images))))


def _pair(size: Size) -> tuple[int, int]:
    pair = size if isinstance(size, tuple) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, int) for side in pair):
        raise ValueError(f"size {size} was given; use a whole number, or a pair of them: (height, width)")
    return pair
