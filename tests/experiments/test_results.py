"""When a result counts: for the settings it was made with, and for those of the runs it was made from."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tickgp.experiments.cells import Cell
from tickgp.experiments.plan import EXPERIMENTS, cells_of
from tickgp.experiments.reproduce import left
from tickgp.experiments.results import Places, agree, all_settings, is_done, result_path, settings_of
from tickgp.training.config import Config
from tickgp.training.tensors import FORMAT

ROOT = Path(__file__).parents[2]
PLANNED = {cell.name: cell for cell in cells_of([*EXPERIMENTS], "paper")}


def put(results: Path, cell: Cell, settings: dict, *tested_on: str, **more: int) -> None:
    path = result_path(results, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"scale": cell.scale, "settings": settings, "metrics": {name: {} for name in tested_on}}
    path.write_text(json.dumps({**said, **more}))


@pytest.mark.parametrize("name", ["tick", "bcnn-0.25", "bcnn-0.5", "bcnn-0.75"])
def test_results_from_before_runs_said_what_they_need_still_count(name):
    cell = PLANNED[f"mnist/{name}"]
    said = settings_of(cell)
    assert "needs" not in said
    assert agree(said, cell)


@pytest.mark.parametrize("scale", ["paper", "fast"])
def test_committed_results_count(scale):
    committed = [path.relative_to(ROOT / "results" / scale) for path in (ROOT / "results" / scale).glob("*/*.json")]
    assert committed
    planned = {cell.name: cell for cell in cells_of([*EXPERIMENTS], scale)}
    cells = [planned[str(path.with_suffix(""))] for path in committed]
    assert [cell.name for cell in cells if not is_done(ROOT / "results", cell)] == []


def test_cnns_are_the_same_at_two_scales_and_trained_once(tmp_path):
    for cell in cells_of(["table1", "depth-baselines"], "fast"):
        shared = not isinstance(cell.settings, Config)
        assert shared == ("bcnn" in cell.name or "ensemble" in cell.name)
        assert (settings_of(cell) == settings_of(PLANNED[cell.name])) == shared
        put(tmp_path, PLANNED[cell.name], all_settings(PLANNED[cell.name]), "test", *cell.also_on)
        assert is_done(tmp_path, cell) == shared
        folder = Places(tmp_path, tmp_path, None).folder(cell)
        assert folder == tmp_path / ("paper" if shared else "fast") / cell.name


def test_the_papers_gps_are_trained_as_in_the_paper():
    trained = [cell.settings.training for cell in PLANNED.values() if isinstance(cell.settings, Config)]
    assert {(each.natural_gradients, each.likelihood_samples) for each in trained} == {(False, 1)}
    assert {each.learning_rate for each in trained} == {0.01, 0.001}  # the last: further training of a trained model


@pytest.mark.parametrize(
    ("name", "needed"), [("mnist/deep-tick-3", "mnist/deep-tick-2"), ("mnist/ensemble", "mnist/bcnn-0.5-seed3")]
)
def test_a_result_made_from_a_run_with_other_settings_does_not_count(tmp_path, name, needed):
    cell = PLANNED[name]
    settings = all_settings(cell)
    put(tmp_path, cell, settings, "test", *cell.also_on)
    assert is_done(tmp_path, cell)
    settings["needs"][needed]["data"]["validation_share"] = 0.3
    put(tmp_path, cell, settings, "test", *cell.also_on)
    assert not is_done(tmp_path, cell)
    put(tmp_path, cell, settings_of(cell), "test", *cell.also_on)  # it does not say what it was made from
    assert not is_done(tmp_path, cell)


def test_a_setting_that_came_later_was_at_its_default():
    cell = PLANNED["mnist/tick"]
    said = all_settings(cell)
    del said["model"]["jitter"], said["data"]["grey"], said["seed"]
    assert agree(said, cell)
    model = replace(cell.settings.model, jitter=1e-3)
    assert not agree(said, replace(cell, settings=replace(cell.settings, model=model)))
    assert not agree(said, replace(cell, settings=replace(cell.settings, seed=1)))
    del said["model"]["num_inducing"]  # 1000 here, 200 by default
    assert not agree(said, cell)


def test_a_setting_that_is_no_more_does_not_agree():
    cell = PLANNED["mnist/tick"]
    said = deepcopy(all_settings(cell))
    said["model"]["temperature"] = 2.0
    assert not agree(said, cell)


def test_a_result_without_a_dataset_it_is_to_be_tested_on_does_not_count(tmp_path):
    cell = PLANNED["mnist/tick"]
    put(tmp_path, cell, all_settings(cell), "test")
    assert not is_done(tmp_path, cell)
    assert is_done(tmp_path, replace(cell, also_on=()))


def test_only_what_is_to_be_renewed_is_left_again(tmp_path):
    """Results of earlier GPs count until others take their place; CNNs did not change."""
    gp, newer, network = (PLANNED[f"mnist/{name}"] for name in ("tick", "conv", "bcnn-0.5"))
    for cell, said in ((gp, {}), (newer, {"format": FORMAT}), (network, {})):
        put(tmp_path, cell, all_settings(cell), "test", *cell.also_on, **said)
    places = Places(tmp_path / "work", tmp_path, None)
    assert left([gp, newer, network], places) == []
    assert left([gp, newer, network], places, renew=True) == [gp]
