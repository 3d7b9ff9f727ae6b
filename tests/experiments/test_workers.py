"""Runs side by side: in the order of their needs, with the results of runs one after the other, stopped and killed."""

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from data.written import mnist_folder
from experiments.tiny import as_they_are, deaf, mean_of, stand_ins, tiny_cells

from tickgp.experiments.reproduce import Begun, Done, Failed, left, reproduce
from tickgp.experiments.results import Places, read_result
from tickgp.experiments.workers import Said, _portable, reproduce_side_by_side
from tickgp.runs.events import Note
from tickgp.training.checkpoint import reached


@pytest.fixture
def places(tmp_path) -> Places:
    return Places(tmp_path / "runs/reproduce", tmp_path / "results", mnist_folder(tmp_path / "data"))


@pytest.fixture
def go(monkeypatch):
    """Runs cells two at a time, prepared here and in their processes in the same way."""

    def events(cells, places, prepare=stand_ins) -> list:
        prepare(monkeypatch.setattr)
        todo = left(cells, places)
        return list(reproduce_side_by_side(todo, places, lambda: False, workers=2, prepare=prepare))

    return events


@pytest.mark.parametrize("prepare", [stand_ins, pytest.param(as_they_are, marks=pytest.mark.slow)])
def test_a_run_begins_after_those_it_needs_and_ends_as_it_would_alone(prepare, places, go, tmp_path):
    gp, network, *_ = tiny_cells()
    network = replace(network, settings=replace(network.settings, max_steps=50))
    ensemble = mean_of(network, network)
    cells = [network, ensemble, gp]
    order = [event for event in go(cells, places, prepare) if not isinstance(event, Said)]
    at = {(type(event), event.cell.name): place for place, event in enumerate(order)}
    assert sorted(at.values()) == [*range(6)]
    assert at[Begun, gp.name] < at[Done, network.name] < at[Begun, ensemble.name] < at[Done, ensemble.name]
    assert go(cells, places, prepare) == []
    other = replace(places, work=tmp_path / "b/work", results=tmp_path / "b/results")
    for _ in reproduce(cells, other, lambda: False):
        pass
    for cell in cells:
        together, alone = (read_result(where.results, cell) for where in (places, other))
        assert together["metrics"] == alone["metrics"]


def test_a_failed_and_a_killed_run_do_not_end_the_others(places, go, monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    gp, network, *_ = tiny_cells()
    failing, killed = replace(gp, name="mnist/failing"), replace(network, name="mnist/killed")
    events = go([failing, killed, mean_of(killed), network], places)
    errors = {event.cell.name: event.error for event in events if isinstance(event, Failed)}
    assert {name: str(error) for name, error in errors.items()} == {
        "mnist/failing": "there is nothing to train",
        "mnist/killed": "its process was ended by signal 9, maybe for lack of memory; the same command goes on with it",
        "mnist/ensemble": f"it is made from runs that are not finished in {places.work}; first run mnist/killed",
    }
    assert isinstance(errors["mnist/failing"], ValueError)
    assert "in pretend_to_train" in errors["mnist/failing"].__notes__[0]
    assert Said(network, Note("preallocate: false")) in events
    assert [event.cell for event in events if isinstance(event, Done)] == [network]


def unprepared(set_attribute=None) -> None:
    """Works here, and not in the processes of runs."""
    if set_attribute is None:
        raise OSError("there is no such device")


def test_a_process_that_cannot_be_prepared_says_why(places, go):
    (failed,) = go(tiny_cells()[:1], places, unprepared)
    assert isinstance(failed, Failed)
    assert str(failed.error) == "there is no such device"


class AwkwardError(Exception):
    """It can be pickled, but not read again."""

    def __init__(self, what, where):
        super().__init__(f"{what} at {where}")


def test_an_error_that_cannot_be_sent_is_told():
    assert repr(_portable(AwkwardError("snag", "step 3"))) == "RuntimeError('AwkwardError: snag at step 3')"


@pytest.fixture
def start(tmp_path):
    """Starts the command, and waits until its two runs have both come to a report; nothing is left of it in the end."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def command(prepare) -> subprocess.Popen[str]:
        code = f"from experiments import tiny; tiny.command({str(tmp_path)!r}, tiny.{prepare.__name__})"
        process = subprocess.Popen([sys.executable, "-uc", code], env=environment, start_new_session=True, **pipes)
        stack.enter_context(process)
        stack.callback(_kill_all, process.pid)
        silent = {"mnist/tick", "mnist/bcnn"}
        while silent and (line := process.stdout.readline()):
            silent -= {*re.findall(r"^  (\S+): step \d+  ", line)}
        return process

    with ExitStack() as stack:
        yield command


def _kill_all(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [stand_ins, as_they_are])
def test_runs_whose_parent_is_killed_stop_and_go_on_until_ctrl_c(prepare, places, start):
    folders = {cell.name: places.folder(cell) / "checkpoint" for cell in tiny_cells()[:2]}
    process = start(prepare)
    process.kill()
    process.communicate(timeout=60)  # ends when nobody is left who could write
    before = {name: reached(folder) for name, folder in folders.items()}
    assert min(before.values()) > 0
    process = start(prepare)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert output.count("wrote RESULTS.md") == 1
    assert errors == "stopping after this step, or after testing; again to stop at once\n"
    said = re.findall(r"^  (\S+): stopped at step (\d+); the same command goes on$", output, re.MULTILINE)
    after = {name: reached(folder) for name, folder in folders.items()}
    assert {name: int(step) for name, step in said} == after
    assert all(after[name] > before[name] for name in folders)


def test_a_second_ctrl_c_ends_at_once(places, start):
    process = start(deaf)
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr.readline().endswith("again to stop at once\n")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)  # ends when nobody is left who could write
    assert process.returncode == 130
