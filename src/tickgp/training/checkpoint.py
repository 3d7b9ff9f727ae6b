"""Checkpoints: the state of training on disk, always with a good one to go back to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from tickgp.training.tensors import load_tree, read_words, save_tree

KEPT = 2


@runtime_checkable
class Stepped(Protocol):
    """A state of training: a tree of arrays, one of them the number of its step."""

    step: Any


State = TypeVar("State", bound=Stepped)


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """What training goes on from."""

    state: State
    seconds: float = 0.0
    """That training took so far."""
    broken: tuple[str, ...] = ()
    """A sentence for each later one that had to be passed over."""


def save_checkpoint(folder: Path, state: Stepped, seconds: float) -> Path:
    """`state` as a file of its own, named by its step.

    Of the older files the latest is kept, as a reserve. Files of later steps are deleted: training would have gone on
    from them, had they not been broken.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{int(state.step):08d}.safetensors"
    save_tree(path, state, {"seconds": f"{seconds:.3f}"})
    place = checkpoints(folder).index(path)
    for other in (*checkpoints(folder)[:place], *checkpoints(folder)[place + KEPT :]):
        other.unlink()
    return path


def load_checkpoint(folder: Path, like: State) -> Checkpoint[State]:
    """The latest good checkpoint."""
    broken: list[str] = []
    for path in checkpoints(folder):
        try:
            return Checkpoint(load_tree(path, like), float(read_words(path)["seconds"]), tuple(broken))
        except (ValueError, OSError) as error:
            broken.append(str(error))
    reasons = "; ".join(broken) or "it is empty"
    raise ValueError(f"{folder} holds no checkpoint to resume from: {reasons}; start the run anew")


def reached(folder: Path) -> int:
    """The step of the latest checkpoint; 0 if there is none."""
    return max((int(path.stem.partition("-")[2]) for path in checkpoints(folder)), default=0)


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoint files, the latest first."""
    return sorted((p for p in folder.glob("*") if re.fullmatch(r"step-\d+\.safetensors", p.name)), reverse=True)
