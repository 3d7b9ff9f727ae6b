"""A run while it is trained: its folder, and what has been reported of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.evaluation.bound import dataset_elbo, guessing_bound
from tickgp.evaluation.familiarity import Familiarity
from tickgp.runs.events import Event, Note, Report, Stage, Step
from tickgp.runs.folder import keep_trained_on, read_history, read_json, withdraw, write_history, write_json
from tickgp.runs.judge import final_metrics, held_out, overfitting, some_of_each, watch
from tickgp.runs.manifest import write_manifest
from tickgp.runs.model_file import TrainedModel, save_model
from tickgp.runs.report import write_predictions, write_report
from tickgp.training.assemble import train_settings
from tickgp.training.checkpoint import Checkpoint, checkpoints, load_checkpoint, save_checkpoint
from tickgp.training.config import Config, ModelConfig, applies
from tickgp.training.loop import Progress, State, train
from tickgp.training.stopping import at_rest

QUIET_SECONDS = 15.0
"""After so many without a report, a `Step` event says where training stands."""


class Run:
    """A run while it is trained: its folder, and what has been reported of it."""

    def __init__(self, folder: Path, config: Config, data: Dataset, command: str, began: float):
        self.folder, self.config, self.data = folder, config, data
        self.command, self.began = command, began
        self.history: list[dict[str, Any]] = []
        self.before = 0.0  # seconds of training before this process
        self.watched = some_of_each(data.held_out, data.train, config.training.watched_images, config.seed)

    def latest(self, fresh: State) -> tuple[State, list[str]]:
        """The state to go on from, and what to say of it; reports after that state are taken back."""
        found, notes = Checkpoint(fresh), list[str]()
        if checkpoints(self.folder / "checkpoint"):
            found = load_checkpoint(self.folder / "checkpoint", fresh)
            notes += [f"passed over a broken checkpoint: {reason}" for reason in found.broken]
        elif (self.folder / "metrics.json").is_file():
            raise UsageError(
                f"{self.folder} has been finished, and its checkpoints are gone: there is nothing to go on from; train "
                "it anew with --overwrite"
            )
        elif read_history(self.folder):
            notes.append("there is no checkpoint to go on from: training begins anew")
        self.before, self.history = found.seconds, read_history(self.folder, last=int(found.state.step))
        write_history(self.folder, self.history)
        return found.state, notes

    def train(self, state: State, stop: Callable[[], bool], key: jax.Array) -> Generator[Event, None, State]:
        """Train to the end, or until `stop`; reports and checkpoints on the way, and a checkpoint at the end."""
        settings, step, seconds = self.config.training, int(state.step), self.before
        jitter = float(state.model.jitter)
        yield Stage("compiling, which takes up to a minute")
        try:
            for event in _training(self.config, self.data, state, self.history, stop, key):
                state, due = event.state, event.step // settings.checkpoint_every > step // settings.checkpoint_every
                step, seconds = event.step, round(self.before + event.seconds, 3)
                reporting = step % settings.report_every == 0 or step == settings.max_steps
                said = self.report(event, seconds) if reporting else Step(step, seconds)
                if (raised := float(state.model.jitter)) > jitter:
                    jitter = raised
                    yield Note(f"steps had no finite gradient: the jitter of Kuu is now {jitter:.0e}")
                if event.skipped and reporting:
                    yield Note(f"steps skipped because the gradient was not finite, up to step {step}: {event.skipped}")
                yield said
                if due:
                    save_checkpoint(self.folder / "checkpoint", state, seconds)
        except (GeneratorExit, OSError):  # whoever listens has gone, or a file cannot be written: what was done is kept
            save_checkpoint(self.folder / "checkpoint", state, seconds)
            raise
        save_checkpoint(self.folder / "checkpoint", state, seconds)
        if step < settings.max_steps and self.has_ended(state):
            yield Note(f"the ELBO came to rest: training ends after {step} of {settings.max_steps} steps")
        return state

    def report(self, event: Progress, seconds: float) -> Report:
        """A line more of metrics.jsonl."""
        model = event.state.model
        (nll, error), (train_nll, _) = (watch(self.config, model, split) for split in self.watched)
        report = Report(event.step, event.elbo, nll, error, train_nll, float(model.jitter), event.skipped, seconds)
        self.history.append({name: value if np.isfinite(value) else None for name, value in asdict(report).items()})
        write_history(self.folder, self.history)
        return report

    def has_ended(self, state: State) -> bool:
        return int(state.step) >= self.config.training.max_steps or rests(self.config, self.history)

    def is_finished(self, state: State) -> bool:
        """Whether nothing is left to do."""
        if not (self.folder / "metrics.json").is_file() or not self.has_ended(state):
            return False
        metrics = self.metrics()
        return metrics["steps"] == int(state.step) and metrics["elbo"] is not None

    def metrics(self) -> dict[str, Any]:
        return read_json(self.folder / "metrics.json")

    def finish(self, state: State, key: jax.Array) -> Iterator[Event]:
        """Judge the trained model and complete the folder."""
        if self.history and all(line["elbo"] is None for line in self.history):
            raise ArithmeticError("not one step could be applied; try a smaller learning rate, or float64")
        if (best := overfitting(self.history)) is not None:
            yield Note(_too_close(best, self.config.model))
        yield Stage("testing")
        bound: float | None = None
        try:
            bound = dataset_elbo(state.model, self.data.train.images, self.data.train.labels, key=key)
        except ArithmeticError as error:  # a few images are enough for that: what it predicts may be sound all the same
            yield Note(f"{error}; the run is kept without it")
        if bound is not None and bound < (guessed := guessing_bound(self.data.train.labels)):
            yield Note(
                f"its ELBO, {bound:.1f}, is below {guessed:.1f}, that of guessing by the shares of the classes: too "
                "low to choose a model by; train it for more steps, at another learning rate or with fewer inducing "
                "patches"
            )
        train, names = self.data.train, self.data.class_names
        familiarity = Familiarity.of(state.model, train.images, train.labels, len(names))
        trained = TrainedModel(state.model, self.config, names, train.images.shape[1:], familiarity)
        prediction = trained.predict(self.data.test.images)
        p = np.asarray(prediction.probabilities, float)
        trained = replace(trained, held_out=held_out(trained, self.data, prediction))
        withdraw(self.folder)
        keep_trained_on(self.folder, self.data.train.digests)
        save_model(self.folder, trained)
        self.write_manifest(self.before + time.monotonic() - self.began)
        write_predictions(self.folder, self.data, prediction, trained.rule())
        yield Stage("writing the report")
        metrics = final_metrics(self.config, self.data, int(state.step), bound, p)
        write_report(self.folder, trained, self.data, prediction, metrics)
        write_json(self.folder / "metrics.json", metrics)

    def note_start(self) -> None:
        """The manifest from the first moment on: it says which data the run is about."""
        if not (self.folder / "manifest.json").is_file():
            self.write_manifest(0.0)

    def write_manifest(self, seconds: float) -> None:
        device = jax.devices()[0].device_kind
        write_manifest(self.folder, self.config, self.data, self.command, device, seconds)


def _too_close(best: int, model: ModelConfig) -> str:
    """What to do about a model that fits its training images too closely since the step `best`."""
    without_prior = model.weights and not model.weight_prior and applies("weights", model.name)
    simpler = ", or with --weight-prior" if without_prior else ""
    return (
        f"the NLL of held-out images was least at step {best} and has risen since, while that of training images fell: "
        "the model fits these too closely, which its ELBO does not tell; train anew with fewer steps "
        f"(--max-steps {best}{simpler}), or with more images"
    )


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
        **train_settings(settings),
        quiet_seconds=QUIET_SECONDS,
        stop=lambda: stop() or late(),
        key=key,
    )
    while not rests(config, history) and (event := next(events, None)) is not None:
        yield event


def rests(config: Config, history: list[dict[str, Any]]) -> bool:
    """Whether the ELBO in these lines of metrics.jsonl is at rest, where the settings ask for that."""
    window = config.training.window
    return window is not None and at_rest([line["elbo"] for line in history], window)
