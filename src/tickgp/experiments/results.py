"""What a finished run leaves under results/: one JSON file, from which the tables and most figures are made."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cattrs
import jax
import numpy as np

from tickgp.evaluation.metrics import evaluate, intervals
from tickgp.experiments.cells import Cell, CnnConfig, EnsembleConfig, Scale
from tickgp.experiments.plan import EXPERIMENTS, cells_of
from tickgp.runs.folder import write_json
from tickgp.runs.manifest import machine
from tickgp.training.config import Config, applies
from tickgp.training.tensors import FORMAT
from tickgp.training.toml import converter

LONGEST_CURVE = 200
LOGARITHMIC = 3
"""The first format of which variances and lengthscales are learned by their logarithms."""


def home(scale: Scale, name: str) -> Scale:
    """The scale that a run is kept under: CNNs are the same at `fast` as at the paper's, and are trained once."""
    cell = _planned(scale).get(name)
    if scale == "fast" and cell is not None and not isinstance(cell.settings, Config):
        return "paper"
    return scale


def result_path(results: Path, scale: Scale, name: str) -> Path:
    return results / home(scale, name) / f"{name}.json"


def read_result(results: Path, scale: Scale, name: str) -> dict[str, Any] | None:
    """The result of a run; None if it has not been finished."""
    path = result_path(results, scale, name)
    return json.loads(path.read_text()) if path.is_file() else None


def is_done(results: Path, scale: Scale, cell: Cell, *, up_to_date: bool = False) -> bool:
    """Whether there is a result of this run, made with these settings, on all data that it is to be tested on.

    An outdated one counts, unless it is to be `up_to_date`.
    """
    result = read_result(results, scale, cell.name)
    if result is None or not agree(result["settings"], scale, cell) or (up_to_date and is_outdated(result)):
        return False
    return set(cell.also_on) <= result.get("metrics", {}).keys()


def is_outdated(result: dict[str, Any]) -> bool:
    """Whether it is of a GP that learned variances and lengthscales on another scale, as earlier versions did."""
    return "model" in result["settings"] and result.get("format", 0) < LOGARITHMIC


def agree(said: dict[str, Any], scale: Scale, cell: Cell) -> bool:
    """Whether a run with the settings `said` is this one, and was made from the runs that this one needs.

    A setting of which nothing is said came later: it was at its default.
    """
    made_from, needs = said.get("needs", {}), needed(scale, cell)
    return (
        said.get("start_from") == cell.start_from
        and _understood(said, cell) == _understood(settings_of(cell), cell)
        and made_from.keys() == {other.name for other in needs}
        and all(agree(made_from[other.name], scale, other) for other in needs)
    )


def _understood(said: dict[str, Any], cell: Cell) -> Config | CnnConfig | EnsembleConfig | None:
    """Settings as JSON has them, without those that such a model does not have; None if they are not of this kind."""
    own = {name: value for name, value in said.items() if name not in ("needs", "start_from", "format")}
    try:
        return converter().structure(_meaningful(own), type(cell.settings))
    except cattrs.BaseValidationError:
        return None


def needed(scale: Scale, cell: Cell) -> list[Cell]:
    """The runs that this one is made from: the members of an ensemble, or the one that it starts from."""
    members = cell.settings.members if isinstance(cell.settings, EnsembleConfig) else ()
    names = members if cell.start_from is None else (*members, cell.start_from)
    return [_planned(scale)[name] for name in names]


def write_result(results: Path, scale: Scale, cell: Cell, content: dict[str, Any]) -> None:
    """The result file of a run: what it is, how it was made, and `content`.

    The machine is this one, unless `content` names another that it was trained on.
    """
    head = {
        "run": cell.name,
        "format": FORMAT,
        "scale": home(scale, cell.name),
        "settings": all_settings(scale, cell),
        "seed": cell.settings.seed,
        "machine": machine(jax.devices()[0].device_kind),
    }
    path = result_path(results, scale, cell.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**head, **content})


def all_settings(scale: Scale, cell: Cell) -> dict[str, Any]:
    """The settings of a run, and in them those of the runs that it needs."""
    return {**settings_of(cell), "needs": {other.name: all_settings(scale, other) for other in needed(scale, cell)}}


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


@functools.cache
def _planned(scale: Scale) -> dict[str, Cell]:
    return {cell.name: cell for cell in cells_of([*EXPERIMENTS], scale)}


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
