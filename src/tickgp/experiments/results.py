"""What a finished run leaves under results/: one JSON file, from which the tables and most figures are made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cattrs
import jax
import numpy as np

from tickgp.evaluation.metrics import evaluate, intervals
from tickgp.experiments.cells import Cell, CnnConfig, EnsembleConfig
from tickgp.runs.folder import write_json
from tickgp.runs.manifest import machine
from tickgp.training.config import Config, applies
from tickgp.training.tensors import FORMAT
from tickgp.training.toml import converter

LONGEST_CURVE = 200
LOGARITHMIC = 3
"""The first format of which variances and lengthscales are learned by their logarithms."""


@dataclass(frozen=True)
class Places:
    """Where things are: runs with their checkpoints, the results to keep, and the data."""

    work: Path
    results: Path
    data_dir: Path | None

    def folder(self, cell: Cell) -> Path:
        """The folder of one run."""
        return self.work / cell.scale / cell.name


def result_path(results: Path, cell: Cell) -> Path:
    return results / cell.scale / f"{cell.name}.json"


def read_result(results: Path, cell: Cell) -> dict[str, Any] | None:
    """The result of this run; None without one that was made with these settings, and tested on all data it is to be.

    An outdated one counts.
    """
    path = result_path(results, cell)
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    is_whole = set(cell.also_on) <= result.get("metrics", {}).keys()
    return result if is_whole and result["scale"] == cell.scale and agree(result["settings"], cell) else None


def is_done(results: Path, cell: Cell, *, up_to_date: bool = False) -> bool:
    """Whether there is a result of this run; an outdated one counts, unless it is to be `up_to_date`."""
    result = read_result(results, cell)
    return result is not None and not (up_to_date and is_outdated(result))


def is_outdated(result: dict[str, Any]) -> bool:
    """Whether it is of a GP that learned variances and lengthscales on another scale, as earlier versions did."""
    return "model" in result["settings"] and result.get("format", 0) < LOGARITHMIC


def agree(said: dict[str, Any], cell: Cell) -> bool:
    """Whether a run with the settings `said` is this one, and was made from the runs that this one needs.

    A setting of which nothing is said came later: it was at its default.
    """
    made_from = said.get("needs", {})
    return (
        said.get("start_from") == cell.start_from
        and _understood(said, cell) == _understood(settings_of(cell), cell)
        and made_from.keys() == {other.name for other in cell.needs}
        and all(agree(made_from[other.name], other) for other in cell.needs)
    )


def _understood(said: dict[str, Any], cell: Cell) -> Config | CnnConfig | EnsembleConfig | None:
    """Settings as JSON has them, without those that such a model does not have; None if they are not of this kind."""
    own = {name: value for name, value in said.items() if name not in ("needs", "start_from", "format")}
    try:
        return converter().structure(_meaningful(own), type(cell.settings))
    except cattrs.BaseValidationError:
        return None


def write_result(results: Path, cell: Cell, content: dict[str, Any]) -> None:
    """The result file of a run: what it is, how it was made, and `content`.

    The machine is this one, unless `content` names another that it was trained on.
    """
    head = {
        "run": cell.name,
        "format": FORMAT,
        "scale": cell.scale,
        "settings": all_settings(cell),
        "seed": cell.settings.seed,
        "machine": machine(jax.devices()[0].device_kind),
    }
    path = result_path(results, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**head, **content})


def all_settings(cell: Cell) -> dict[str, Any]:
    """The settings of a run, and in them those of the runs that it needs."""
    return {**settings_of(cell), "needs": {other.name: all_settings(other) for other in cell.needs}}


def settings_of(cell: Cell) -> dict[str, Any]:
    """A run's own settings as JSON has them, without the places of files on one machine."""
    return _as_json({**asdict(cell.settings), "start_from": cell.start_from})


def scores(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Metrics with their intervals."""
    return {"test": evaluate(probabilities, labels), "interval": intervals(probabilities, labels)}


def thinned(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most a few hundred points of a curve, the last one among them."""
    stride = -(-len(history) // LONGEST_CURVE) or 1
    return history[::-1][::stride][::-1]


def column_of(result: dict[str, Any], name: str) -> np.ndarray:
    """One number along the curve of a run; NaN where it was not finite."""
    return np.array([np.nan if line[name] is None else line[name] for line in result["curve"]], float)


def watched(results: Iterable[dict[str, Any]]) -> str:
    """How many test images the curves of these runs were measured on."""
    settings = [result["settings"] for result in results]
    numbers = {some.get("training", some)["watched_images"] for some in settings}
    return " or ".join(f"{number:,}" for number in sorted(numbers))


def _meaningful(settings: dict[str, Any]) -> dict[str, Any]:
    """Without settings of the model that such a model does not have."""
    if (model := settings.get("model")) is None:
        return settings
    kept = [name for name in model if applies(name, model["name"])]
    if model.get("depth") == 1:
        kept = [name for name in kept if not name.startswith("hidden_")]
    return {**settings, "model": {name: model[name] for name in kept}}


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    plain["data"].pop("data_dir")
    return plain
