"""Runs side by side, the best ELBO first: the paper's way to choose a model without a validation set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tickgp.errors import UsageError
from tickgp.runs.folder import read_json
from tickgp.training.config import DataConfig
from tickgp.training.toml import read_config

NO_ELBO = (
    "a run without a finite ELBO comes last, and its place says nothing; compare it by the test metrics, which are not "
    "made for choosing"
)
MIXED = (
    "with several layers the ELBO is estimated from marginal samples, which make it a bound of no model; beside that "
    "of a single layer it is a hint, not a reason"
)


@dataclass(frozen=True)
class Compared:
    """A run among others."""

    run: str
    model: str
    steps: int
    sampling: str | None
    """How hidden layers are drawn; None where there are none."""
    elbo: float | None
    test: dict[str, Any]


def compare_runs(folders: Sequence[Path]) -> list[Compared]:
    """The runs in the order of their ELBO, those without one last.

    ELBOs of different data, or of deep models whose hidden layers are drawn in different ways, are of different things:
    such runs are refused. Those of different likelihoods, all of them probabilities of the same labels, are not.
    """
    if len(folders) < 2:
        raise UsageError(f"{len(folders)} run was given; to compare, give at least two")
    first, *others = [_data(folder) for folder in folders]
    for folder, data in zip(folders[1:], others, strict=True):
        if data != first:
            raise UsageError(
                f"{folders[0]} and {folder} have different data ({_differing(folders[0], folder)}), so that their "
                "ELBOs cannot be compared; train them on the same images"
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


def _compared(folder: Path) -> Compared:
    metrics = read_json(folder / "metrics.json")
    return Compared(
        run=str(folder),
        model=metrics["model"],
        steps=metrics["steps"],
        sampling=_sampling(folder),
        elbo=metrics["elbo"],
        test=metrics["test"],
    )


def _data(folder: Path) -> str:
    """The fingerprint of the images and labels: the name may be written in other ways."""
    return read_json(folder / "manifest.json")["dataset"]["sha256"]


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
