"""What a run says of itself while it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Note:
    """Something worth saying."""

    text: str


@dataclass(frozen=True)
class Stage:
    """What is being done now; it may take a while."""

    text: str


@dataclass(frozen=True)
class Report:
    """Where training stands: a line of metrics.jsonl."""

    step: int
    elbo: float
    """Mean of the minibatch estimates since the last report, each for the whole dataset; NaN if no step succeeded."""
    nll: float
    """Of the watched held-out images."""
    top1_error: float
    """Of the watched held-out images."""
    train_nll: float
    """Of as many training images."""
    jitter: float
    """As it is now: training raises it when Kuu comes close to singular."""
    skipped: int
    """Steps since the last report that were not applied, because the gradient was not finite."""
    seconds: float
    """That training took so far, compilation included; reports do not count."""


@dataclass(frozen=True)
class Step:
    """Where training stands between two reports that are far apart in time."""

    step: int
    seconds: float
    """As of a report."""


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step, with a checkpoint."""

    step: int


@dataclass(frozen=True)
class Finished:
    """Training ended; the folder is complete."""

    metrics: dict[str, Any]


Event = Note | Stage | Report | Step | Stopped | Finished
