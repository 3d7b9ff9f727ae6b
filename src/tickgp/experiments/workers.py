"""Runs side by side, each in a process of its own: one small model does not fill a large GPU."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from tickgp.experiments.cells import Cell
from tickgp.experiments.reproduce import Begun, Done, Failed, run, still_needed
from tickgp.experiments.results import Places
from tickgp.runs.events import Event, Stopped

LOOK_EVERY = 0.1  # seconds between two questions whether to stop


@dataclass(frozen=True)
class Said:
    """What one of several runs says of itself."""

    cell: Cell
    event: Event


@dataclass
class _Child:
    cell: Cell
    process: BaseProcess
    has_ended: bool = False
    """Whether it has said how its run ended."""


def reproduce_side_by_side(
    cells: list[Cell],
    places: Places,
    stop: Callable[[], bool],
    *,
    workers: int,
    prepare: Callable[[], None],
) -> Iterator[Begun | Done | Failed | Said]:
    """Make these runs, up to `workers` at a time, each as soon as those that it needs have ended.

    Each process calls `prepare` first. All end with checkpoints when `stop` says so, and also when nobody takes the
    events any more or this process is gone.
    """
    waiting, children = [*cells], dict[Connection, _Child]()
    needs = {cell.name: {other.name for other in still_needed(cell, places)} for cell in waiting}
    lifeline, holder = Pipe(duplex=False)  # nothing is sent: it says stop when nobody holds its other end
    work = partial(_work, places, prepare, lifeline)
    with lifeline, holder:
        while children or (waiting and not holder.closed):
            if stop():
                holder.close()
            unfinished = {cell.name for cell in (*waiting, *(child.cell for child in children.values()))}
            ready = [cell for cell in waiting if needs[cell.name].isdisjoint(unfinished)]
            for cell in ready[: 0 if holder.closed else workers - len(children)]:
                waiting.remove(cell)
                pipe, process = _start(work, cell)
                children[pipe] = _Child(cell, process)
            heard = wait([*children], LOOK_EVERY)
            for pipe in [pipe for pipe in children if pipe in heard]:
                yield from _hear(pipe, children)


def _start(work: Callable[[Connection, Cell], None], cell: Cell) -> tuple[Connection, BaseProcess]:
    """The process of a run, and the pipe through which it says what happens."""
    ours, theirs = Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs, cell))
    with theirs, _signals_kept_away():
        process.start()
    return ours, process


@contextmanager
def _signals_kept_away() -> Iterator[None]:
    """What starts meanwhile never hears what a terminal sends to all its processes, nor SIGTERM."""
    resource_tracker.ensure_running()  # comes with the first process, and in Python 3.11 would undo the next line
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _hear(pipe: Connection, children: dict[Connection, _Child]) -> Iterator[Begun | Done | Failed | Said]:
    """The next event of a child; one that has ended is taken out of `children`."""
    child = children[pipe]
    try:
        event = pipe.recv()
    except (EOFError, OSError):  # OSError: it was killed while it spoke
        pipe.close()
        del children[pipe]
        child.process.join()
        if not child.has_ended:
            yield Failed(child.cell, ChildProcessError(_last_words(child.process.exitcode or 0)))
        return
    child.has_ended = isinstance(event, Done | Failed | Stopped)
    yield event if isinstance(event, Begun | Done | Failed) else Said(child.cell, event)


def _last_words(exit_code: int) -> str:
    how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    why = ", maybe for lack of memory" if exit_code == -signal.SIGKILL else ""
    return f"its process {how}{why}; the same command goes on with it"


def _work(places: Places, prepare: Callable[[], None], lifeline: Connection, pipe: Connection, cell: Cell) -> None:
    """What a process does."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # a GPU's memory is for all
    try:
        prepare()
    except Exception as error:
        pipe.send(Failed(cell, _portable(error)))
        return
    for event in run(cell, places, stop=lifeline.poll):
        with suppress(BrokenPipeError):  # nobody listens any more: then `stop` says so too
            pipe.send(Failed(cell, _portable(event.error)) if isinstance(event, Failed) else event)


def _portable(error: Exception) -> Exception:
    """`error` as it can be sent: its traceback as a note, and in other words if it is of a kind that cannot."""
    try:
        portable = pickle.loads(pickle.dumps(error))
    except Exception:
        portable = RuntimeError(f"{type(error).__name__}: {error}")
    portable.add_note("".join(traceback.format_exception(error)))
    return portable
