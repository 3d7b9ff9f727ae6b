"""From settings to a model and a learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray

from tickgp.gp.builders import convolutional, pointwise
from tickgp.gp.inducing import Initialiser
from tickgp.gp.kernels import AbstractKernel, Matern12, Matern32, Matern52, SquaredExponential
from tickgp.gp.layer_builders import LocationFamily
from tickgp.gp.likelihoods import AbstractClassification, Bernoulli, RobustMax, Softmax
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Normal, Positive
from tickgp.training.config import ModelConfig, TrainingConfig
from tickgp.training.loop import inverse_decay, linear_decay

_KERNELS: dict[str, Callable[..., AbstractKernel]] = {
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "se": SquaredExponential,
}


def build_model(config: ModelConfig, images: np.ndarray, num_classes: int, *, key: PRNGKeyArray) -> DeepGP:
    """The untrained model that `config` describes, with inducing patches among those of `images`."""
    likelihood = _likelihood(config, num_classes)
    depth = config.depth if config.name.startswith("deep") else 1
    if config.name.endswith("se"):
        return pointwise(
            images,
            likelihood,
            depth=depth,
            width=config.width,
            num_inducing=config.num_inducing,
            variance=config.variance or 5.0,
            lengthscale=config.lengthscale or "median",
            initialiser=initialiser(config),
            mean_field=config.mean_field,
            sampling=config.sampling,
            jitter=config.jitter,
            standardise=config.standardise,
            key=key,
        )
    return convolutional(
        images,
        likelihood,
        depth=depth,
        location=_location(config) if config.name.endswith("tick") else None,
        patch_size=_patch_size(config, images),
        stride=config.stride,
        hidden_stride=config.hidden_stride,
        channels=config.channels,
        num_inducing=config.num_inducing,
        weights=config.weights,
        weight_prior=Normal(mean=1.0, deviation=1.0) if config.weight_prior else None,
        kernel=_KERNELS[config.kernel],
        variance=config.variance or 100.0,
        lengthscale=config.lengthscale,
        hidden_variance=config.hidden_variance,
        hidden_lengthscale=config.hidden_lengthscale,
        hidden_q_mu=config.hidden_q_mu,
        hidden_mean_field=config.hidden_mean_field,
        initialiser=initialiser(config),
        places=config.places,
        mean_field=config.mean_field,
        sampling=config.sampling,
        jitter=config.jitter,
        standardise=config.standardise,
        key=key,
    )


def _location(config: ModelConfig) -> LocationFamily:
    def of_side(side: int) -> AbstractKernel:
        lengthscale = Positive(config.location_lengthscale or side / 2, trainable=config.learn_location)
        return _KERNELS[config.location](Positive(1.0, trainable=False), lengthscale)

    return of_side


def initialiser(config: ModelConfig) -> Initialiser:
    """How inducing patches or points are chosen: by default clusters of patches, but not of whole images."""
    return config.initialiser or ("random" if config.name.endswith("se") else "kmeans")


def _patch_size(config: ModelConfig, images: np.ndarray) -> int:
    if config.patch_size is not None:
        return config.patch_size
    return 5 if min(images.shape[1:3]) >= 16 else 3


def train_settings(config: TrainingConfig) -> dict[str, Any]:
    """What `training.loop.train` is to be called with, besides a start, images and a key."""
    return {
        "steps": config.max_steps,
        "batch_size": config.batch_size,
        "learning_rate": schedule(config),
        "natural_gradients": config.natural_gradients,
        "hidden_mean_rate": config.hidden_mean_rate,
        "num_samples": config.num_samples,
        "likelihood_samples": config.likelihood_samples,
        "report_every": config.report_every,
    }


def schedule(config: TrainingConfig) -> Callable[[int], float]:
    """The learning rate as a function of the step."""
    rate, steps, factor = config.learning_rate, config.decay_steps, config.decay_factor
    match config.decay:
        case "linear":
            return linear_decay(rate, config.max_steps)
        case "inverse":
            return inverse_decay(rate, steps)
        case "step":
            return lambda t: rate / factor ** math.floor(t / steps)
        case "constant":
            return lambda t: rate


def _likelihood(config: ModelConfig, num_classes: int) -> AbstractClassification:
    match config.likelihood:
        case "softmax":
            return Softmax(num_classes)
        case "robustmax":
            return RobustMax(num_classes)
        case "bernoulli":
            if num_classes != 2:
                raise ValueError(f"bernoulli is for 2 classes and there are {num_classes}; use softmax or robustmax")
            return Bernoulli()
