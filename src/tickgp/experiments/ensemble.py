"""Several trained CNNs as one: the mean of their probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from tickgp.experiments.cells import Cell
from tickgp.experiments.predictions import other_data, read_predictions, save_predictions
from tickgp.experiments.results import Places, scores
from tickgp.experiments.run_cnn import load_cnn_data


def judge_ensemble(cell: Cell, places: Places) -> dict[str, Any]:
    """The content of the result file: from the predictions that the members left in their folders."""
    members = [_predictions(places, member) for member in cell.needs]
    data = load_cnn_data(cell, places.data_dir)
    splits = {"test": data.test} | other_data(cell, data.train.images.shape[1:], places.data_dir)
    p = {name: np.mean([member[f"{name}/deterministic"] for member in members], axis=0) for name in splits}
    save_predictions(places.folder(cell), {f"{name}/ensemble": values for name, values in p.items()})
    return {
        "dataset": {"name": data.name, "sha256": data.sha256()},
        "seconds": 0.0,
        "steps": None,
        "elbo": None,
        "metrics": {name: {"ensemble": scores(p[name], split.labels)} for name, split in splits.items()},
        "curve": [],
    }


def _predictions(places: Places, member: Cell) -> dict[str, np.ndarray]:
    found = read_predictions(places.folder(member))
    assert found is not None  # the members are finished before their ensemble is begun
    return found
