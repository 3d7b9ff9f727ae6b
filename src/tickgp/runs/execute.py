"""Training in a folder, from the first step or from where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tickgp.data.dataset import Dataset, Split
from tickgp.evaluation.bound import dataset_elbo
from tickgp.evaluation.handover import HeldOut
from tickgp.evaluation.metrics import bootstrap, evaluate, top_error
from tickgp.evaluation.metrics import nll as mean_nll
from tickgp.gp.models import DeepGP
from tickgp.gp.predict import predict
from tickgp.gp.warm_start import warm_start
from tickgp.runs.folder import append_history, load_data, manifest, read_history, write_history, write_json
from tickgp.runs.model_file import TrainedModel, load_model, save_model
from tickgp.runs.report import write_report
from tickgp.training.assemble import build_model, schedule
from tickgp.training.checkpoint import load_checkpoint, save_checkpoint
from tickgp.training.config import Config
from tickgp.training.loop import Progress, State, initial_state, train
from tickgp.training.stopping import at_rest
from tickgp.training.toml import read_config


@dataclass(frozen=True)
class Note:
    """Something worth saying."""

    text: str


@dataclass(frozen=True)
class Report:
    """Where training stands: a line of metrics.jsonl."""

    step: int
    elbo: float
    """Mean of the minibatch estimates since the last report, each for the whole dataset; NaN if no step succeeded."""
    nll: float
    """Of the watched held-out images."""
    top1_error: float
    """Of the watched held-out images."""
    train_nll: float
    """Of as many training images."""
    seconds: float
    """Of training so far, compilation and reports included."""


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step, with a checkpoint."""

    step: int


@dataclass(frozen=True)
class Finished:
    """Training ended; the folder is complete."""

    metrics: dict[str, Any]


Event = Note | Report | Stopped | Finished


def execute(folder: Path, *, stop: Callable[[], bool] = lambda: False, command: str = "") -> Iterator[Event]:
    """Train as the folder's settings say, from its latest good checkpoint if it has one, to the end.

    When `stop` says so, or after the settings' `max_seconds`, it ends early with a checkpoint.
    """
    began, config = time.monotonic(), read_config(folder / "config.toml")
    data, settings = load_data(config), config.training
    yield from (Note(note) for note in data.notes)
    model_key, training_key, elbo_key = jax.random.split(jax.random.key(config.seed), 3)
    state, broken = _start(folder, config, data, model_key)
    yield from (Note(f"passed over a broken checkpoint: {reason}") for reason in broken)
    step = int(state.step)
    history, watched = read_history(folder, last=step), _watched(config, data)
    write_history(folder, history)
    before = history[-1]["seconds"] if history else 0.0
    for event in _training(config, data, state, history, stop, training_key):
        state = event.state
        if event.step % settings.report_every == 0:
            (nll, error), (train_nll, _) = (_scores(config, state.model, split) for split in watched)
            seconds = round(before + event.seconds, 3)
            report = Report(event.step, event.elbo, nll, error, train_nll, seconds)
            history.append({**asdict(report), "elbo": event.elbo if np.isfinite(event.elbo) else None})
            append_history(folder, history[-1])
            yield report
        if event.step // settings.checkpoint_every > step // settings.checkpoint_every:
            save_checkpoint(folder / "checkpoint", state)
        step = event.step
    save_checkpoint(folder / "checkpoint", state)
    if step < settings.max_steps and not _rests(config, history):
        yield Stopped(step)
        return
    if step < settings.max_steps:
        yield Note(f"the ELBO came to rest: training ends after {step} of {settings.max_steps} steps")
    bound = dataset_elbo(state.model, data.train.images, data.train.labels, key=elbo_key)
    if not np.isfinite(bound):
        raise ArithmeticError("the ELBO of the trained model is not finite; try a smaller learning rate, or float64")
    trained = TrainedModel(state.model, config, data.class_names, data.train.images.shape[1:])
    prediction = trained.predict(data.test.images)
    p = np.asarray(prediction.probabilities, float)
    trained = replace(trained, held_out=_held_out(trained, data, p))
    save_model(folder, trained)
    seconds = before + time.monotonic() - began
    write_json(folder / "manifest.json", manifest(config, data, command, jax.devices()[0].device_kind, seconds))
    metrics = _metrics(config, data, step, bound, p)
    write_json(folder / "metrics.json", metrics)
    write_report(folder, trained, data, prediction)
    yield Finished(metrics)


