"""The runs of experiments, one after the other, each from where it stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tickgp.experiments.cells import Cell, CnnConfig, EnsembleConfig
from tickgp.experiments.ensemble import judge_ensemble
from tickgp.experiments.predictions import read_predictions
from tickgp.experiments.results import Places, agree, all_settings, is_done, write_result
from tickgp.experiments.run_cnn import judge_cnn, train_cnn_cell
from tickgp.experiments.run_gp import judge_gp, train_gp
from tickgp.runs import model_file
from tickgp.runs.events import Event, Note, Stopped
from tickgp.runs.folder import held, read_json, write_json
from tickgp.training.checkpoint import checkpoints, reached
from tickgp.training.config import Config
from tickgp.training.tensors import FORMAT


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


def reproduce(cells: list[Cell], places: Places, stop: Callable[[], bool]) -> Iterator[Begun | Done | Failed | Event]:
    """Make these runs; ends after the run in which `stop` said so."""
    for cell in cells:
        for event in run(cell, places, stop):
            yield event
            if isinstance(event, Stopped):
                return
        if stop():
            return


def run(cell: Cell, places: Places, stop: Callable[[], bool]) -> Iterator[Begun | Done | Failed | Event]:
    """One run, from where it stopped to its result; ends with `Stopped` and a checkpoint if `stop` says so before."""
    yield Begun(cell)
    try:
        for event in _train(cell, places, stop):
            yield event
            if isinstance(event, Stopped):
                return
        write_result(places.results, cell, _judge(cell, places))
        yield Done(cell)
    except Exception as error:
        yield Failed(cell, error)


def left(cells: list[Cell], places: Places, *, renew: bool = False) -> list[Cell]:
    """The runs without a result, and those that they need but whose result alone is here, as after a `git clone`.

    To `renew` is to count the result of an outdated run as none.
    """
    found, wanted = list[Cell](), set[str]()
    for cell in reversed(cells):
        done = is_done(places.results, cell, up_to_date=renew)
        if not done or (cell.name in wanted and not _is_whole(cell, places)):
            found.append(cell)
            wanted |= {other.name for other in still_needed(cell, places)}
    return found[::-1]


def still_needed(cell: Cell, places: Places) -> list[Cell]:
    """The runs without which it cannot be made; what it starts from is needed only before its first checkpoint."""
    started = _is_begun(cell, places) and checkpoints(places.folder(cell) / "checkpoint")
    return [] if started else [*cell.needs]


def step_of(cell: Cell, places: Places) -> int | None:
    """The step that a begun run goes on from; None before its first checkpoint."""
    if not _is_begun(cell, places):
        return None
    return reached(places.folder(cell) / "checkpoint") or None


def _train(cell: Cell, places: Places, stop: Callable[[], bool]) -> Iterator[Event]:
    missing = [other for other in still_needed(cell, places) if not _is_whole(other, places)]
    if missing:
        names = " ".join(other.name for other in missing)
        raise ValueError(f"it is made from runs that are not finished in {places.work}; first run {names}")
    yield from map(Note, _set_aside_if_other(cell, places))
    match cell.settings:
        case CnnConfig():
            yield from train_cnn_cell(cell, places, stop)
        case Config():
            yield from train_gp(cell, places, stop)


def _judge(cell: Cell, places: Places) -> dict[str, Any]:
    match cell.settings:
        case EnsembleConfig():
            return judge_ensemble(cell, places)
        case CnnConfig():
            return judge_cnn(cell, places)
        case Config():
            return judge_gp(cell, places)


def _is_whole(cell: Cell, places: Places) -> bool:
    """Whether its folder holds what other runs are made from: all its predictions, and a GP's trained model."""
    folder = places.folder(cell)
    if isinstance(cell.settings, Config) and not (folder / model_file.NAME).is_file():
        return False
    if not _is_begun(cell, places):
        return False
    predicted = {name.partition("/")[0] for name in read_predictions(folder) or ()}
    return predicted >= {"test", *cell.also_on}


def _is_begun(cell: Cell, places: Places) -> bool:
    """Whether its folder was begun with these settings and, for a GP, by a version that reads its files alike."""
    path = _settings_path(cell, places)
    if not path.is_file():
        return False
    said = read_json(path)
    return agree(said, cell) and (said.get("format") == FORMAT or not isinstance(cell.settings, Config))


def _set_aside_if_other(cell: Cell, places: Places) -> list[str]:
    """A run that was begun with other settings cannot be continued: it is begun anew, and says so."""
    if _is_begun(cell, places):
        return []
    path, folder = _settings_path(cell, places), places.folder(cell)
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
        write_json(path, {"format": FORMAT, **all_settings(cell)})
    return notes


def _free(path: Path) -> Path:
    """`path`, or the first of `path-2`, `path-3` … that is not there."""
    names = (path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 1000)))
    return next(name for name in names if not name.exists())


def _settings_path(cell: Cell, places: Places) -> Path:
    folder = places.folder(cell)
    return folder.with_name(f"{folder.name}.json")
