"""From settings to a model."""

from __future__ import annotations

from jaxtyping import PRNGKeyArray

from tickgp.data.dataset import Dataset
from tickgp.gp.builders import convolutional, default_location, pointwise
from tickgp.gp.likelihoods import Softmax
from tickgp.gp.models import DeepGP
from tickgp.training.config import ModelConfig


def build_model(config: ModelConfig, data: Dataset, *, key: PRNGKeyArray) -> DeepGP:
    """The untrained model that `config` describes, for the images and classes of `data`."""
    images, likelihood = data.train.images, Softmax(len(data.class_names))
    depth = config.depth if config.name.startswith("deep") else 1
    if config.name.endswith("se"):
        return pointwise(
            images,
            likelihood,
            depth=depth,
            num_inducing=config.num_inducing,
            initialiser=config.initialiser,
            sampling=config.sampling,
            key=key,
        )
    return convolutional(
        images,
        likelihood,
        depth=depth,
        location=default_location() if config.name.endswith("tick") else None,
        patch_size=config.patch_size or (5 if min(images.shape[1:3]) >= 16 else 3),
        stride=config.stride,
        hidden_stride=config.hidden_stride,
        channels=config.channels,
        num_inducing=config.num_inducing,
        initialiser=config.initialiser,
        places=config.places,
        sampling=config.sampling,
        key=key,
    )
