"""What figures take from the folders of runs: predictions, if they are those that the results were made from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tickgp.evaluation.metrics import Outcomes
from tickgp.experiments.predictions import NAME, read_predictions
from tickgp.experiments.results import Places
from tickgp.experiments.tables import Book


def have_predictions(book: Book, places: Places, names: Iterable[str]) -> bool:
    """Whether these runs have results and have left predictions, which a `git clone` lacks."""
    return all(book.run(name) and (places.folder(book.cells[name]) / NAME).is_file() for name in names)


def predictions_of(book: Book, places: Places, name: str, on: str, way: str, labels: np.ndarray) -> np.ndarray | None:
    """The probabilities that a run left in its folder; None if they are not those that its result was made from."""
    result = book.run(name)
    found = None if result is None else read_predictions(places.folder(book.cells[name]))
    if result is None or found is None:
        return None
    p = found[f"{on}/{way}"]
    same = len(p) == len(labels) and np.isclose(
        Outcomes.of(p, labels).nll(), result["metrics"][on][way]["test"]["nll"], rtol=1e-4
    )
    return p if same else None
