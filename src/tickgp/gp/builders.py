"""The paper's models, ready to train: se, conv, tick, deep_se, deep_conv, deep_tick.

Images are (N, H, W, C), bytes or numbers between 0 and 1; inducing patches are chosen among theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Key, PRNGKeyArray

from tickgp.gp.images import Standardise, check_images, to_pixels
from tickgp.gp.inducing import Initialiser, Places
from tickgp.gp.kernels import AbstractKernel, Matern32, SquaredExponential
from tickgp.gp.layer_builders import (
    KernelFamily,
    Lengthscale,
    LocationFamily,
    Size,
    class_layer,
    image_layer,
    point_layer,
    some_images,
)
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import AbstractLikelihood
from tickgp.gp.means import Zero, principal_components
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Normal, Positive
from tickgp.gp.patches import SizeError
from tickgp.gp.variational import Sampling

_SMALLER_STRIDE = ", or a smaller stride of hidden layers"


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
    location: AbstractKernel | LocationFamily | None = None,
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
    images: ArrayLike, likelihood: AbstractLikelihood, *, depth: int = 2, key: PRNGKeyArray, **settings: Any
) -> DeepGP:
    """Deep Conv-GP: image-to-image layers below a Conv-GP. Settings: those of `convolutional`."""
    return convolutional(images, likelihood, depth=depth, key=key, **settings)


def deep_tick(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    location: AbstractKernel | LocationFamily | None = None,
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
    location: AbstractKernel | LocationFamily | None = None,
    patch_size: Size = 5,
    stride: Size | None = 1,
    hidden_stride: Size | None = 1,
    channels: int = 10,
    num_inducing: int = 384,
    weights: bool = True,
    weight_prior: Normal | None = None,
    kernel: KernelFamily = SquaredExponential,
    variance: float = 5.0,
    lengthscale: Lengthscale | None = None,
    hidden_variance: float = 0.1,
    hidden_lengthscale: Lengthscale = 2.0,
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

    kernel and mean_field are for all layers, hidden_mean_field for all but the last. lengthscale: None is 1 for a
    single layer, and 4 above hidden ones, where there are more channels, and their noise. standardise: shift and scale
    every channel to mean 0 and deviation 1 over `images`; the model does it to all images it is given.
    """
    x, first = _prepared(images, standardise)
    both: dict[str, Any] = {
        "patch_size": patch_size,
        "num_inducing": num_inducing,
        "kernel": kernel,
        "initialiser": initialiser,
    }
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
        "lengthscale": (1.0 if depth == 1 else 4.0) if lengthscale is None else lengthscale,
        "mean_field": mean_field,
        "location": location,
        "weights": weights,
        "weight_prior": weight_prior,
        "places": places,
    }
    layers: list[Layer] = []
    for i, layer_key in enumerate(_layer_keys(key, depth), start=1):
        with _naming(i, depth, _SMALLER_STRIDE if i > 1 else ""):
            if i == depth:
                layers.append(class_layer(x, likelihood.num_outputs, **both, **last, key=layer_key))
            else:
                layers.append(image_layer(x, channels, **both, **hidden, key=layer_key))
                few = to_pixels(jnp.asarray(some_images(x)))
                x = np.asarray(layers[-1].mean(few)).reshape(-1, *layers[-1].output_shape)
    return DeepGP(tuple(layers), likelihood, jitter=jitter, sampling=sampling, standardise=first)


def pointwise(
    images: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    depth: int = 1,
    width: int = 30,
    num_inducing: int = 384,
    kernel: KernelFamily = SquaredExponential,
    variance: float = 5.0,
    lengthscale: Lengthscale = "median",
    initialiser: Initialiser = "random",
    mean_field: bool = False,
    sampling: Sampling = "marginal",
    jitter: float = 1e-5,
    standardise: bool = False,
    key: PRNGKeyArray,
) -> DeepGP:
    """`depth` − 1 hidden layers of `width` outputs, each around a fixed linear (PCA) map, then the class scores.

    kernel: of all layers, on whole images or vectors; variance, lengthscale: of the last one, hidden ones start with 1
    and half the median distance between their inputs. Other settings as for `class_layer`, and `standardise` as for
    `convolutional`.
    Paper: SE-GP
    """
    x, first = _prepared(images, standardise)
    x = np.asarray(to_pixels(jnp.asarray(x)))
    both: dict[str, Any] = {
        "num_inducing": num_inducing,
        "kernel": kernel,
        "initialiser": initialiser,
        "mean_field": mean_field,
    }
    last: dict[str, Any] = {"variance": variance, "lengthscale": lengthscale}
    outputs = likelihood.num_outputs
    layers: list[Layer] = []
    for i, layer_key in enumerate(_layer_keys(key, depth), start=1):
        with _naming(i, depth):
            if i == depth:
                layers.append(point_layer(x, Zero(outputs), outputs, **both, **last, key=layer_key))
            else:
                mean = principal_components(x, width)
                layers.append(point_layer(x, mean, width, q_std=1e-3, **both, key=layer_key))
                x = np.asarray(mean(jnp.asarray(x)))
    return DeepGP(tuple(layers), likelihood, jitter=jitter, sampling=sampling, standardise=first)


def _layer_keys(key: PRNGKeyArray, depth: int) -> Key[Array, " depth"]:
    if depth < 1:
        raise ValueError(f"a model of depth {depth} was asked for; the least is 1, a single layer")
    return jax.random.split(key, depth)


@contextmanager
def _naming(layer: int, depth: int, if_too_small: str = "") -> Iterator[None]:
    """Errors of a layer of a deep model say which one it is: it does not see the user's images.

    if_too_small: what else can be done where what it sees is too small.
    """
    try:
        yield
    except ValueError as error:
        if depth == 1:
            raise
        more = if_too_small if isinstance(error, SizeError) else ""
        raise ValueError(f"layer {layer} of {depth}: {error}{more}") from None


def _prepared(images: ArrayLike, standardise: bool) -> tuple[np.ndarray, Standardise | None]:
    """Checked images, and what is done to pixels before the first layer, if anything: then it is done to them."""
    x = check_images(images)
    if not standardise:
        return x, None
    pixels = to_pixels(jnp.asarray(x))
    first = Standardise(np.asarray(pixels))
    return np.asarray(first(pixels)), first
