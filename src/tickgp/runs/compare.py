"""Runs side by side, the best ELBO first: the paper's way to choose a model without a validation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from typing import Any

from tickgp.errors import UsageError
from tickgp.runs.folder import read_json
from tickgp.training.config import DataConfig
from tickgp.training.toml import read_config

NO_ELBO = (
    "runs without a finite ELBO are listed last, unranked; compare them by the test metrics, which are not made for "
    "choosing"
)
MIXED = (
    "with several layers the ELBO is estimated from marginal samples, which make it a bound of no model; beside that "
    "of a single layer it is only a rough guide"
)

READ_DIFFERENTLY = (
    "the same labels of images that were read in different ways: the ELBO chooses between these too, if the files were "
    "the same"
)
MISLED = (
    "the run with the best ELBO has not nearly the least NLL on test images: with few training images the ELBO can "
    "favour a model that fits them too closely"
)
_READING = ("image_size", "fit", "grey")
"""Settings that change how an image is read, and not which images there are."""


@dataclass(frozen=True)
class Compared:
    """A run among others."""

    run: str
    model: str
    images: str
    """How its images were read where this was asked for: "image-size 32, grey"."""
    steps: int
    sampling: str | None
    """How hidden layers are drawn; None where there are none."""
    elbo: float | None
    test: dict[str, Any]


def compare_runs(folders: Sequence[Path]) -> list[Compared]:
    """The runs in the order of their ELBO, those without one last.

    ELBOs of different data, or of deep models whose hidden layers are drawn in different ways, are of different things:
    such runs are refused. Those of different likelihoods, or of the same images in different sizes, are all bounds of
    the probability of the same labels, and are not.
    """
    if len(folders) < 2:
        raise UsageError(f"{len(folders)} run was given; to compare, give at least two")
    for first, second in combinations(folders, 2):
        if not _same_labels(first, second):
            raise UsageError(
                f"{first} and {second} have different data ({_differing(first, second)}), so that their ELBOs cannot "
                "be compared; train them on the same images"
            )
    with_elbo = [folder for folder in folders if read_json(folder / "metrics.json")["elbo"] is not None]
    deep = [(folder, sampling) for folder in with_elbo if (sampling := _sampling(folder)) is not None]
    for folder, sampling in deep[1:]:
        if sampling != deep[0][1]:
            raise UsageError(
                f"{deep[0][0]} and {folder} have different samplers ({deep[0][1]} and {sampling}), so that their ELBOs "
                "cannot be compared; train them with the same --sampling"
            )
    return sorted(map(_compared, folders), key=lambda run: float("inf") if run.elbo is None else -run.elbo)


def misleads(compared: Sequence[Compared]) -> bool:
    """Whether the NLL of the run with the best ELBO is a tenth or more above the least one with an ELBO."""
    ranked = [run.test["nll"] for run in compared if run.elbo is not None]
    return bool(ranked) and ranked[0] > 1.1 * min(ranked)


def _compared(folder: Path) -> Compared:
    metrics = read_json(folder / "metrics.json")
    return Compared(
        run=str(folder),
        model=metrics["model"],
        images=_reading(folder),
        steps=metrics["steps"],
        sampling=_sampling(folder),
        elbo=metrics["elbo"],
        test=metrics["test"],
    )


def _same_labels(first: Path, second: Path) -> bool:
    """Whether the data are the same by their fingerprints: the name may be written in other ways.

    Images that were read differently have another one; then that of the labels and of the images' names decides.
    """
    a, b = (read_json(folder / "manifest.json")["dataset"] for folder in (first, second))
    if a["sha256"] == b["sha256"] or _reading(first) == _reading(second):
        return a["sha256"] == b["sha256"]
    return "labels_sha256" in a and a["labels_sha256"] == b.get("labels_sha256")


def _reading(folder: Path) -> str:
    """The settings by which its images were read, in words, unless they are the defaults."""
    data = read_config(folder / "config.toml").data
    asked = {name: getattr(data, name) for name in _READING if getattr(data, name) != getattr(DataConfig, name)}
    return ", ".join(name.replace("_", "-") + ("" if value is True else f" {value}") for name, value in asked.items())


def _sampling(folder: Path) -> str | None:
    """How hidden layers are drawn; None where there are none."""
    model = read_config(folder / "config.toml").model
    return model.sampling if model.name.startswith("deep") and model.depth > 1 else None


def _differing(first: Path, second: Path) -> str:
    """The settings by which two runs have other images, in words; other images of the same settings have changed."""
    a, b = (read_config(folder / "config.toml") for folder in (first, second))
    pairs = {"seed": (a.seed, b.seed)} | {
        field.name: (getattr(a.data, field.name), getattr(b.data, field.name)) for field in fields(DataConfig)
    }
    differing = [f"{name.replace('_', '-')} {x} and {y}" for name, (x, y) in pairs.items() if x != y]
    return ", ".join(differing) or "the images or labels themselves"
