"""Every setting of a training run, with its default. Imports nothing heavy: the command line reads it for its help."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tickgp.errors import UsageError

ModelName = Literal["se", "conv", "tick", "deep-se", "deep-conv", "deep-tick"]

KernelName = Literal["se", "matern12", "matern32", "matern52"]
Initialiser = Literal["random", "kmeans", "greedy"]
Sampling = Literal["marginal", "full", "correlated"]
Likelihood = Literal["softmax", "robustmax", "bernoulli"]

_DEEP_PATCHES = ("deep-conv", "deep-tick")
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("depth", "sampling"), ("deep-se", *_DEEP_PATCHES)),
    **dict.fromkeys(
        ("hidden_stride", "channels", "hidden_variance", "hidden_lengthscale", "hidden_q_mu", "hidden_mean_field"),
        _DEEP_PATCHES,
    ),
    **dict.fromkeys(("patch_size", "stride", "weights", "weight_prior", "kernel"), ("conv", "tick", *_DEEP_PATCHES)),
    **dict.fromkeys(("places", "location", "location_lengthscale", "learn_location"), ("tick", "deep-tick")),
    "width": ("deep-se",),
}
"""Settings of the model that only some models have."""


def applies(setting: str, name: str) -> bool:
    """Whether the model of this name has this setting."""
    return name in _ONLY_FOR.get(setting, (name,))


@dataclass(frozen=True)
class DataConfig:
    """The images."""

    dataset: str = "digits"
    """A name that `tickgp data` lists, folder:PATH or npz:FILE."""
    data_dir: Path | None = None
    """Folder with the publishers' files; by default $TICKGP_DATA, then the user's cache."""
    image_size: int | None = None
    """Height and width that the images of a folder are scaled to."""
    fit: Literal["pad", "crop"] = "pad"
    """What gives images of a folder that shape: a border in the colour of their edge, or a cut to their middle."""
    grey: bool = False
    """Take colour images as grey ones."""
    skip_bad_images: bool = False
    """Leave out images of a folder that cannot be read, and count them."""
    test_share: float = 0.2
    """Share of the images to test on, where the source does not say."""
    classes: tuple[str, ...] = ()
    """Only the images of these classes; by default of all."""
    train_images: int | None = None
    """Train on this many images, drawn from all; by default on all."""
    test_images: int | None = None
    """Test on this many images, drawn from all; by default on all."""
    validation_share: float = 0.0
    """Share of the training images to leave out and to choose the hand-over threshold on; without it, and without
    validation images of the source's own, that is chosen on the test images."""

    def __post_init__(self) -> None:
        if not 0 < self.test_share < 1:
            raise UsageError(f"test-share {self.test_share} was given; it must be above 0 and below 1")
        if not 0 <= self.validation_share < 1:
            raise UsageError(f"validation-share {self.validation_share} was given; it must be at least 0 and below 1")


