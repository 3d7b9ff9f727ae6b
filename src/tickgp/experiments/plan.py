"""Which runs each table and figure of the paper needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tickgp.experiments.cells import (
    CHANNELS,
    DROPOUT_RATES,
    ENSEMBLE_SEEDS,
    LENGTHSCALES,
    SEEDS,
    STARTS,
    WEIGHTS,
    Cell,
    Kernel,
    Scale,
    Weights,
    cnn,
    deep,
    deep_se,
    ensemble,
    few_images,
    growing_cnn,
    insensitivity,
    pretrained,
    shallow,
    small_deep,
    switched,
    two_against_seven,
)
from tickgp.training.config import ModelName, Sampling

KERNELS: dict[Kernel, Literal["Conv", "TICK"]] = {"conv": "Conv", "tick": "TICK"}
SHALLOW: dict[ModelName, str] = {"se": "SE", "conv": KERNELS["conv"], "tick": KERNELS["tick"]}
"""Of one layer: tables 1 and 3."""
DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10-grey": "grey CIFAR-10"}
"""Of table 1."""
DEEP_DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
"""Of table 2."""
DEPTHS = (1, 2, 3)
SWEPT = ("mnist", "cifar10-grey")
"""Datasets of the experiment on insensitivity."""
FEW_IMAGES = {"mnist": "MNIST", "cifar10": "three classes of CIFAR-10"}
"""Of the experiment on patch weights with few images."""
SAMPLERS: tuple[Sampling, ...] = ("marginal", "full", "correlated")


@dataclass(frozen=True)
class Experiment:
    """A table or figure: what it shows, and the runs it is made from."""

    about: str
    cells: Callable[[Scale], list[Cell]]


def _cnns(dataset: str, scale: Scale) -> list[Cell]:
    grid = [cnn(dataset, scale, dropout=rate) for rate in DROPOUT_RATES]
    return [*grid, *(cnn(dataset, scale, seed=seed) for seed in ENSEMBLE_SEEDS if seed), ensemble(dataset, scale)]


def _table1(scale: Scale) -> list[Cell]:
    return [
        cell
        for dataset in DATASETS
        for cell in [*(shallow(dataset, model, scale) for model in SHALLOW), *_cnns(dataset, scale)]
    ]


def _table2(scale: Scale) -> list[Cell]:
    return [deep(dataset, kernel, depth, scale) for dataset in DEEP_DATASETS for depth in DEPTHS for kernel in KERNELS]


def _table3(scale: Scale) -> list[Cell]:
    return [*(shallow("mnist", kernel, scale) for kernel in KERNELS), *_cnns("mnist", scale)]


def _depth_baselines(scale: Scale) -> list[Cell]:
    return [*(growing_cnn(depth, scale) for depth in DEPTHS), *(deep_se(dataset, scale) for dataset in DEEP_DATASETS)]


def _seeds(scale: Scale) -> list[Cell]:
    return [shallow("mnist", model, scale, seed=seed) for model in SHALLOW for seed in SEEDS]


def _insensitivity(scale: Scale) -> list[Cell]:
    """None at the paper's settings: the paper has no such experiment."""
    return [cell for dataset in SWEPT for cells in swept(dataset, scale).values() for cell in cells]


def swept(dataset: str, scale: Scale) -> dict[str, list[Cell]]:
    """TICK with fixed location lengthscales and with learned ones, and Conv: the runs with each seed, by name."""
    if scale == "paper":
        return {}
    lengthscales, seeds = (LENGTHSCALES, SEEDS) if scale == "fast" else (LENGTHSCALES[::4], SEEDS[:2])
    models: dict[str, tuple[Kernel, dict[str, int]]] = {
        **{f"TICK, fixed at {ell}": ("tick", {"fixed": ell}) for ell in lengthscales},
        **{f"TICK, learned from {start}": ("tick", {"start": start}) for start in STARTS},
        "Conv": ("conv", {}),
    }
    return {
        title: [insensitivity(dataset, kernel, scale, **location, seed=seed) for seed in seeds]
        for title, (kernel, location) in models.items()
    }


def _channels(scale: Scale) -> list[Cell]:
    """None at the paper's settings: the paper has no such experiment."""
    return [cell for dataset in DEEP_DATASETS for cell in with_channels(dataset, scale).values()]


