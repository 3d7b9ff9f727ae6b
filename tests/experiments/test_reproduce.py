"""Runs of experiments on invented data: begun, stopped, gone on with, and their results left behind."""

import json
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data.written import mnist_folder
from experiments.tiny import NAMES, mean_of, tiny_cells
from scipy.special import softmax

from tickgp.cli.reproduce import reproduce as command
from tickgp.cli.tables import open_console
from tickgp.data.contents import Split
from tickgp.errors import UsageError
from tickgp.experiments.cells import Cell, shallow
from tickgp.experiments.ensemble import judge_ensemble
from tickgp.experiments.predictions import save_predictions
from tickgp.experiments.reproduce import Begun, Done, Failed, left, reproduce, step_of
from tickgp.experiments.results import Places, all_settings, is_done, read_result, settings_of
from tickgp.experiments.run_gp import _predict, judge_gp
from tickgp.experiments.workers import Said
from tickgp.gp.builders import conv
from tickgp.gp.likelihoods import Softmax
from tickgp.runs.events import Note, Stage, Stopped
from tickgp.runs.folder import read_history
from tickgp.runs.model_file import TrainedModel
from tickgp.training.config import Config
from tickgp.training.tensors import FORMAT


@pytest.fixture
def places(tmp_path) -> Places:
    return Places(tmp_path / "work", tmp_path / "results", mnist_folder(tmp_path / "data"))


def go(cells: list[Cell], places: Places, stop=lambda: False) -> list:
    return list(reproduce(left(cells, places), places, stop))


def names(kind: type, events: list) -> list[str]:
    return [event.cell.name for event in events if isinstance(event, kind)]


def after(number: int):
    """Says stop when asked for the `number`th time."""
    asked = iter(range(1, 1000))
    return lambda: next(asked) == number


@pytest.mark.slow
def test_a_stopped_experiment_goes_on_and_ends_alike(places, tmp_path):
    cells = tiny_cells()
    other = Places(tmp_path / "b/work", tmp_path / "b/results", places.data_dir)
    assert go(cells, places, after(4))[-1] == Stopped(3)
    assert not is_done(places.results, cells[0])
    assert step_of(cells[0], places) == 3
    events = go(cells, places)
    assert names(Done, events) == NAMES
    assert all(is_done(places.results, cell) for cell in cells)
    assert go(cells, places) == []
    go(cells, other)
    for cell in cells:
        a, b = (read_result(p.results, cell) for p in (places, other))
        assert a["metrics"] == b["metrics"]
        assert "data_dir" not in json.dumps(a["settings"])
        assert a["machine"]["cpu"]
        assert a["machine"]["cores"] >= 1
    tick, bcnn, ensemble, _ = (read_result(places.results, cell) for cell in cells)
    one, mean = (result["metrics"]["test"] for result in (bcnn, ensemble))
    assert mean["ensemble"]["test"]["nll"] == pytest.approx(one["deterministic"]["test"]["nll"], rel=1e-5)
    assert np.isfinite(tick["elbo"])


@pytest.mark.slow
def test_a_stopped_cnn_goes_on_and_ends_alike(places, tmp_path):
    cell = tiny_cells()[1]
    other = Places(tmp_path / "b/work", tmp_path / "b/results", places.data_dir)
    assert go([cell], places, after(3))[-1] == Stopped(3)
    assert step_of(cell, places) == 3
    go([cell], places)
    go([cell], other)
    a, b = (read_result(p.results, cell) for p in (places, other))
    assert a["metrics"] == b["metrics"]
    assert [line["step"] for line in a["curve"]] == [2, 4, 5]
    assert [line["nll"] for line in a["curve"]] == [line["nll"] for line in b["curve"]]
    assert a["seconds"] == a["curve"][-1]["seconds"]


@pytest.mark.slow
def test_what_a_kill_leaves_is_no_obstacle(places):
    gp, network, *_ = tiny_cells()
    for cell in (gp, network):  # settings noted, and nothing but a file that was being written
        go([cell], places, lambda: True)
        folder = places.folder(cell)
        shutil.rmtree(folder)
        (folder / "checkpoint").mkdir(parents=True)
        (folder / ".config.toml.1.tmp").write_text("seed")
        (folder / "checkpoint" / ".step-00000002.safetensors.1.tmp").write_text("")
    assert names(Done, go([gp, network], places)) == NAMES[:2]
    assert not [*places.work.rglob("*.tmp")]


@pytest.mark.slow
def test_a_run_of_other_settings_is_begun_anew(places):
    cell = tiny_cells()[1]
    go([cell], places, after(3))
    changed = tiny_cells(dropout=0.1)[1]
    assert step_of(changed, places) is None
    events = go([changed], places, after(1))
    assert events[-1] == Stopped(1)
    folder = places.folder(cell)
    why = "with other settings or by another version"
    assert Note(f"it was begun {why}, is kept in {folder}.before, and is begun anew") in events
    assert read_history(folder) == []
    assert read_history(folder.with_name(f"{folder.name}.before")) != []


