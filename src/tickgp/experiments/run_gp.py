"""A Gaussian process of an experiment: trained in a run folder, then tested as the tables ask."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tickgp.data.contents import Split
from tickgp.evaluation.reach import crossings_across
from tickgp.experiments.cells import DRAWS, MANY, TRAINING_IMAGES, Cell
from tickgp.experiments.predictions import other_data, save_predictions
from tickgp.experiments.results import Places, scores, thinned
from tickgp.files import write_whole
from tickgp.gp.convolution import Convolutional
from tickgp.gp.kernels import AbstractStationary
from tickgp.gp.models import DeepGP
from tickgp.runs.events import Event
from tickgp.runs.execute import execute
from tickgp.runs.folder import load_data, prepare, read_history, read_json
from tickgp.runs.manifest import MACHINE
from tickgp.runs.model_file import TrainedModel, load_model
from tickgp.runs.places import resolved
from tickgp.training.config import Config
from tickgp.training.toml import format_config


def train_gp(cell: Cell, places: Places, stop: Callable[[], bool]) -> Iterator[Event]:
    """The events of the run; it goes on where it stopped."""
    config, folder = _placed(cell, places), places.folder(cell)
    if not (folder / "config.toml").is_file():
        shutil.rmtree(folder, ignore_errors=True)  # what a kill left of a folder that was being prepared
        prepare(config, folder)
    else:  # begun with these settings, but maybe when files had other places
        write_whole(folder / "config.toml", format_config(resolved(config)).encode())
    if not (folder / "metrics.json").is_file() or read_json(folder / "metrics.json")["elbo"] is None:
        yield from execute(folder, stop=stop, command=f"tickgp reproduce --only {cell.name}")


def judge_gp(cell: Cell, places: Places) -> dict[str, Any]:
    """The content of the result file of a finished run; its predictions are left in its folder."""
    folder = places.folder(cell)
    metrics, manifest = read_json(folder / "metrics.json"), read_json(folder / "manifest.json")
    if metrics["elbo"] is None:
        raise ArithmeticError("the tables need its ELBO, which is not finite; the same command computes it again")
    trained = load_model(folder)
    data = load_data(replace(trained.config, data=replace(trained.config.data, data_dir=places.data_dir)))
    splits = {"test": data.test} | other_data(cell, trained.image_shape, places.data_dir)
    p = {name: {way: _predict(trained, split, way) for way in DRAWS} for name, split in splits.items()}
    save_predictions(folder, {f"{name}/{way}": p[name][way] for name in splits for way in DRAWS})
    train = data.train.take(np.random.default_rng(0).permutation(len(data.train))[:TRAINING_IMAGES])
    splits, p = splits | {"train": train}, p | {"train": {MANY: _predict(trained, train, MANY)}}
    return {
        "machine": {name: manifest[name] for name in MACHINE},
        "dataset": manifest["dataset"],
        "train_images": len(data.train),
        "seconds": manifest["seconds"],
        "steps": metrics["steps"],
        "elbo": metrics["elbo"],
        "metrics": {
            name: {way: scores(found, splits[name].labels) for way, found in by_way.items()}
            for name, by_way in p.items()
        },
        "learned": learned_location(trained.model),
        "curve": thinned(read_history(folder)),
    }


def learned_location(model: DeepGP) -> dict[str, float] | None:
    """The learned translation insensitivity of the last layer; None without a location kernel of one lengthscale."""
    covariance = model.layers[-1].gp.kernel.covariances[0]
    if not isinstance(covariance, Convolutional):
        return None
    location, grid = covariance.response.location, covariance.grid
    if not isinstance(location, AbstractStationary) or (crossings := crossings_across(location, grid)) is None:
        return None
    return {
        "lengthscale": float(location.lengthscale.value),
        "zero_crossings": crossings[1],
        "width": grid.image_shape[1],
    }


def _placed(cell: Cell, places: Places) -> Config:
    """The settings of the run with the places of files on this machine."""
    config = cell.settings
    assert isinstance(config, Config)
    start_from = places.folder(cell.needs[0]) if cell.needs else None
    training = replace(config.training, start_from=start_from)
    return replace(config, data=replace(config.data, data_dir=places.data_dir), training=training)


def _predict(trained: TrainedModel, split: Split, way: str) -> np.ndarray:
    """Class probabilities from as many draws as `DRAWS` says."""
    num_samples, likelihood_samples = DRAWS[way]
    prediction = trained.predict(split.images, num_samples=num_samples, likelihood_samples=likelihood_samples)
    return np.asarray(prediction.probabilities, float)
