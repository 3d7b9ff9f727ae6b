"""Every setting of a training run, with its default. Imports nothing heavy: the command line reads it for its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

ModelName = Literal["se", "conv", "tick", "deep-se", "deep-conv", "deep-tick"]


@dataclass(frozen=True)
class ModelConfig:
    """The model."""

    name: Annotated[ModelName, tyro.conf.arg(name="model")] = "tick"
    """Kernel and depth."""
    depth: int = 2
    """Layers of a deep model."""
    patch_size: int | None = None
    """Height and width of a patch; by default 5, or 3 for images below 16 pixels."""
    stride: int = 1
    """Step from one patch of the last layer to the next."""
    hidden_stride: int = 1
    """Step from one patch of a hidden layer to the next."""
    channels: int = 10
    """Channels of the images between layers."""
    num_inducing: int = 200
    """Inducing patches (or points) of each layer. The paper: 1000 for one layer, 384 for each of several."""
    initialiser: Literal["random", "kmeans", "greedy"] = "random"
    """How the inducing patches are chosen."""
    places: Literal["true", "uniform"] = "true"
    """Where the inducing patches of a TICK-GP start: where they were found, or anywhere (the paper)."""
    sampling: Literal["marginal", "full", "correlated"] = "marginal"
    """How hidden layers are drawn: every patch on its own, all jointly, or jointly through the inducing patches."""


@dataclass(frozen=True)
class TrainingConfig:
    """The training."""

    max_steps: int = 1500
    """Steps of Adam."""
    batch_size: int = 128
    """Images for each step."""
    learning_rate: float = 0.01
    """Learning rate at the start."""
    decay_steps: float = 5000.0
    """The learning rate at step t is divided by 1 + t / this."""


@dataclass(frozen=True)
class Config:
    """A training run."""

    dataset: Literal["digits"] = "digits"
    """What to train on: digits (embedded)."""
    seed: int = 0
    """Seed of all randomness: the same seed gives the same result."""
    prediction_samples: int = 100
    """Draws behind each predicted probability."""
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = field(default_factory=ModelConfig)
    training: Annotated[TrainingConfig, tyro.conf.arg(name="")] = field(default_factory=TrainingConfig)