def with_channels(dataset: str, scale: Scale) -> dict[int, Cell]:
    """Two layers, by the number of channels between them."""
    numbers: dict[Scale, tuple[int, ...]] = {"paper": (), "fast": CHANNELS, "smoke": CHANNELS[::3]}
    return {number: small_deep(dataset, scale, channels=number) for number in numbers[scale]}


def _samplers(scale: Scale) -> list[Cell]:
    """None at the paper's settings: the paper only trains on with joint samples."""
    return [cell for dataset in DEEP_DATASETS for cells in with_samplers(dataset, scale).values() for cell in cells]


def with_samplers(dataset: str, scale: Scale) -> dict[Sampling, list[Cell]]:
    """Two small layers, by how the hidden one is drawn from the first step on: the runs with each seed."""
    if scale == "paper":
        return {}
    seeds = SEEDS if scale == "fast" and dataset == "mnist" else SEEDS[:1]
    return {how: [small_deep(dataset, scale, sampling=how, seed=seed) for seed in seeds] for how in SAMPLERS}


def _weights(scale: Scale) -> list[Cell]:
    """None at the paper's settings: the paper has no such experiment."""
    return [cell for dataset in FEW_IMAGES for cells in with_weights(dataset, scale).values() for cell in cells]


def with_weights(dataset: str, scale: Scale) -> dict[Weights, list[Cell]]:
    """TICK for few images, by what its patch weights are: the runs with each seed."""
    numbers: dict[Scale, int] = {"paper": 0, "fast": len(SEEDS), "smoke": 2}
    seeds = SEEDS[: numbers[scale]]
    return {weights: [few_images(dataset, weights, scale, seed=seed) for seed in seeds] for weights in WEIGHTS}


def _dropout(scale: Scale) -> list[Cell]:
    return [shallow("mnist", "tick", scale), *(cnn("mnist", scale, dropout=rate) for rate in (0.25, 0.75))]


def _pretrained(scale: Scale) -> list[Cell]:
    """None at the paper's settings: this model is ours."""
    return [] if scale == "paper" else [pretrained(scale)]


def _traces(scale: Scale) -> list[Cell]:
    return [cell for cell in _table2(scale) if cell.name.startswith("mnist/")]


def _full_covariance(scale: Scale) -> list[Cell]:
    before = [deep("mnist", kernel, 2, scale) for kernel in KERNELS]
    return before + [switched(kernel, sampling, scale) for kernel in KERNELS for sampling in SAMPLERS]


EXPERIMENTS = {
    "table1": Experiment("SE, Conv, TICK and B-CNN on MNIST, Fashion-MNIST and grey CIFAR-10", _table1),
    "table2": Experiment("deep Conv against deep TICK, depths 1 to 3, on MNIST and CIFAR-10", _table2),
    "table3": Experiment("trained on MNIST, tested on Semeion", _table3),
    "depth-baselines": Experiment("growing B-CNNs, and deep GPs with SE kernels", _depth_baselines),
    "patch-response": Experiment(
        "samples of the patch response, 2 against 7", lambda scale: [two_against_seven(k, scale) for k in KERNELS]
    ),
    "misclassified": Experiment("probabilities of misclassified images of MNIST and Semeion", _table3),
    "dropout": Experiment("train and test NLL of TICK and of B-CNNs of two dropout rates", _dropout),
    "traces": Experiment("error against steps, depths 1 to 3", _traces),
    "pretrained": Experiment("the small TICK-GP that comes with the library", _pretrained),
    "seeds": Experiment("SE, Conv and TICK on MNIST with three seeds", _seeds),
    "insensitivity": Experiment("TICK with fixed location lengthscales beside learned ones", _insensitivity),
    "channels": Experiment("two layers of TICK with few and many channels between them", _channels),
    "samplers": Experiment("two layers of TICK, trained with each way to draw the hidden one", _samplers),
    "weights": Experiment("TICK for 300 images, with and without learned patch weights", _weights),
    "full-covariance": Experiment("hidden layers drawn from marginals, jointly, and through u", _full_covariance),
}


def cells_of(experiments: list[str], scale: Scale) -> list[Cell]:
    """The runs that these experiments need, each once, none before one that it needs."""
    cells = {cell.name: cell for name in experiments for cell in EXPERIMENTS[name].cells(scale)}
    return sorted(cells.values(), key=lambda cell: cell.start_from is not None)
