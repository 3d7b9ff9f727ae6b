"""The runs of experiments, one after the other, each from where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tickgp.experiments.cells import Cell, CnnConfig, EnsembleConfig, Scale
from tickgp.experiments.ensemble import judge_ensemble
from tickgp.experiments.predictions import read_predictions
from tickgp.experiments.results import agree, all_settings, home, is_done, needed, write_result
from tickgp.experiments.run_cnn import judge_cnn, train_cnn_cell
from tickgp.experiments.run_gp import judge_gp, train_gp
from tickgp.runs import model_file
from tickgp.runs.events import Event, Note, Stopped
from tickgp.runs.folder import held, read_json, write_json
from tickgp.training.checkpoint import checkpoints, reached
from tickgp.training.config import Config
from tickgp.training.tensors import FORMAT


@dataclass(frozen=True)
class Places:
    """Where things are: runs with their checkpoints, the results to keep, and the data."""

    work: Path
    results: Path
    data_dir: Path | None

    def folder(self, scale: Scale, name: str) -> Path:
        """The folder of one run."""
        return self.work / home(scale, name) / name


@dataclass(frozen=True)
class Begun:
    """A run is next."""

    cell: Cell


@dataclass(frozen=True)
class Done:
    """A run has left its result."""

    cell: Cell


@dataclass(frozen=True)
class Failed:
    """A run could not be made; those after it still can."""

    cell: Cell
    error: Exception


def reproduce(
    cells: list[Cell], scale: Scale, places: Places, stop: Callable[[], bool]
) -> Iterator[Begun | Done | Failed | Event]:
    """Make these runs; ends after the run in which `stop` said so."""
    for cell in cells:
        for event in run(cell, scale, places, stop):
            yield event
            if isinstance(event, Stopped):
                return
        if stop():
            return


def run(cell: Cell, scale: Scale, places: Places, stop: Callable[[], bool]) -> Iterator[Begun | Done | Failed | Event]:
    """One run, from where it stopped to its result; ends with `Stopped` and a checkpoint if `stop` says so before."""
    yield Begun(cell)
    try:
        for event in _train(cell, scale, places, stop):
            yield event
            if isinstance(event, Stopped):
                return
        write_result(places.results, scale, cell, _judge(cell, scale, places))
        yield Done(cell)
    except Exception as error:
        yield Failed(cell, error)


def left(cells: list[Cell], scale: Scale, places: Places, *, renew: bool = False) -> list[Cell]:
    """The runs without a result, and those that they need but whose result alone is here, as after a `git clone`.

    To `renew` is to count the result of an outdated run as none.
    """
    found, wanted = list[Cell](), set[str]()
    for cell in reversed(cells):
        done = is_done(places.results, scale, cell, up_to_date=renew)
        if not done or (cell.name in wanted and not _is_whole(cell, scale, places)):
            found.append(cell)
            wanted |= {other.name for other in still_needed(cell, scale, places)}
    return found[::-1]


def still_needed(cell: Cell, scale: Scale, places: Places) -> list[Cell]:
    """The runs without which it cannot be made; what it starts from is needed only before its first checkpoint."""
    started = _is_begun(cell, scale, places) and checkpoints(places.folder(scale, cell.name) / "checkpoint")
    return [] if started else needed(scale, cell)


def step_of(cell: Cell, scale: Scale, places: Places) -> int | None:
    """The step that a begun run goes on from; None before its first checkpoint."""
    if not _is_begun(cell, scale, places):
        return None
    return reached(places.folder(scale, cell.name) / "checkpoint") or None


def _train(cell: Cell, scale: Scale, places: Places, stop: Callable[[], bool]) -> Iterator[Event]:
    folder = places.folder(scale, cell.name)
    missing = [other for other in still_needed(cell, scale, places) if not _is_whole(other, scale, places)]
    if missing:
        names = " ".join(other.name for other in missing)
        raise ValueError(f"it is made from runs that are not finished in {places.work}; first run {names}")
    yield from map(Note, _set_aside_if_other(cell, scale, places))
    match cell.settings:
        case CnnConfig():
            yield from train_cnn_cell(cell, folder, places.data_dir, stop)
        case Config():
            yield from train_gp(cell, folder, places.work / scale, places.data_dir, stop)


def _judge(cell: Cell, scale: Scale, places: Places) -> dict[str, Any]:
    folder = places.folder(scale, cell.name)
    match cell.settings:
        case EnsembleConfig():
            return judge_ensemble(cell, folder, places.work / home(scale, cell.name), places.data_dir)
        case CnnConfig():
            return judge_cnn(cell, folder, places.data_dir)
        case Config():
            return judge_gp(cell, folder, places.data_dir)


def _is_whole(cell: Cell, scale: Scale, places: Places) -> bool:
    """Whether its folder holds what other runs are made from: all its predictions, and a GP's trained model."""
    folder = places.folder(scale, cell.name)
    if isinstance(cell.settings, Config) and not (folder / model_file.NAME).is_file():
        return False
    if not _is_begun(cell, scale, places):
        return False
    predicted = {name.partition("/")[0] for name in read_predictions(folder) or ()}
    return predicted >= {"test", *cell.also_on}


def _is_begun(cell: Cell, scale: Scale, places: Places) -> bool:
    """Whether its folder was begun with these settings and, for a GP, by a version that reads its files alike."""
    path = _settings_path(cell, scale, places)
    if not path.is_file():
        return False
    said = read_json(path)
    return agree(said, scale, cell) and (said.get("format") == FORMAT or not isinstance(cell.settings, Config))


def _set_aside_if_other(cell: Cell, scale: Scale, places: Places) -> list[str]:
    """A run that was begun with other settings cannot be continued: it is begun anew, and says so."""
    if _is_begun(cell, scale, places):
        return []
    path, folder = _settings_path(cell, scale, places), places.folder(scale, cell.name)
    notes: list[str] = []
    with held(folder):
        path.unlink(missing_ok=True)  # first: a folder of which half is left must not pass for a begun run
        if checkpoints(folder / "checkpoint") or (folder / model_file.NAME).is_file():
            aside = _free(folder.with_name(f"{folder.name}.before"))
            folder.rename(aside)
            notes.append(
                f"it was begun with other settings or by another version, is kept in {aside}, and is begun anew"
            )
        else:
            shutil.rmtree(folder)
        write_json(path, {"format": FORMAT, **all_settings(scale, cell)})
    return notes


def _free(path: Path) -> Path:
    """`path`, or the first of `path-2`, `path-3` … that is not there."""
    names = (path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 1000)))
    return next(name for name in names if not name.exists())


def _settings_path(cell: Cell, scale: Scale, places: Places) -> Path:
    folder = places.folder(scale, cell.name)
    return folder.with_name(f"{folder.name}.json")