def _start(folder: Path, config: Config, data: Dataset, key: jax.Array) -> tuple[State, list[str]]:
    """The state to go on from, and what is broken."""
    model = build_model(config.model, data.train.images, len(data.class_names), key=key)
    if (folder / "checkpoint").is_dir():
        return load_checkpoint(folder / "checkpoint", initial_state(model))
    if config.training.start_from is not None:
        model = _inherited(config.training.start_from, model, data, key)
    return initial_state(model), []


def _inherited(folder: Path, fresh: DeepGP, data: Dataset, key: jax.Array) -> DeepGP:
    """`fresh` with the numbers of the model in `folder`, made a layer deeper if need be."""
    trained = load_model(folder).model
    if len(fresh.layers) == len(trained.layers) + 1:
        trained = warm_start(trained, data.train.images, key=key)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(model)] for model in (fresh, trained)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"the model of {folder} does not fit these settings; start from a run with the same settings of the model, "
            "or with one layer less"
        )
    return jax.tree.unflatten(jax.tree.structure(fresh), jax.tree.leaves(trained))


def _training(
    config: Config,
    data: Dataset,
    state: State,
    history: list[dict[str, Any]],
    stop: Callable[[], bool],
    key: jax.Array,
) -> Iterator[Progress]:
    """The events of `train`, until the last step, the time limit, or the ELBO in the growing `history` is at rest."""
    settings, began = config.training, time.monotonic()
    late = lambda: settings.max_seconds is not None and time.monotonic() - began > settings.max_seconds
    events = train(
        state,
        data.train.images,
        data.train.labels,
        steps=settings.max_steps,
        batch_size=settings.batch_size,
        learning_rate=schedule(settings),
        natural_gradients=settings.natural_gradients,
        num_samples=settings.num_samples,
        report_every=settings.report_every,
        stop=lambda: stop() or late(),
        key=key,
    )
    while not _rests(config, history) and (event := next(events, None)) is not None:
        yield event


def _rests(config: Config, history: list[dict[str, Any]]) -> bool:
    patience = config.training.patience
    elbos = [line["elbo"] for line in history]
    return patience is not None and at_rest(elbos, patience // config.training.report_every)


def _watched(config: Config, data: Dataset) -> tuple[Split, Split]:
    """A few held-out images and a few of training, of all classes: those of a folder lie class by class."""
    rng, number = np.random.default_rng(config.seed), config.training.watched_images

    def some(split: Split) -> Split:
        few = rng.permutation(len(split))[:number]
        return Split(split.images[few], split.labels[few])

    return some(data.validation or data.test), some(data.train)


def _scores(config: Config, model: DeepGP, watched: Split) -> tuple[float, float]:
    """NLL and error, from few draws where draws are dear."""
    samples = config.prediction_samples if len(model.layers) == 1 else min(10, config.prediction_samples)
    p = predict(model, watched.images, key=jax.random.key(config.seed), num_samples=samples).probabilities
    return mean_nll(p, watched.labels), top_error(p, watched.labels)


def _held_out(trained: TrainedModel, data: Dataset, test_probabilities: np.ndarray) -> HeldOut:
    if data.validation is None:
        return HeldOut.of("test", test_probabilities, data.test.labels)
    return HeldOut.of("validation", trained.predict(data.validation.images).probabilities, data.validation.labels)


def _metrics(config: Config, data: Dataset, steps: int, bound: float, p: np.ndarray) -> dict[str, Any]:
    """The content of metrics.json."""
    return {
        "model": config.model.name,
        "dataset": data.name,
        "steps": steps,
        "elbo": bound,
        "test": evaluate(p, data.test.labels),
        "interval": bootstrap(p, data.test.labels, seed=config.seed),
    }