@dataclass(frozen=True)
class ModelConfig:
    """The model."""

    name: Annotated[ModelName, tyro.conf.arg(name="model")] = "tick"
    """Kernel and depth."""
    depth: int = 2
    """Layers of a deep model."""
    patch_size: int | None = None
    """Height and width of a patch; by default 5, or 3 for images below 16 pixels."""
    stride: int | None = None
    """Step between patches of the last layer; by default the least that leaves at most 16 along the shorter side of
    what it sees (for patches of 5 pixels 1 up to 20 pixels, 2 up to 36, and so on), at most the size of a patch."""
    hidden_stride: int | None = None
    """Step between patches of a hidden layer; by default as for stride."""
    channels: int = 5
    """Channels of the images between layers. The paper does not say how many; our runs of its tables have 10."""
    width: int = 30
    """Outputs of a hidden layer of deep-se."""
    num_inducing: int = 200
    """Inducing patches (or points) of each layer. The paper: 1000 for one layer, 384 for each of several."""
    initialiser: Initialiser | None = None
    """How the inducing patches are chosen; by default kmeans, and random for inducing points."""
    places: Literal["true", "uniform"] = "true"
    """Where the inducing patches of a TICK-GP start: where they were found, or anywhere (the paper)."""
    kernel: KernelName = "se"
    """Kernel between patches, in all layers."""
    location: KernelName = "matern32"
    """Location kernel of a TICK-GP."""
    location_lengthscale: float | None = None
    """Its lengthscale at the start, in pixels; by default half the shorter side of what the last layer sees.
    The paper: 3."""
    learn_location: bool = True
    """Whether to learn that lengthscale: by how much a TICK-GP is insensitive to translations."""
    weights: bool = True
    """Whether to learn a weight for each patch of the last layer."""
    weight_prior: bool = True
    """Whether these weights have a normal prior around 1, with deviation 1: without it, as in the paper, a model of
    few images can come to fit these too closely."""
    variance: float | None = None
    """Variance of the last layer's kernel at the start; by default 100 between patches, 5 between whole images."""
    lengthscale: float | None = None
    """Lengthscale of the last layer's kernel at the start; by default 1 between patches, 4 above hidden layers, and
    half the median distance between whole images."""
    hidden_variance: float = 0.1
    """Variance of the kernel of hidden layers of patches at the start."""
    hidden_lengthscale: float = 2.0
    """Lengthscale of the kernel of hidden layers of patches at the start."""
    hidden_q_mu: float = 0.01
    """Noise that tells hidden channels apart at the start; the paper: 0."""
    hidden_mean_field: bool = True
    """Whether the covariance of q(u) in hidden layers is diagonal instead of full: faster, and hardly worse."""
    mean_field: bool = False
    """A diagonal covariance of q(u) instead of a full one in all layers."""
    sampling: Sampling = "marginal"
    """How hidden layers are drawn: every patch on its own, all jointly, or jointly through the inducing patches."""
    likelihood: Likelihood = "softmax"
    """How labels follow from the model's outputs; bernoulli is for two classes."""
    jitter: float = 1e-5
    """Added to the diagonal of Kuu, relative to it."""
    standardise: bool = False
    """Shift and scale every channel of the pixels to mean 0 and deviation 1."""
    float64: bool = False
    """Compute in double precision."""

    def __post_init__(self) -> None:
        _check_numbers(self, or_zero=("jitter", "hidden_q_mu"))
        for setting in fields(self):
            if (value := getattr(self, setting.name)) != setting.default and not applies(setting.name, self.name):
                raise UsageError(
                    f"{setting.name.replace('_', '-')} {value} was given for the model {self.name}, which does not "
                    f"use it; leave it out, or use {' or '.join(_ONLY_FOR[setting.name])}"
                )


