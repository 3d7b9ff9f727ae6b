"""The training runs behind the tables and figures, with their settings at each scale.

A run has a name, `dataset/model`, and may serve several tables and figures. Settings that the paper does not give are
listed in docs/experiments.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tickgp.training.config import Config, DataConfig, ModelConfig, ModelName, Sampling, TrainingConfig

Scale = Literal["paper", "fast", "smoke"]
Kernel = Literal["conv", "tick"]
Weights = Literal["equal", "prior", "free"]

PRETRAINED = "mnist/pretrained"
DROPOUT_RATES = (0.25, 0.5, 0.75)
ENSEMBLE_SEEDS = (0, 1, 2, 3, 4)
SEEDS = (0, 1, 2)
"""Of table 1's GPs on MNIST."""
LENGTHSCALES = (1, 2, 4, 8, 16, 32, 64)
"""Of the location kernel, in pixels, where it is not learned."""
STARTS = (3, 16)
"""Of a learned one at the start, in pixels: the paper's, which all experiments have, and a longer one beside it."""
CHANNELS = (2, 3, 5, 10)
"""Between two layers. The paper does not say how many it has; all other experiments have the last of these."""
WEIGHTS: dict[Weights, str] = {"equal": "all 1", "prior": "learned, with a prior", "free": "learned, without"}
"""Of patches, in words."""
MANY, FEW = "100", "5"
DRAWS = {MANY: (100, 1), FEW: (5, 1), "5x100": (5, 100)}
"""Behind a GP's prediction, by what it is called: draws of the hidden layers, and of the last one for each of these.

Ours; the paper's K = 5 as it is written; and what else that may mean (docs/claims.md).
"""
TRAINING_IMAGES = 10_000
"""So many, at most, of those that a GP was trained on it is judged by as well."""


@dataclass(frozen=True)
class CnnConfig:
    """The training of a dropout CNN."""

    data: DataConfig
    seed: int = 0
    num_convolutions: int = 2
    dropout: float = 0.5
    max_steps: int = 50_000
    batch_size: int = 128
    learning_rate: float = 1e-4
    prediction_samples: int = 100
    report_every: int = 469
    """An epoch of 60,000 images."""
    watched_images: int = 2000


@dataclass(frozen=True)
class EnsembleConfig:
    """The mean of several trained CNNs."""

    data: DataConfig
    members: tuple[str, ...]
    """Names of their runs."""
    seed: int = 0


@dataclass(frozen=True)
class Cell:
    """One training run, or the mean of several; its name and scale tell it from all others."""

    name: str
    scale: Scale
    """It is kept under this one. CNNs are the same at `fast` as at the paper's, and are trained once."""
    settings: Config | CnnConfig | EnsembleConfig
    needs: tuple[Cell, ...] = ()
    """The members of an ensemble, or the run whose trained model it starts from."""
    also_on: tuple[str, ...] = ()
    """Datasets that it is tested on besides its own."""

    @property
    def start_from(self) -> str | None:
        return self.needs[0].name if self.needs and isinstance(self.settings, Config) else None


def shallow(dataset: str, model: ModelName, scale: Scale, *, seed: int = 0) -> Cell:
    """A GP of one layer with 1,000 inducing patches: tables 1 and 3."""
    also_on = ("semeion",) if dataset == "mnist" else ()
    settings = replace(_shallow(dataset, model, scale), seed=seed)
    return Cell(_seeded(f"{dataset}/{model}", seed), scale, settings, also_on=also_on)


def pretrained(scale: Scale) -> Cell:
    """The small TICK-GP for MNIST that comes with the library; a tenth of the images chooses when it hands over."""
    config = _shallow("mnist", "tick", scale)
    number = config.model.num_inducing if scale == "smoke" else 350
    data, model = replace(config.data, validation_share=0.1), replace(config.model, num_inducing=number)
    return Cell(PRETRAINED, scale, replace(config, data=data, model=model), also_on=("semeion",))