@pytest.mark.parametrize(("made", "steps"), [(FORMAT, [3, 3]), (FORMAT - 1, [None, 3]), (None, [None, 3])])
def test_a_gp_of_an_earlier_version_is_not_continued(places, made, steps):
    """Its parameters would be read as other numbers; a CNN's mean what they did."""
    cells = tiny_cells()[:2]
    for cell in cells:
        folder = places.folder(cell)
        (folder / "checkpoint").mkdir(parents=True)
        (folder / "checkpoint/step-00000003.safetensors").touch()
        said = {**all_settings(cell), **({} if made is None else {"format": made})}
        folder.with_name(f"{folder.name}.json").write_text(json.dumps(said))
    assert [step_of(cell, places) for cell in cells] == steps


@pytest.mark.slow
def test_runs_made_from_a_changed_run_are_made_anew(places):
    go(tiny_cells(), places)
    changed = tiny_cells(dropout=0.1)
    assert [cell.name for cell in left(changed, places)] == ["mnist/bcnn", "mnist/ensemble"]
    assert names(Done, go(changed, places)) == ["mnist/bcnn", "mnist/ensemble"]


@pytest.mark.slow
def test_results_without_their_runs_are_run_again_for_those_that_need_them(places):
    cells = tiny_cells()
    go(cells, places)
    shutil.rmtree(places.work)
    assert left(cells, places) == []
    for name in NAMES[2:]:
        (places.results / "smoke" / f"{name}.json").unlink()
    before = read_result(places.results, cells[0])
    alone = go(cells[2:], places)
    assert names(Failed, alone) == NAMES[2:]
    assert "first run mnist/bcnn" in str(next(event.error for event in alone if isinstance(event, Failed)))
    assert [cell.name for cell in left(cells, places)] == NAMES
    assert names(Done, go(cells, places)) == NAMES
    assert read_result(places.results, cells[0])["metrics"] == before["metrics"]


@pytest.mark.slow
def test_data_may_move_between_commands(places):
    cell = tiny_cells()[0]
    assert isinstance(go([cell], places, after(4))[-1], Stopped)
    moved = replace(places, data_dir=places.data_dir.rename(places.data_dir.with_name("elsewhere")))
    assert names(Done, go([cell], moved)) == ["mnist/tick"]


def test_a_failed_run_does_not_end_the_others(places):
    cells = tiny_cells()
    events = go(cells, replace(places, data_dir=places.data_dir / "nowhere"))
    assert names(Begun, events) == names(Failed, events) == NAMES
    assert not places.results.exists()


@pytest.fixture
def paths(tmp_path, monkeypatch) -> dict:
    """Places for the command to write to, and none of its options left from pytest's."""
    monkeypatch.setattr(sys, "argv", ["tickgp"])
    return {"work": tmp_path / "work", "results": tmp_path / "results", "page": tmp_path / "RESULTS.md"}


def test_the_command_writes_the_page_and_says_what_failed(paths, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    runs = ("mnist/bcnn-0.25", "mnist/ensemble")
    with pytest.raises(SystemExit) as ended:
        command(("table1",), scale="smoke", only=runs, data_dir=tmp_path / "empty", **paths)
    assert ended.value.code == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" failed: ")[0] for line in said if " failed: " in line] == [*runs]
    assert paths["page"].is_file()


def test_no_file_but_a_page_of_results_is_overwritten(paths):
    with pytest.raises(UsageError, match="no experiment was given; choose among: table1, "):
        command((), **paths)
    with pytest.raises(UsageError, match="pretrained has no runs at the scale paper; use --scale fast"):
        command(("pretrained",), **paths)
    with pytest.raises(UsageError, match="workers 0 was given; it must be at least 1"):
        command(("table1",), workers=0, **paths)
    paths["page"].write_text("# My thesis")
    with pytest.raises(UsageError, match="is not a page of results, and is not overwritten"):
        command(("table1",), only=("mnist/tick",), **paths)
    command(("table1",), only=("mnist/tick",), status=True, **paths)
    assert paths["page"].read_text() == "# My thesis"


def test_a_stopped_command_writes_the_page_before_it_ends(paths, tmp_path, monkeypatch, capsys):
    data_dir = mnist_folder(tmp_path / "data", train=1200, test=300)
    monkeypatch.setattr(sys.modules["tickgp.cli.reproduce"], "stop_on_signal", lambda: nullcontext(lambda: True))
    with pytest.raises(SystemExit) as ended:
        command(("table1",), scale="smoke", only=("mnist/tick",), data_dir=data_dir, **paths)
    assert ended.value.code == 130
    assert paths["page"].is_file()
    assert "stopped at step 0" in capsys.readouterr().out


def test_the_folder_of_the_page_is_made_before_the_runs(paths, tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(sys.modules["tickgp.cli.reproduce"], "_run", lambda *_: ran.append("run") or 0)
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match=r"the folder .*file/deep cannot be made \(Not a directory\); give another --page"
    ):
        command(("table1",), scale="smoke", **{**paths, "page": tmp_path / "file" / "deep" / "page.md"})
    assert ran == []
    command(("table1",), scale="smoke", **{**paths, "page": tmp_path / "new" / "folder" / "page.md"})
    assert ran == ["run"]
    assert (tmp_path / "new" / "folder" / "page.md").is_file()


