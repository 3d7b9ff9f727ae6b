"""`tickgp reproduce`."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.table import Table
from tyro.conf import Positional, arg

from tickgp.cli.device import Device, check_elsewhere, set_up
from tickgp.cli.signals import stop_on_signal
from tickgp.cli.tables import open_console
from tickgp.errors import UsageError
from tickgp.experiments.cells import Cell, Scale
from tickgp.experiments.plan import EXPERIMENTS, cells_of

if TYPE_CHECKING:
    from rich.console import Console

    from tickgp.experiments.reproduce import Begun, Done, Failed
    from tickgp.experiments.results import Places
    from tickgp.experiments.workers import Said
    from tickgp.runs.events import Event

    Runner = Callable[[Callable[[], bool]], Iterator[Begun | Done | Failed | Said | Event]]
    Name = str
else:
    Name = Literal[*EXPERIMENTS, "all"]  # what the command takes, which type checkers cannot see
NAMES = ", ".join((*EXPERIMENTS, "all"))


def reproduce(
    experiments: Positional[
        Annotated[tuple[Name, ...], arg(metavar="EXPERIMENT", help=f"Tables and figures: {NAMES}.")]
    ],
    /,
    scale: Annotated[Scale, arg(help="The paper's settings, ours, or tiny runs that show that it works.")] = "paper",
    only: Annotated[tuple[str, ...], arg(metavar="RUN", help="Only these runs, such as mnist/tick.")] = (),
    max_seconds: Annotated[float | None, arg(help="Stop, to be continued, after this time.")] = None,
    workers: Annotated[int, arg(help="Runs at a time, each in a process of its own; they share a GPU.")] = 1,
    renew: Annotated[bool, arg(help="Make again what an earlier version made otherwise.")] = False,
    status: Annotated[bool, arg(help="Only say what is done and what is left.")] = False,
    data_dir: Annotated[Path | None, arg(metavar="DIR", help="Folder with the publishers' files.")] = None,
    work: Annotated[Path, arg(metavar="DIR", help="Folder of the runs.")] = Path("runs/reproduce"),
    results: Annotated[Path, arg(metavar="DIR", help="Folder of the results to keep.")] = Path("results"),
    page: Annotated[Path, arg(metavar="FILE", help="The page with all results.")] = Path("RESULTS.md"),
    device: Annotated[Device, arg(help="Where to compute; by default a GPU if there is one.")] = None,
) -> None:
    """Run experiments of the paper, continue them, and put their results beside the paper's."""
    if not experiments:
        raise UsageError(f"no experiment was given; choose among: {NAMES}")
    if workers < 1:
        raise UsageError(f"workers {workers} was given; it must be at least 1")
    set_up(device, float64=False, check=workers == 1)
    if workers > 1 and device is not None:
        check_elsewhere(device)
    from tickgp.experiments.draw import draw
    from tickgp.experiments.page import is_page, results_page
    from tickgp.experiments.reproduce import left
    from tickgp.experiments.results import Places
    from tickgp.files import write_whole

    names: list[str] = [*EXPERIMENTS] if "all" in experiments else [*dict.fromkeys(experiments)]
    cells, console = cells_of(names, scale), open_console()
    if not cells:
        raise UsageError(f"{', '.join(names)} has no runs at the scale {scale}; use --scale fast")
    if unknown := [name for name in only if name not in {cell.name for cell in cells}]:
        raise UsageError(f"there is no run {unknown[0]} here; choose among: {', '.join(cell.name for cell in cells)}")
    chosen = [cell for cell in cells if not only or cell.name in only]
    places = Places(work, results, data_dir)
    todo, exit_code = left(chosen, places, renew=renew), 0
    if not status:
        if page.exists() and not is_page(page):
            raise UsageError(f"{page} is not a page of results, and is not overwritten; give another --page")
        _make_folder(page.parent)
        exit_code = _run(_runner(todo, places, workers, device), max_seconds, console)
        try:
            for path in draw(names, scale, places):
                console.print(f"drew {path}", highlight=False, soft_wrap=True)
        finally:
            write_whole(page, results_page(results, page).encode())
            console.print(f"wrote {page}", highlight=False, soft_wrap=True)
        todo = left(chosen, places, renew=renew)
    console.print(_progress_table(chosen, {cell.name for cell in todo}, scale, places))
    if exit_code:
        sys.exit(exit_code)