def two_against_seven(kernel: Kernel, scale: Scale) -> Cell:
    """MNIST's 2 against 7 with a squared-exponential location kernel: the figure of patch responses."""
    config = _shallow("mnist", kernel, scale)
    location: dict[str, Any] = {"location": "se"} if kernel == "tick" else {}
    data = replace(config.data, classes=("2", "7"))
    model = replace(config.model, likelihood="bernoulli", **location)
    return Cell(f"mnist-2-7/{kernel}", scale, replace(config, data=data, model=model))


def insensitivity(
    dataset: str, model: Kernel, scale: Scale, *, fixed: int | None = None, start: int = STARTS[0], seed: int = 0
) -> Cell:
    """A small GP for few images; a TICK-GP with a fixed location lengthscale, or one learned from `start` on."""
    name = f"{dataset}-5000/{model}"
    if model == "tick" and fixed is not None:
        name += f"-{fixed}"
    elif model == "tick" and start != STARTS[0]:
        name += f"-from-{start}"
    if scale == "smoke":
        config = _shallow(dataset, model, scale)
        settings, data, training = config.model, config.data, config.training
    else:
        data = DataConfig(dataset, train_images=5000)
        settings = ModelConfig(
            model, num_inducing=200, stride=2, initialiser="kmeans", variance=100.0, weight_prior=False
        )
        training = TrainingConfig(max_steps=2000, batch_size=64, report_every=500)
    if model == "tick":
        settings = replace(settings, location_lengthscale=float(fixed or start), learn_location=fixed is None)
    return Cell(_seeded(name, seed), scale, Config(seed, 100, data=data, model=settings, training=training))


def small_deep(
    dataset: str,
    scale: Scale,
    *,
    channels: int = ModelConfig.channels,
    sampling: Sampling = "marginal",
    seed: int = 0,
) -> Cell:
    """A TICK-GP of two layers for few images with so many channels between them, trained with one way to draw these.

    Otherwise as `tickgp train` has it, but for the prior on patch weights, which came later.
    """
    data = DataConfig(dataset, train_images=5000, test_images=3000)
    model = ModelConfig("deep-tick", weight_prior=False)
    training = TrainingConfig(max_steps=2000, batch_size=64, report_every=500)
    if scale == "smoke":
        config = _deep(dataset, "tick", 2, scale)
        data, model, training = config.data, config.model, config.training
    model = replace(model, channels=channels, sampling=sampling)
    name = f"{dataset}-5000/channels-{channels}" + ("" if sampling == "marginal" else f"-{sampling}")
    return Cell(_seeded(name, seed), scale, Config(seed, 100, data=data, model=model, training=training))


def few_images(dataset: str, weights: Weights, scale: Scale, *, seed: int = 0) -> Cell:
    """A TICK-GP for 300 images, of three classes if they are coloured, otherwise as `tickgp train` has it."""
    classes = ("automobile", "bird", "ship") if dataset == "cifar10" else ()
    data = DataConfig(dataset, train_images=300, classes=classes)
    model, training = ModelConfig("tick"), TrainingConfig(report_every=500)
    if scale == "smoke":
        config = _shallow(dataset, "tick", scale)
        data, model, training = replace(config.data, classes=classes), config.model, config.training
    model = replace(model, weights=weights != "equal", weight_prior=weights == "prior")
    settings = Config(seed, 100, data=data, model=model, training=training)
    return Cell(_seeded(f"{dataset}-300/weights-{weights}", seed), scale, settings)


def deep(dataset: str, kernel: Kernel, depth: int, scale: Scale) -> Cell:
    """A GP of one to three layers with 384 inducing patches each: table 2."""
    needs = (deep(dataset, kernel, 2, scale),) if depth == 3 else ()
    return Cell(f"{dataset}/deep-{kernel}-{depth}", scale, _deep(dataset, kernel, depth, scale), needs)