@dataclass(frozen=True)
class TrainingConfig:
    """The training."""

    max_steps: int = 2000
    """Steps of training; see decay."""
    max_seconds: float | None = None
    """Stop, with a checkpoint, after so many seconds, and so each time it is resumed."""
    batch_size: int = 128
    """Images for each step."""
    learning_rate: float = 0.03
    """Learning rate at the start. The paper: 0.01."""
    decay: Literal["linear", "inverse", "step", "constant"] = "linear"
    """How the learning rate falls: straight to 0 at the last step, divided by 1 + t / decay-steps (the paper's single
    layers), by decay-factor every decay-steps (its deep models), or not at all."""
    decay_steps: float = 5000.0
    """See decay. The paper's deep models: 50000."""
    decay_factor: float = 4.0
    """See decay."""
    natural_gradients: bool = True
    """Whether to train the last layer's q(u) by natural gradients, with steps of the size of the learning rate but at
    most 1, unless it is mean-field or the likelihood is robustmax; Adam trains the rest."""
    hidden_mean_rate: float = 1.0
    """Factor on the learning rate of the means of the hidden layers' q(u)."""
    start_from: Path | None = None
    """Start from the trained model of this run: one of the same shape, or a deep one with a layer less. Its numbers
    take the place of settings of the start, such as variance. A layer more starts as the identity with little noise,
    whose KL divergence first lowers the ELBO."""
    patience: int | None = None
    """Stop early when the mean ELBO of this many steps is no better than that of as many before."""
    num_samples: int = 1
    """Draws of the hidden layers for each step."""
    likelihood_samples: int = 16
    """Draws of the last layer for each of those."""
    report_every: int = 100
    """Steps from one line of metrics.jsonl to the next."""
    watched_images: int = 256
    """Held-out images, and training images, whose NLL stands in each of these lines."""
    checkpoint_every: int = 500
    """Steps from one checkpoint to the next; each is made at the report that follows."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if self.patience is not None and self.patience < self.report_every:
            raise UsageError(
                f"patience {self.patience} was given; it must be at least the {self.report_every} steps of report-every"
            )

    @property
    def window(self) -> int | None:
        """Reports in `patience` steps, rounded up."""
        return None if self.patience is None else math.ceil(self.patience / self.report_every)


@dataclass(frozen=True)
class Config:
    """A training run."""

    seed: int = 0
    """Seed of all randomness: the same seed gives the same result."""
    prediction_samples: int = 20
    """Draws behind each predicted probability; of the last layer there are 64 for each of them."""
    max_error: float = 0.01
    """Error that is allowed where the model decides by itself; the other images are for a person."""
    confidence: float = 0.95
    """Confidence with which the error stays below that."""
    max_unusual: float = 0.01
    """Share of the held-out images, but at least one, that is too far from training: with more, images of other
    kinds are found more often, and more of the usual ones are for a person."""
    data: Annotated[DataConfig, tyro.conf.arg(name="")] = field(default_factory=DataConfig)
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = field(default_factory=ModelConfig)
    training: Annotated[TrainingConfig, tyro.conf.arg(name="")] = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # of larger ones jax keeps 32 bits, so that two seeds would be the same
            raise UsageError(f"seed {self.seed} was given; it must be from 0 to {2**32 - 1}")
        for name, share in {"max-error": self.max_error, "confidence": self.confidence}.items():
            if not 0 < share < 1:
                raise UsageError(f"{name} {share} was given; it must be above 0 and below 1")
        if not 0 <= self.max_unusual < 1:
            raise UsageError(f"max-unusual {self.max_unusual} was given; it must be at least 0 and below 1")
        _check_numbers(self, or_zero=("seed", "max_unusual"))


def _check_numbers(settings: ModelConfig | TrainingConfig | Config, or_zero: tuple[str, ...] = ()) -> None:
    """Every number of `settings` must be finite and above 0; those named may be 0."""
    for setting in fields(settings):
        number, least = getattr(settings, setting.name), "at least" if setting.name in or_zero else "above"
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if not (number > 0 or (number == 0 and least == "at least")) or math.isinf(number):
            raise UsageError(f"{setting.name.replace('_', '-')} {number} was given; it must be {least} 0 and finite")


def refuse_idle(config: Config) -> None:
    """Refuse settings of a new run that would do nothing with the others; runs of earlier versions may have them."""
    data, model, training = config.data, config.model.name, config.training
    if not data.dataset.startswith("folder:"):
        _refuse(data, ("fit", "skip_bad_images"), f"for {data.dataset}", "use folder:PATH")
    if training.decay not in ("inverse", "step"):
        _refuse(training, ("decay_steps",), f"with the decay {training.decay}", "use the decay inverse or step")
    if training.decay != "step":
        _refuse(training, ("decay_factor",), f"with the decay {training.decay}", "use the decay step")
    if not model.startswith("deep-"):
        _refuse(training, ("hidden_mean_rate", "num_samples"), f"for the model {model}", "use a deep one")


def _refuse(settings: DataConfig | TrainingConfig, names: tuple[str, ...], where: str, instead: str) -> None:
    """Settings that would do nothing, unless they have their defaults."""
    for name in names:
        if (value := getattr(settings, name)) != getattr(type(settings), name):
            said = f"{name.replace('_', '-')} {value} was given {where}, which does not use it"
            raise UsageError(f"{said}; leave it out, or {instead}")
