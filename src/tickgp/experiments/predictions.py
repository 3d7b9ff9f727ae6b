"""What a run is tested on besides its own data, and its predictions, kept in its folder for figures and ensembles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tickgp.data.contents import Split
from tickgp.data.dataset import load_dataset
from tickgp.experiments.cells import Cell
from tickgp.training.tensors import read_arrays, save_tree

NAME = "predictions.safetensors"


def other_data(cell: Cell, like: tuple[int, ...], data_dir: Path | None) -> dict[str, Split]:
    """The other data that a run is tested on, as images of the shape `like`."""
    return {name: load_dataset(name, data_dir=data_dir, test_share=1.0, like=like).test for name in cell.also_on}


def save_predictions(folder: Path, probabilities: Mapping[str, np.ndarray]) -> None:
    """Arrays (N, K), named by dataset and kind of prediction: `test/100`, `semeion/dropout`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tree(folder / NAME, {name: p.astype(np.float32) for name, p in probabilities.items()})


def read_predictions(folder: Path) -> dict[str, np.ndarray] | None:
    """What `save_predictions` left there; None if the run was made elsewhere or is not finished."""
    path = folder / NAME
    return {name: p.astype(float) for name, p in read_arrays(path)[0].items()} if path.is_file() else None
