"""Training in a folder, from the first step or from where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.evaluation.bound import dataset_elbo, guessing_bound
from tickgp.evaluation.familiarity import Familiarity
from tickgp.evaluation.handover import images_needed
from tickgp.files import write_whole
from tickgp.gp.models import DeepGP
from tickgp.runs.events import Event, Finished, Note, Report, Stage, Step, Stopped
from tickgp.runs.folder import (
    PREVIOUS,
    append_history,
    check_free,
    forget_previous,
    held,
    load_data,
    load_own,
    prepare,
    read_history,
    read_json,
    remove_leftovers,
    write_history,
    write_json,
    write_manifest,
)
from tickgp.runs.judge import final_metrics, held_out, watch, watched_images
from tickgp.runs.model_file import NAME as MODEL
from tickgp.runs.model_file import TrainedModel, check_precision, grids, save_model
from tickgp.runs.places import resolved
from tickgp.runs.report import write_predictions, write_report
from tickgp.runs.start_from import inherited
from tickgp.training.assemble import build_model, schedule, train_settings
from tickgp.training.checkpoint import Checkpoint, checkpoints, load_checkpoint, reached, save_checkpoint
from tickgp.training.config import Config, refuse_idle
from tickgp.training.loop import Progress, State, initial_state, train
from tickgp.training.stopping import at_rest
from tickgp.training.toml import format_config, read_config

QUIET_SECONDS = 15.0
"""After so many without a report, a `Step` event says where training stands."""


@dataclass(frozen=True)
class Limits:
    """Where training ends: settings that a run may be continued with."""

    max_steps: int
    max_seconds: float | None


def execute(
    folder: Path,
    config: Config | None = None,
    *,
    overwrite: bool = False,
    limits: Limits | None = None,
    stop: Callable[[], bool] = lambda: False,
    command: str = "",
) -> Iterator[Event]:
    """Start a new run with `config`; without it, continue the run in `folder` from its latest good checkpoint.

    The latter with other `limits`, if given. It ends early, with a checkpoint, when `stop()` is true or after the
    settings' `max_seconds`. Nothing is written or replaced before the data are read and, for a new run, the model is
    built. No two processes train in one folder.
    """
    with ExitStack() as stack:
        yield from _execute(folder, config, overwrite, limits, stop, command, stack)


def _execute(
    folder: Path,
    config: Config | None,
    overwrite: bool,
    limits: Limits | None,
    stop: Callable[[], bool],
    command: str,
    stack: ExitStack,
) -> Iterator[Event]:
    """`execute`, with the `stack` that keeps the folder locked."""
    began, new = time.monotonic(), config is not None
    if config is not None:
        check_free(folder, overwrite=overwrite)
        refuse_idle(config)
        check_precision(config)
        config = resolved(config)
        if config.training.start_from == folder.resolve():
            raise UsageError(f"{folder} is to be overwritten by a run that starts from it; give another --out")
        data = load_data(config)
    else:
        config = read_config(folder / "config.toml")
        check_precision(config)
        stack.enter_context(held(folder))
        yield from (Note(f"removed {name}, which was cut short") for name in remove_leftovers(folder))
        data = load_own(folder, config)
        if limits is not None:
            config, notes = _within(limits, config, folder)
            write_whole(folder / "config.toml", format_config(config).encode())
            yield from map(Note, notes)
    yield from (Note(note) for note in (_loaded(data), *data.notes, *_warnings(config, data)))
    if stop():
        yield Stopped(0 if new else reached(folder / "checkpoint"))
        return
    model_key, training_key, elbo_key = jax.random.split(jax.random.key(config.seed), 3)
    try:
        model = build_model(config.model, data.train.images, len(data.class_names), key=model_key)
    except ValueError as error:  # these settings do not go with these images
        raise UsageError(str(error)) from None
    if new:
        _check_gapless(model)
    if config.training.start_from is not None and (new or not checkpoints(folder / "checkpoint")):
        model, note = inherited(config, model, data, model_key)
        yield Note(note)
    if new:
        stack.enter_context(held(folder))
        prepare(config, folder, overwrite=overwrite)
    run = _Run(folder, config, data, command, began)
    run.note_start()
    state, notes = run.latest(initial_state(model, natural_gradients=config.training.natural_gradients))
    yield from (Note(note) for note in notes)
    if not run.is_finished(state):
        if (folder / PREVIOUS).is_dir():
            yield Note(f"the run that was here is kept in {folder / PREVIOUS} until this one has finished")
        state = yield from run.train(state, stop, training_key)
        if not run.has_ended(state):
            yield Stopped(int(state.step))
            return
        yield from run.finish(state, elbo_key)
    forget_previous(folder)
    yield Finished(run.metrics())


def _check_gapless(model: DeepGP) -> None:
    for grid in grids(model):
        (h, w), (down, across) = grid.patch_shape, grid.stride
        if down > h or across > w:
            raise UsageError(
                f"patches of {h}×{w} pixels in steps of {down}×{across} leave pixels out; use a stride of at most the "
                "size of a patch"
            )


def _within(limits: Limits, config: Config, folder: Path) -> tuple[Config, list[str]]:
    """The settings of the run in `folder` with other limits, and what to say of these."""
    new, step = replace(config, training=replace(config.training, **asdict(limits))), reached(folder / "checkpoint")
    before, now = config.training, new.training
    rests = (folder / MODEL).is_file() and _rests(config, read_history(folder, last=step))
    if rests and now.max_steps > before.max_steps:
        raise UsageError(
            f"the ELBO of {folder} came to rest at step {step}, where it ended, so that more steps do nothing; begin "
            f"another run from it: --start-from {folder}"
        )
    if now.max_steps < step:
        raise UsageError(f"the run has reached step {step}; give --max-steps of at least that, or leave it out")
    if step in (0, now.max_steps) or now.decay != "linear" or before.max_steps == now.max_steps:
        return new, []
    rates = schedule(before)(step), schedule(now)(step)
    falls = f"its learning rate falls to 0 at the last step, now {now.max_steps}, and so goes on from"
    return new, [f"{falls} {rates[1]:.2g} instead of {rates[0]:.2g}"]


def _loaded(data: Dataset) -> str:
    parts = {"to train": data.train, "held out to choose by": data.validation, "to test": data.test}
    counts = {words: len(part) for words, part in parts.items() if part is not None}
    shown = ", ".join(f"{count:,} {words}" for words, count in counts.items())
    return f"{sum(counts.values()):,} images of {len(data.class_names)} classes: {shown}"


def _warnings(config: Config, data: Dataset) -> Iterator[str]:
    """What makes the numbers of a run worth less, as far as the images show it before training."""
    number = len(data.held_out)
    needed = images_needed(config.max_error, config.confidence, config.max_unusual)
    if number < needed:
        yield (
            f"{number} held-out images are too few for the model to decide alone and be wrong in at most "
            f"{100 * config.max_error:g} %, which takes {needed} if {100 * config.max_unusual:g} % are unusual; hold "
            "out more, or raise --max-error"
        )
    if copies := sum(int(part.is_in(data.train).sum()) for part in data.parts[1:]):
        yield f"copies of training images among the held-out ones: {copies}; these make it look better than it is"


class _Run:
    """A run while it is trained: its folder, and what has been reported of it."""

    def __init__(self, folder: Path, config: Config, data: Dataset, command: str, began: float):
        self.folder, self.config, self.data = folder, config, data
        self.command, self.began = command, began
        self.history: list[dict[str, Any]] = []
        self.before = 0.0  # seconds of training before this process
        self.watched = watched_images(config, data)

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
                    yield Note(f"steps skipped for want of a finite gradient, up to step {step}: {event.skipped}")
                yield said
                if due:
                    save_checkpoint(self.folder / "checkpoint", state, seconds)
        except GeneratorExit:  # whoever listens has gone: what was done is kept
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
        append_history(self.folder, self.history[-1])
        return report

    def has_ended(self, state: State) -> bool:
        return int(state.step) >= self.config.training.max_steps or _rests(self.config, self.history)

    def is_finished(self, state: State) -> bool:
        """Whether nothing is left to do."""
        done = all((self.folder / name).is_file() for name in ("metrics.json", "model.safetensors", "report.html"))
        if not done or not self.has_ended(state):
            return False
        metrics = self.metrics()
        return metrics["steps"] == int(state.step) and metrics["elbo"] is not None

    def metrics(self) -> dict[str, Any]:
        return read_json(self.folder / "metrics.json")

    def finish(self, state: State, key: jax.Array) -> Iterator[Event]:
        """Judge the trained model and complete the folder."""
        if self.history and all(line["elbo"] is None for line in self.history):
            raise ArithmeticError("not one step could be applied; try a smaller learning rate, or float64")
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
        shape = self.data.train.images.shape[1:]
        familiarity = Familiarity.of(state.model, self.data.train.images)
        trained = TrainedModel(state.model, self.config, self.data.class_names, shape, familiarity)
        prediction = trained.predict(self.data.test.images)
        p = np.asarray(prediction.probabilities, float)
        if bad := np.sum(~np.isfinite(p).all(axis=1)):
            raise ArithmeticError(
                f"the trained model has no finite probabilities for {bad} of {len(p)} test images; "
                "try a smaller learning rate, or float64"
            )
        trained = replace(trained, held_out=held_out(trained, self.data, prediction))
        save_model(self.folder, trained)
        self.write_manifest(self.before + time.monotonic() - self.began)
        write_predictions(self.folder, self.data, prediction)
        metrics = final_metrics(self.config, self.data, int(state.step), bound, p)
        write_json(self.folder / "metrics.json", metrics)
        yield Stage("writing the report")
        write_report(self.folder, trained, self.data, prediction)

    def note_start(self) -> None:
        """The manifest from the first moment on: it says which data the run is about."""
        if not (self.folder / "manifest.json").is_file():
            self.write_manifest(0.0)

    def write_manifest(self, seconds: float) -> None:
        device = jax.devices()[0].device_kind
        write_manifest(self.folder, self.config, self.data, self.command, device, seconds)


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
    while not _rests(config, history) and (event := next(events, None)) is not None:
        yield event


def _rests(config: Config, history: list[dict[str, Any]]) -> bool:
    window = config.training.window
    return window is not None and at_rest([line["elbo"] for line in history], window)
