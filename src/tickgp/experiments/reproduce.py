"""The runs of experiments, one after the other, each from where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tickgp.experiments.cells import Cell, CnnConfig, EnsembleConfig, Scale
from tickgp.experiments.ensemble import judge_ensemble
from tickgp.experiments.results import is_done, settings_of, write_result
from tickgp.experiments.run_cnn import judge_cnn, train_cnn_cell
from tickgp.experiments.run_gp import judge_gp, train_gp
from tickgp.runs.events import Event, Stopped
from tickgp.runs.folder import read_json, write_json
from tickgp.training.config import Config


@dataclass(frozen=True)
class Places:
    """Where things are: runs with their checkpoints, the results to keep, and the data."""

    work: Path
    results: Path
    data_dir: Path | None

    def folder(self, scale: Scale, name: str) -> Path:
        """The folder of one run."""
        return self.work / scale / name


@dataclass(frozen=True)
class Begun:
    """A run is next."""

    cell: Cell


@dataclass(frozen=True)
class Done:
    """A run has left its result."""

    cell: Cell


def reproduce(
    cells: list[Cell], scale: Scale, places: Places, stop: Callable[[], bool]
) -> Iterator[Begun | Done | Event]:
    """Run what has no result yet; ends after the run in which `stop` said so."""
    for cell in cells:
        if is_done(places.results, scale, cell):
            continue
        yield Begun(cell)
        for event in _train(cell, scale, places, stop):
            yield event
            if isinstance(event, Stopped):
                return
        write_result(places.results, scale, cell, _judge(cell, scale, places))
        yield Done(cell)
        if stop():
            return


def _train(cell: Cell, scale: Scale, places: Places, stop: Callable[[], bool]) -> Iterator[Event]:
    folder = places.folder(scale, cell.name)
    _clear_if_other(cell, folder)
    match cell.settings:
        case EnsembleConfig():
            return iter(())
        case CnnConfig():
            return train_cnn_cell(cell, folder, places.data_dir, stop)
        case Config():
            return train_gp(cell, folder, places.work / scale, places.data_dir, stop)


def _judge(cell: Cell, scale: Scale, places: Places) -> dict[str, Any]:
    folder = places.folder(scale, cell.name)
    match cell.settings:
        case EnsembleConfig():
            return judge_ensemble(cell, folder, places.work / scale, places.data_dir)
        case CnnConfig():
            return judge_cnn(cell, folder, places.data_dir)
        case Config():
            return judge_gp(cell, folder)


def _clear_if_other(cell: Cell, folder: Path) -> None:
    """A run that was begun with other settings cannot be continued: it is begun anew."""
    path, settings = folder.with_name(f"{folder.name}.json"), settings_of(cell)
    if path.is_file() and read_json(path) == settings:
        return
    if folder.is_dir():
        shutil.rmtree(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, settings)
