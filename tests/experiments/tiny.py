"""Tiny runs of experiments, and stand-ins for their training; to be planned here, or in a process of their own."""

import itertools
import json
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from jax._src import xla_bridge

from tickgp.cli import main
from tickgp.experiments import reproduce as reproduce_module
from tickgp.experiments.cells import Cell, EnsembleConfig, Scale, cnn, shallow
from tickgp.experiments.plan import EXPERIMENTS, Experiment, cells_of
from tickgp.experiments.predictions import save_predictions
from tickgp.experiments.results import Places, all_settings, result_path
from tickgp.runs.events import Finished, Note, Report, Stopped
from tickgp.training.checkpoint import reached
from tickgp.training.config import DataConfig
from tickgp.training.tensors import FORMAT

NAMES = ["mnist/tick", "mnist/bcnn", "mnist/ensemble", "mnist/again"]


def tiny_cells(*, max_steps: int = 5, **network) -> list[Cell]:
    """A GP, a CNN, an ensemble of it, and the GP trained on."""
    data = DataConfig("mnist")
    tick, networks = shallow("mnist", "tick", "smoke").settings, cnn("mnist", "smoke").settings
    small = {"max_steps": max_steps, "batch_size": 8, "report_every": 2, "watched_images": 10}
    tick = replace(tick, data=data, training=replace(tick.training, checkpoint_every=2, **small))
    networks = replace(networks, data=replace(data, validation_share=0.2), **small | network)
    gp, member = Cell("mnist/tick", "smoke", tick), Cell("mnist/bcnn", "smoke", networks)
    return [gp, member, mean_of(member, member), Cell("mnist/again", "smoke", tick, (gp,))]


def mean_of(*members: Cell) -> Cell:
    settings = EnsembleConfig(DataConfig("mnist"), tuple(member.name for member in members))
    return Cell("mnist/ensemble", "smoke", settings, members)


def write(results: Path, name: str, content: dict, scale: Scale = "paper") -> None:
    """A result of a planned run, made with today's settings where `content` does not say others."""
    (cell,) = (cell for cell in cells_of([*EXPERIMENTS], scale) if cell.name == name)
    path = result_path(results, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {"format": FORMAT, "scale": cell.scale, "settings": all_settings(cell), "metrics": {}}
    path.write_text(json.dumps({**said, **content}))


def as_they_are(put=setattr) -> None:
    """Runs are trained and tested."""


def stand_ins(put=setattr) -> None:
    """Runs pretend to be trained and tested."""
    for name in ("train_gp", "train_cnn_cell"):
        put(reproduce_module, name, pretend_to_train)
    for name in ("judge_gp", "judge_cnn"):
        put(reproduce_module, name, pretend_to_judge)


def pretend_to_train(cell: Cell, places: Places, stop):
    """A step is a short sleep, a checkpoint is an empty file; a run may be called to fail, or to be killed."""
    if cell.name == "mnist/failing":
        raise ValueError("there is nothing to train")
    steps, folder = getattr(cell.settings, "training", cell.settings).max_steps, places.folder(cell)
    (folder / "checkpoint").mkdir(parents=True, exist_ok=True)
    for step in range(reached(folder / "checkpoint") + 1, steps + 1):
        time.sleep(0.02)
        yield report(step)
        if cell.name == "mnist/killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if stop():
            (folder / "checkpoint" / f"step-{step:08d}.safetensors").touch()
            yield Stopped(step)
            return
    yield Note(f"preallocate: {os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE')}")
    yield Finished({})


def pretend_to_judge(cell: Cell, places: Places) -> dict:
    save_predictions(places.folder(cell), {"test/deterministic": np.full((10, 10), 0.1)})
    return {"metrics": {"test": {}}}


def deaf(put=setattr) -> None:
    """Runs go on, whatever is asked of them."""
    for name in ("train_gp", "train_cnn_cell"):
        put(reproduce_module, name, lambda *_: (time.sleep(0.02) or report(step) for step in itertools.count(1)))


def report(step: int) -> Report:
    return Report(step, -1.0, 2.0, 0.5, 2.0, 1e-6, 0, 0.0)


def command(folder: str, prepare) -> None:
    """`tickgp reproduce` of a GP and a CNN with a million steps each, side by side; exits with 3 if JAX began here."""
    cells = tiny_cells(max_steps=10**6)[:2]
    EXPERIMENTS["pretrained"] = Experiment("stands in for it", lambda scale: cells)
    sys.modules["tickgp.cli.reproduce"].set_up = partial(set_up, prepare)
    sys.argv = ["tickgp", "reproduce", "pretrained", "--scale", "smoke", "--workers", "2", "--data-dir", "data"]
    os.chdir(folder)
    try:
        main()
    finally:
        if xla_bridge.backends_are_initialized():
            sys.exit(3)


def set_up(prepare, *_, **__) -> None:
    prepare()
