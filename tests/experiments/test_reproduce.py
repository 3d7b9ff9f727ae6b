"""Runs of experiments on invented data: begun, stopped, gone on with, and their results left behind."""

import json
from dataclasses import replace

import numpy as np
import pytest
from data.written import mnist_folder

from tickgp.experiments.cells import Cell, EnsembleConfig, cnn, shallow
from tickgp.experiments.reproduce import Begun, Done, Places, reproduce
from tickgp.experiments.results import is_done, read_result
from tickgp.runs.events import Stopped
from tickgp.training.config import DataConfig

pytestmark = pytest.mark.slow


def tiny_cells() -> list[Cell]:
    data = DataConfig("mnist")
    tick, network = shallow("mnist", "tick", "smoke"), cnn("mnist", "smoke")
    training = replace(tick.settings.training, max_steps=6, batch_size=8, report_every=2, watched_images=10)
    network = replace(network.settings, max_steps=6, batch_size=8, report_every=2, watched_images=10)
    return [
        Cell("mnist/tick", replace(tick.settings, data=data, training=training)),
        Cell("mnist/bcnn", replace(network, data=replace(data, validation_share=0.2))),
        Cell("mnist/ensemble", EnsembleConfig(data, ("mnist/bcnn", "mnist/bcnn"))),
    ]


def test_a_stopped_experiment_goes_on_and_ends_alike(tmp_path):
    folder = mnist_folder(tmp_path / "data")
    cells, asked = tiny_cells(), iter(range(1000))
    places, other = (Places(tmp_path / name / "work", tmp_path / name / "results", folder) for name in "ab")
    events = list(reproduce(cells, "smoke", places, lambda: next(asked) == 3))
    assert isinstance(events[-1], Stopped)
    assert not is_done(places.results, "smoke", cells[0])
    events = list(reproduce(cells, "smoke", places, lambda: False))
    assert [event.cell.name for event in events if isinstance(event, Done)] == [cell.name for cell in cells]
    assert all(is_done(places.results, "smoke", cell) for cell in cells)
    assert not any(isinstance(event, Begun) for event in reproduce(cells, "smoke", places, lambda: False))
    list(reproduce(cells, "smoke", other, lambda: False))
    for cell in cells:
        a, b = (read_result(p.results, "smoke", cell.name) for p in (places, other))
        assert a["metrics"] == b["metrics"]
        assert "data_dir" not in json.dumps(a["settings"])
    results = {name: read_result(places.results, "smoke", f"mnist/{name}") for name in ("tick", "bcnn", "ensemble")}
    one, mean = (results[name]["metrics"]["test"] for name in ("bcnn", "ensemble"))
    assert mean["ensemble"]["test"]["nll"] == pytest.approx(one["deterministic"]["test"]["nll"], rel=1e-5)
    assert np.isfinite(results["tick"]["elbo"])
