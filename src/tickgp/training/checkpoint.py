"""Checkpoints: the state of training on disk, always with a good one to go back to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from tickgp.training.tensors import load_tree, save_tree

KEPT = 2


@runtime_checkable
class Stepped(Protocol):
    """A state of training: a tree of arrays, one of them the number of its step."""

    step: Any


State = TypeVar("State", bound=Stepped)


def save_checkpoint(folder: Path, state: Stepped) -> Path:
    """`state` as a file of its own, named by its step; of the older ones only the latest is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{int(state.step):08d}.safetensors"
    save_tree(path, state)
    for old in checkpoints(folder)[KEPT:]:
        old.unlink()
    return path


def load_checkpoint(folder: Path, like: State) -> tuple[State, list[str]]:
    """The latest good checkpoint, and a sentence for each broken one that had to be passed over."""
    broken: list[str] = []
    for path in checkpoints(folder):
        try:
            return load_tree(path, like), broken
        except (ValueError, OSError) as error:
            broken.append(str(error))
    reasons = "; ".join(broken) or "it is empty"
    raise ValueError(f"{folder} holds no checkpoint to resume from: {reasons}; start the run anew")


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoint files, the latest first."""
    return sorted((p for p in folder.glob("*") if re.fullmatch(r"step-\d+\.safetensors", p.name)), reverse=True)