def test_a_run_says_what_it_does_and_how_long_it_took_itself(monkeypatch, capsys):
    module, clock = sys.modules["tickgp.cli.reproduce"], [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    first, second = tiny_cells()[:2]
    testing = Said(second, Stage("testing"))
    events = ((100, Begun(first)), (5, Begun(second)), (1, testing), (1, Done(second)), (30, Done(first)))

    def runner(stop):
        for seconds, event in events:
            clock[0] += seconds
            yield event

    assert module._run(runner, None, open_console()) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "testing" in line or "done" in line] == [
        f"  {second.name}: testing",
        "mnist/bcnn done, 2 s",
        "mnist/tick done, 37 s",
    ]


def test_an_ensemble_is_the_mean_of_its_members(places):
    network = tiny_cells()[1]
    members = [replace(network, name=name) for name in ("mnist/a", "mnist/b", "mnist/c")]
    p = np.random.default_rng(0).dirichlet(np.ones(10), (3, 10)).astype(np.float32)
    for member, each in zip(members, p, strict=True):
        save_predictions(places.folder(member), {"test/deterministic": each})
    result = judge_ensemble(mean_of(*members), places)
    labels = np.arange(10)  # those of the invented test images
    expected = -np.log(p.mean(axis=0, dtype=float)[np.arange(10), labels]).mean()
    assert result["metrics"]["test"]["ensemble"]["test"]["nll"] == pytest.approx(expected)


def test_a_gp_without_an_elbo_has_no_result(places):
    cell = shallow("mnist", "tick", "smoke")
    folder = places.folder(cell)
    folder.mkdir(parents=True)
    for name, content in {"metrics": {"elbo": None}, "manifest": {}}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(ArithmeticError, match="not finite; the same command computes it again"):
        judge_gp(cell, places)


@pytest.mark.parametrize(("way", "many"), [("5", 1), ("5x100", 100)])
def test_a_gp_is_tested_with_so_many_draws(way, many):
    """(1/S) Σ_s softmax(mean + deviation ε_s): one draw of the last layer for each s, or many; all images share it."""
    x = np.random.default_rng(0).random((20, 6, 5, 1))
    model = conv(x, Softmax(3), patch_size=3, num_inducing=5, key=jax.random.key(0))
    f = eqx.filter_jit(model.propagate)(jnp.asarray(x), key=jax.random.key(0))
    own_key = jax.random.fold_in(jax.random.key(0), 1)
    keys = [jax.random.split(key)[1] for key in jax.random.split(own_key, 5)]
    noise = np.concatenate([jax.random.normal(key, (many, 1, 3)) for key in keys])
    draws = f.mean + np.sqrt(f.variance) * noise
    p = _predict(TrainedModel(model, Config(), ("a", "b", "c"), (6, 5, 1)), Split(x, np.zeros(20, int)), way)
    np.testing.assert_allclose(p, softmax(draws, axis=-1).mean(axis=0), rtol=1e-4)


@pytest.mark.slow
def test_a_cnn_has_no_elbo(paths, tmp_path, capsys):
    data_dir = mnist_folder(tmp_path / "data", train=1200, test=300)
    command(("depth-baselines",), scale="smoke", only=("mnist/bcnn-depth1",), data_dir=data_dir, **paths)
    assert "step 100  NLL" in capsys.readouterr().out


def test_the_step_of_a_begun_run_is_that_of_its_checkpoint(paths, capsys):
    cell = shallow("mnist", "tick", "smoke")
    command(("table1",), scale="smoke", only=(cell.name,), status=True, **paths)
    assert "left" in capsys.readouterr().out
    folder = paths["work"] / "smoke" / cell.name
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint/step-00000047.safetensors").touch()
    folder.with_name("tick.json").write_text(json.dumps({"format": FORMAT, **all_settings(cell)}))
    command(("table1",), scale="smoke", only=(cell.name,), status=True, **paths)
    assert "step 47" in capsys.readouterr().out


def test_the_state_of_a_run_says_whether_an_earlier_version_made_it(paths, capsys):
    cell = shallow("mnist", "tick", "smoke")
    path = paths["results"] / "smoke" / f"{cell.name}.json"
    path.parent.mkdir(parents=True)
    scores = {"100": {"test": {"top1_error": 0.1, "nll": 0.5}}}
    metrics = {"test": scores, **dict.fromkeys(cell.also_on, scores)}
    for said, states in (
        ({"format": FORMAT}, ["done ", "done "]),
        ({}, ["done, by an earlier version", "left again, made by an earlier version"]),
    ):
        content = {"scale": "smoke", "settings": settings_of(cell), "metrics": metrics, "seconds": 6.0}
        path.write_text(json.dumps({**content, **said}))
        for renew, state in enumerate(states):
            command(("table1",), scale="smoke", only=(cell.name,), status=True, renew=bool(renew), **paths)
            assert state in capsys.readouterr().out
