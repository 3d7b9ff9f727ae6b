"""What a finished run leaves under results/: one JSON file, from which the tables and most figures are made."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tickgp.evaluation.metrics import bootstrap, evaluate
from tickgp.experiments.cells import Cell, Scale
from tickgp.runs.folder import machine, write_json

LONGEST_CURVE = 200


def result_path(results: Path, scale: Scale, name: str) -> Path:
    return results / scale / f"{name}.json"


def read_result(results: Path, scale: Scale, name: str) -> dict[str, Any] | None:
    """The result of a run; None if it has not been finished."""
    path = result_path(results, scale, name)
    return json.loads(path.read_text()) if path.is_file() else None


def is_done(results: Path, scale: Scale, cell: Cell) -> bool:
    """Whether there is a result of this run, made with these settings."""
    result = read_result(results, scale, cell.name)
    return result is not None and _agree(result["settings"], settings_of(cell))


def _agree(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether all that the old settings say still holds; what they do not say came later, and was at its default."""
    return all(
        name in new and (_agree(value, new[name]) if isinstance(value, dict) else value == new[name])
        for name, value in old.items()
    )


def write_result(results: Path, scale: Scale, cell: Cell, content: dict[str, Any]) -> None:
    """The result file of a run: what it is, how it was made, and `content`."""
    head = {
        "run": cell.name,
        "scale": scale,
        "settings": settings_of(cell),
        "seed": cell.settings.seed,
        "machine": machine(jax.devices()[0].device_kind),
    }
    path = result_path(results, scale, cell.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**head, **content})


def settings_of(cell: Cell) -> dict[str, Any]:
    """The settings as JSON has them, without the places of files on one machine."""
    settings = json.loads(json.dumps(asdict(cell.settings), default=str))
    settings["data"].pop("data_dir")
    return {**settings, "start_from": cell.start_from}


def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Metrics with their bootstrap intervals."""
    return {"test": evaluate(probabilities, labels), "interval": bootstrap(probabilities, labels)}


def thinned(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a few hundred points of a curve, the last one among them."""
    stride = -(-len(history) // LONGEST_CURVE) or 1
    return history[::-1][::stride][::-1]
