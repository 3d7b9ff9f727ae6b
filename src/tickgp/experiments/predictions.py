"""Predicted probabilities of a run, kept in its folder for the figures and for ensembles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tickgp.training.tensors import read_arrays, save_tree

NAME = "predictions.safetensors"


def save_predictions(folder: Path, probabilities: Mapping[str, np.ndarray]) -> None:
    """Arrays (N, K), named by dataset and kind of prediction: `test/100`, `semeion/dropout`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tree(folder / NAME, {name: p.astype(np.float32) for name, p in probabilities.items()})


def read_predictions(folder: Path) -> dict[str, np.ndarray] | None:
    """What `save_predictions` left there; None if the run was made elsewhere or is not finished."""
    path = folder / NAME
    return {name: p.astype(float) for name, p in read_arrays(path)[0].items()} if path.is_file() else None
