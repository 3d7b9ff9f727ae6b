"""A dropout CNN of an experiment: trained in a folder with checkpoints, then tested in three ways.

dropout: averaged over draws of dropout at test, as in the paper. deterministic: the network as it is. temperature: its
logits divided by a temperature that is chosen on the validation images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tickgp.baselines.cnn import CNN
from tickgp.baselines.predict import predict_cnn, predict_logits
from tickgp.baselines.temperature import fit_temperature, scaled
from tickgp.baselines.training import CNNProgress, CNNState, initial_state, train_cnn
from tickgp.data.contents import Split
from tickgp.data.dataset import Dataset
from tickgp.evaluation.metrics import Outcomes
from tickgp.experiments.cells import Cell, CnnConfig
from tickgp.experiments.predictions import other_data, save_predictions
from tickgp.experiments.results import Places, scores, thinned
from tickgp.runs.events import Event, Finished, Note, Report, Stopped
from tickgp.runs.folder import held, load_data, read_history, remove_leftovers, write_history
from tickgp.runs.judge import some_of_each
from tickgp.training.checkpoint import Checkpoint, checkpoints, load_checkpoint, save_checkpoint
from tickgp.training.config import Config


def train_cnn_cell(cell: Cell, places: Places, stop: Callable[[], bool]) -> Iterator[Event]:
    """The events of the run; it goes on where it stopped."""
    settings, data, folder = _settings(cell), load_cnn_data(cell, places.data_dir), places.folder(cell)
    with held(folder):
        yield from _train(folder, settings, data, stop)


def _train(folder: Path, settings: CnnConfig, data: Dataset, stop: Callable[[], bool]) -> Iterator[Event]:
    yield from (Note(f"removed {name}, which was cut short") for name in remove_leftovers(folder))
    start = _start(folder, settings, data)
    yield from (Note(f"passed over a broken checkpoint: {reason}") for reason in start.broken)
    state, step, seconds = start.state, int(start.state.step), start.seconds
    history = read_history(folder, last=step)
    write_history(folder, history)
    # On test images as a GP, which has none for validation here.
    watched = some_of_each(data.test, data.train, settings.watched_images, settings.seed)
    for event in _training(settings, data, state, stop):
        state, step, seconds = event.state, event.step, round(start.seconds + event.seconds, 3)
        if step % settings.report_every == 0 or step == settings.max_steps:
            report = _report(settings, watched, event, seconds)
            history.append({**asdict(report), "elbo": None, "jitter": None})
            write_history(folder, history)
            yield report
            save_checkpoint(folder / "checkpoint", state, seconds)
    save_checkpoint(folder / "checkpoint", state, seconds)
    yield Finished({}) if step >= settings.max_steps else Stopped(step)


def judge_cnn(cell: Cell, places: Places) -> dict[str, Any]:
    """The content of the result file of a finished run; its predictions are left in its folder."""
    settings, data, folder = _settings(cell), load_cnn_data(cell, places.data_dir), places.folder(cell)
    state = _start(folder, settings, data).state
    model, shape = state.model, data.train.images.shape[1:]
    assert data.validation is not None
    temperature = fit_temperature(predict_logits(model, data.validation.images), data.validation.labels)
    splits = {"test": data.test, "validation": data.validation} | other_data(cell, shape, places.data_dir)
    p = {
        f"{name}/{way}": values
        for name, split in splits.items()
        for way, values in _three_ways(settings, model, split, temperature).items()
    }
    save_predictions(folder, p)
    history = read_history(folder)
    return {
        "dataset": {"name": data.name, "sha256": data.sha256()},
        "train_images": len(data.train),
        "seconds": history[-1]["seconds"] if history else None,
        "steps": int(state.step),
        "elbo": None,
        "temperature": temperature,
        "metrics": {
            name: {way: scores(p[f"{name}/{way}"], split.labels) for way in ("dropout", "deterministic", "temperature")}
            for name, split in splits.items()
        },
        "curve": thinned(history),
    }


def load_cnn_data(cell: Cell, data_dir: Path | None) -> Dataset:
    """The images of a CNN's run. All seeds have the same split."""
    return load_data(Config(data=replace(cell.settings.data, data_dir=data_dir)))


def _settings(cell: Cell) -> CnnConfig:
    assert isinstance(cell.settings, CnnConfig)
    return cell.settings


def _start(folder: Path, settings: CnnConfig, data: Dataset) -> Checkpoint[CNNState]:
    shape, key = data.train.images.shape[1:], jax.random.key(settings.seed)
    model = CNN(shape, len(data.class_names), num_convolutions=settings.num_convolutions, key=key)
    state = initial_state(model)
    if checkpoints(folder / "checkpoint"):
        return load_checkpoint(folder / "checkpoint", state)
    return Checkpoint(state)


def _training(settings: CnnConfig, data: Dataset, state: CNNState, stop: Callable[[], bool]) -> Iterator[CNNProgress]:
    return train_cnn(
        state,
        data.train.images,
        data.train.labels,
        steps=settings.max_steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        dropout=settings.dropout,
        report_every=settings.report_every,
        stop=stop,
        key=jax.random.fold_in(jax.random.key(settings.seed), 1),
    )


def _report(settings: CnnConfig, watched: tuple[Split, Split], event: CNNProgress, seconds: float) -> Report:
    """Where training stands; a CNN has no ELBO and no jitter, and its training ends at a step that fails."""
    test, train = (Outcomes.of(_dropout(settings, event.state.model, split), split.labels) for split in watched)
    return Report(
        step=event.step,
        elbo=float("nan"),
        nll=test.nll(),
        top1_error=test.top_error(),
        train_nll=train.nll(),
        jitter=float("nan"),
        skipped=0,
        seconds=seconds,
    )


def _dropout(settings: CnnConfig, model: CNN, split: Split) -> np.ndarray:
    key, samples = jax.random.key(settings.seed), settings.prediction_samples
    prediction = predict_cnn(model, split.images, dropout=settings.dropout, num_samples=samples, key=key)
    return np.asarray(prediction.probabilities, float)


def _three_ways(settings: CnnConfig, model: CNN, split: Split, temperature: float) -> dict[str, np.ndarray]:
    logits = predict_logits(model, split.images)
    return {
        "dropout": _dropout(settings, model, split),
        "deterministic": np.asarray(scaled(logits, 1.0).probabilities, float),
        "temperature": np.asarray(scaled(logits, temperature).probabilities, float),
    }