def switched(kernel: Kernel, sampling: Sampling, scale: Scale) -> Cell:
    """The trained two-layer model, trained on with another way to draw its hidden layer."""
    before = deep("mnist", kernel, 2, scale)
    config = _deep("mnist", kernel, 2, scale)
    steps = {"paper": 5000, "fast": 3000, "smoke": 20}[scale]
    training = replace(
        config.training,
        max_steps=steps,
        learning_rate=0.001,
        decay="linear",
        decay_steps=TrainingConfig.decay_steps,
        decay_factor=TrainingConfig.decay_factor,
        report_every=max(steps // 10, 1),
    )
    config = replace(config, model=replace(config.model, sampling=sampling), training=training)
    return Cell(f"{before.name}-{sampling}", scale, config, (before,))


def deep_se(dataset: str, scale: Scale) -> Cell:
    """A deep GP with squared-exponential kernels, two layers of 384 inducing points."""
    config = _deep(dataset, "conv", 2, scale)
    width = 10 if scale == "smoke" else 30
    number, how = config.model.num_inducing, config.model.initialiser
    model = ModelConfig(name="deep-se", num_inducing=number, initialiser=how, width=width, variance=5.0)
    training = replace(config.training, max_steps=60_000) if scale == "fast" else config.training
    return Cell(f"{dataset}/deep-se", scale, replace(config, model=model, training=training))


def cnn(dataset: str, scale: Scale, *, dropout: float = 0.5, seed: int = 0) -> Cell:
    """The dropout CNN of two convolutions, with a tenth of the training images left out to choose by."""
    name = _seeded(f"{dataset}/bcnn-{dropout:g}", seed)
    also_on = ("semeion",) if dataset == "mnist" else ()
    settings = replace(_cnn(dataset, scale), dropout=dropout, seed=seed)
    return Cell(name, _cnn_scale(scale), settings, also_on=also_on)


def ensemble(dataset: str, scale: Scale) -> Cell:
    """The mean of five CNNs that differ in their seeds."""
    members = tuple(cnn(dataset, scale, seed=seed) for seed in ENSEMBLE_SEEDS)
    settings = EnsembleConfig(members[0].settings.data, tuple(member.name for member in members))
    return Cell(f"{dataset}/ensemble", members[0].scale, settings, members, members[0].also_on)


def growing_cnn(num_convolutions: int, scale: Scale) -> Cell:
    """The dropout CNN of one to three convolutions on MNIST; with two it is that of table 1."""
    if num_convolutions == 2:
        return cnn("mnist", scale)
    settings = replace(_cnn("mnist", scale), num_convolutions=num_convolutions)
    return Cell(f"mnist/bcnn-depth{num_convolutions}", _cnn_scale(scale), settings)


def _seeded(name: str, seed: int) -> str:
    return f"{name}-seed{seed}" if seed else name


def _shallow(dataset: str, model: ModelName, scale: Scale) -> Config:
    places: dict[str, Any] = {"places": "uniform"} if model == "tick" else {}
    common: dict[str, Any] = {"name": model}
    if model != "se":
        common |= {"stride": 4 if scale == "smoke" else 1, "weight_prior": False}
    if model == "tick":
        common["location_lengthscale"] = float(STARTS[0])
    match scale:
        case "paper":
            settings = ModelConfig(num_inducing=1000, initialiser="random", variance=5.0, **common, **places)
            training = TrainingConfig(
                max_steps=100_000,
                report_every=1000,
                checkpoint_every=5000,
                watched_images=2000,
                decay="inverse",
                **_PLAIN,
            )
        case "fast":
            variance = 5.0 if model == "se" else 100.0
            settings = ModelConfig(num_inducing=1000, initialiser="kmeans", variance=variance, **common)
            training = TrainingConfig(
                # on harder images Conv and TICK gain from more; for SE-GPs it was not tried
                max_steps=30_000 if dataset == "mnist" or model == "se" else 100_000,
                batch_size=1024 if model == "se" else 128,  # only SE-GPs gain from it
                learning_rate=0.01,
                report_every=1000,
                checkpoint_every=5000,
                watched_images=2000,
            )
        case "smoke":
            settings = ModelConfig(num_inducing=20, initialiser="random", variance=100.0, **common, **places)
            training = _SMOKE
    return Config(prediction_samples=100, data=_data(dataset, scale), model=settings, training=training)


def _deep(dataset: str, kernel: Kernel, depth: int, scale: Scale) -> Config:
    name: ModelName = f"deep-{kernel}"  # type: ignore[assignment]
    places: dict[str, Any] = {"places": "uniform"} if kernel == "tick" else {}
    batch: dict[str, Any] = {"batch_size": 64 if dataset == "cifar10" else 32, "watched_images": 2000}
    sizes: dict[str, Any] = {"num_inducing": 384, "stride": 1, "hidden_stride": 1, "channels": 10}
    start: dict[str, Any] = {"variance": 5.0, "weight_prior": False}
    if depth > 1:
        start |= {"lengthscale": 4.0, "hidden_variance": 0.1, "hidden_lengthscale": 2.0}
    if kernel == "tick":
        start["location_lengthscale"] = float(STARTS[0])
    match scale:
        case "paper":
            q: dict[str, Any] = {"hidden_q_mu": 0.0, "hidden_mean_field": False}
            model = ModelConfig(name=name, depth=depth, initialiser="random", **sizes, **start, **q, **places)
            decay: dict[str, Any] = {"decay": "step", "decay_factor": 4.0, "decay_steps": 50_000.0}
            training = TrainingConfig(
                max_steps=300_000, report_every=5000, checkpoint_every=5000, **_PLAIN, **decay, **batch
            )
        case "fast":
            model = ModelConfig(name=name, depth=depth, initialiser="kmeans", hidden_mean_field=True, **sizes, **start)
            training = TrainingConfig(
                max_steps=_DEEP_STEPS[dataset][depth],
                # three layers start from two that are trained, which a rate of 0.01 would undo
                learning_rate=0.003 if depth == 3 else 0.01,
                hidden_mean_rate=3.0,
                report_every=5000,
                checkpoint_every=5000,
                **batch,
            )
        case "smoke":
            sizes = {"num_inducing": 20, "channels": 3, "patch_size": 3, "stride": 2, "hidden_stride": 2}
            model = ModelConfig(
                name=name, depth=depth, initialiser="random", hidden_mean_field=False, **sizes, **start, **places
            )
            training = replace(_SMOKE, learning_rate=0.02)
    return Config(prediction_samples=100, data=_data(dataset, scale), model=model, training=training)


def _cnn(dataset: str, scale: Scale) -> CnnConfig:
    data = replace(_data(dataset, scale), validation_share=0.1)
    if scale == "smoke":
        return CnnConfig(data, max_steps=100, batch_size=32, report_every=20, watched_images=100, prediction_samples=20)
    return CnnConfig(data)


def _cnn_scale(scale: Scale) -> Scale:
    return "paper" if scale == "fast" else scale


def _data(dataset: str, scale: Scale) -> DataConfig:
    if scale == "smoke":
        return DataConfig(dataset=dataset, train_images=1000, test_images=300)
    return DataConfig(dataset=dataset)


_DEEP_STEPS = {"mnist": {1: 60_000, 2: 60_000, 3: 30_000}, "cifar10": {1: 120_000, 2: 120_000, 3: 40_000}}
"""Of our settings, by dataset and number of layers."""
_PLAIN: dict[str, Any] = {"learning_rate": 0.01, "natural_gradients": False, "likelihood_samples": 1}
"""Adam for all, and one draw: how the paper's models are trained here."""
_SMOKE = TrainingConfig(
    max_steps=200, batch_size=32, learning_rate=0.05, report_every=20, checkpoint_every=100, watched_images=100
)