def _make_folder(folder: Path) -> None:
    """The folder of the page, before hours of runs whose results it is to show."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {folder} cannot be made ({error.strerror}); give another --page") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"nothing may be written into {folder}; give another --page")


def _runner(cells: list[Cell], places: Places, workers: int, device: Device) -> Runner:
    """What runs these: this process, one after the other, or several others at a time."""
    from tickgp.experiments.reproduce import reproduce
    from tickgp.experiments.workers import reproduce_side_by_side

    if workers == 1:
        return partial(reproduce, cells, places)
    prepare = partial(set_up, device, float64=False)
    return partial(reproduce_side_by_side, cells, places, workers=workers, prepare=prepare)


def _run(runner: Runner, max_seconds: float | None, console: Console) -> int:
    """Run what is left; the exit code: 0, 1 if a run failed, 130 if it was stopped."""
    from tickgp.experiments.reproduce import Begun, Done, Failed
    from tickgp.experiments.workers import Said
    from tickgp.runs.events import Note, Report, Stage, Stopped

    began, failed = time.monotonic(), False
    begun: dict[str, float] = {}
    late = lambda: max_seconds is not None and time.monotonic() - began > max_seconds
    say = lambda text: console.print(text, highlight=False, soft_wrap=True, markup=False)
    with stop_on_signal() as stopping:
        for said in runner(lambda: stopping() or late()):
            whose, event = (f"{said.cell.name}: ", said.event) if isinstance(said, Said) else ("", said)
            match event:
                case Begun(cell):
                    begun[cell.name] = time.monotonic()
                    say(f"{cell.name} ...")
                case Done(cell):
                    say(f"{cell.name} done, {time.monotonic() - begun[cell.name]:.0f} s")
                case Failed(cell, error):
                    if "--debug" in sys.argv:
                        raise error
                    failed = True
                    expected = isinstance(error, ValueError | ArithmeticError | OSError)
                    kind = "" if expected else f"{type(error).__name__}: "
                    say(f"{cell.name} failed: {kind}{' '.join(str(error).split())}")
                case Note(text) | Stage(text):
                    say(f"  {whose}{text}")
                case Report():
                    bound = "" if math.isnan(event.elbo) else f"  ELBO {event.elbo:.1f}"
                    say(f"  {whose}step {event.step}{bound}  NLL {event.nll:.4f}  {event.seconds:.0f} s")
                case Stopped(step):
                    say(f"  {whose}stopped at step {step}; the same command goes on")
    return 130 if stopping() else int(failed)


def _progress_table(cells: list[Cell], todo: set[str], scale: Scale, places: Places) -> Table:
    from tickgp.experiments.results import is_outdated, read_result

    table = Table("run", "state", "minutes", "error (%)", "NLL", title=f"{scale} scale")
    for cell in cells:
        result = None if cell.name in todo else read_result(places.results, cell)
        if result is None:
            table.add_row(cell.name, _state(cell, places))
            continue
        minutes = "" if result["seconds"] is None else f"{result['seconds'] / 60:.1f}"
        scores = next(iter(result["metrics"]["test"].values()))["test"]  # 100 draws, dropout at test, or the ensemble's
        state = "done, by an earlier version" if is_outdated(result) else "done"
        table.add_row(cell.name, state, minutes, f"{100 * scores['top1_error']:.2f}", f"{scores['nll']:.3f}")
    return table


def _state(cell: Cell, places: Places) -> str:
    """Of a run that is left."""
    from tickgp.experiments.reproduce import step_of
    from tickgp.experiments.results import is_done

    if (step := step_of(cell, places)) is not None:
        return f"step {step}"
    if not is_done(places.results, cell):
        return "left"
    up_to_date = is_done(places.results, cell, up_to_date=True)
    return f"left again, {'for runs that need its model' if up_to_date else 'made by an earlier version'}"
