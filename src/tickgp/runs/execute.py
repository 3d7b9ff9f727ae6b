"""Training in a folder, from the first step or from where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tickgp.data.contents import Split
from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.evaluation.bound import dataset_elbo, guessing_bound
from tickgp.evaluation.handover import images_needed
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.models import DeepGP
from tickgp.gp.warm_start import warm_start
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
from tickgp.runs.model_file import TrainedModel, load_config, load_model, save_model
from tickgp.runs.places import resolved, whole_name
from tickgp.runs.report import write_predictions, write_report
from tickgp.training.assemble import build_model, initialiser, train_settings
from tickgp.training.checkpoint import Checkpoint, checkpoints, load_checkpoint, reached, save_checkpoint
from tickgp.training.config import Config
from tickgp.training.loop import Progress, State, initial_state, train
from tickgp.training.stopping import at_rest
from tickgp.training.toml import read_config

QUIET_SECONDS = 15.0
"""Without a report, after which the step is said."""
_KEPT = "its numbers take the place of settings of the start, such as variances and lengthscales"


def execute(
    folder: Path,
    config: Config | None = None,
    *,
    overwrite: bool = False,
    stop: Callable[[], bool] = lambda: False,
    command: str = "",
) -> Iterator[Event]:
    """A new run with the settings `config`; without them the run in `folder`, from its latest good checkpoint.

    When `stop` says so, or after the settings' `max_seconds`, it ends early with a checkpoint. Nothing is written, and
    no old run overwritten, before the data are read and the model is built. No two processes train in one folder.
    """
    with ExitStack() as stack:
        yield from _execute(folder, config, overwrite, stop, command, stack)


def _execute(
    folder: Path,
    config: Config | None,
    overwrite: bool,
    stop: Callable[[], bool],
    command: str,
    stack: ExitStack,
) -> Iterator[Event]:
    """`execute`, with the `stack` that keeps the folder locked."""
    began, new = time.monotonic(), config is not None
    if config is not None:
        check_free(folder, overwrite=overwrite)
        config = resolved(config)
        if config.training.start_from == folder.resolve():
            raise UsageError(f"{folder} is to be overwritten by a run that starts from it; give another --out")
        data = load_data(config)
    else:
        config = read_config(folder / "config.toml")
        stack.enter_context(held(folder))
        yield from (Note(f"removed {name}, which was cut short") for name in remove_leftovers(folder))
        data = load_own(folder, config)
    yield from (Note(note) for note in (_loaded(data), *data.notes, *_warnings(config, data)))
    if stop():
        yield Stopped(0 if new else reached(folder / "checkpoint"))
        return
    model_key, training_key, elbo_key = jax.random.split(jax.random.key(config.seed), 3)
    try:
        model = build_model(config.model, data.train.images, len(data.class_names), key=model_key)
    except ValueError as error:  # these settings do not go with these images
        raise UsageError(str(error)) from None
    if config.training.start_from is not None and (new or not checkpoints(folder / "checkpoint")):
        model, differing = _inherited(config, model, data, model_key)
        where = f"{config.training.start_from}{f' ({differing})' if differing else ''}"
        yield Note(f"starts from the trained model of {where}; {_KEPT}")
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


def _loaded(data: Dataset) -> str:
    parts = {"to train": data.train, "held out to choose by": data.validation, "to test": data.test}
    counts = {words: len(part) for words, part in parts.items() if part is not None}
    shown = ", ".join(f"{count:,} {words}" for words, count in counts.items())
    return f"{sum(counts.values()):,} images of {len(data.class_names)} classes: {shown}"


def _held_out(data: Dataset) -> list[Split]:
    """Images that are not trained on. On the first of these the hand-over threshold is chosen."""
    return [part for part in (data.validation, data.test) if part is not None]


def _warnings(config: Config, data: Dataset) -> Iterator[str]:
    """What makes the numbers of a run worth less, as far as the images show it before training."""
    number, needed = len(_held_out(data)[0]), images_needed(config.max_error, config.confidence)
    if number < needed:
        yield (
            f"{number} held-out images are too few for the model to decide alone and be wrong in at most "
            f"{100 * config.max_error:g} %, which takes {needed}; raise --max-error, or hold out more"
        )
    if copies := sum(int(part.is_in(data.train).sum()) for part in _held_out(data)):
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
                    yield Note(f"Kuu came close to singular: the jitter is now {jitter:.0e}")
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
        self.history.append({**asdict(report), "elbo": event.elbo if np.isfinite(event.elbo) else None})
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
                f"its ELBO, {bound:.1f}, is below {guessed:.1f}, that of guessing by the shares of the classes: too low to "
                "choose a model by; train it for more steps, or with fewer inducing patches"
            )
        shape = self.data.train.images.shape[1:]
        trained = TrainedModel(state.model, self.config, self.data.class_names, shape)
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


def _inherited(config: Config, fresh: DeepGP, data: Dataset, key: jax.Array) -> tuple[DeepGP, str]:
    """`fresh` with the numbers of the model that it is to start from, made a layer deeper if need be.

    And in which settings of the model the two runs differ, in words.
    """
    folder, new = config.training.start_from, config.model
    assert folder is not None
    if load_config(folder).model.float64 != new.float64:
        given = "without" if new.float64 else "with"
        raise UsageError(f"the model of {folder} has another precision; start from it {given} --float64")
    source = load_model(folder)
    if source.image_shape != (shape := data.train.images.shape[1:]):
        there, here = ("×".join(map(str, sizes)) for sizes in (source.image_shape, shape))
        raise UsageError(f"the model of {folder} is for images of {there}, and these are of {here}; start from another")
    _check_unseen(folder, source.config, config, data)
    trained = source.model
    if len(fresh.layers) == len(trained.layers) + 1:
        trained = warm_start(
            trained,
            data.train.images,
            stride=new.hidden_stride,
            q_mu=new.hidden_q_mu,
            initialiser=initialiser(new),
            key=key,
        )
    pairs = {field.name: (getattr(source.config.model, field.name), getattr(new, field.name)) for field in fields(new)}
    said = lambda value: "by default" if value is None else value
    differing = "; ".join(
        f"{name.replace('_', '-')} {said(a)} there, {said(b)} here" for name, (a, b) in pairs.items() if a != b
    )
    there, here = _strides(trained), _strides(fresh)
    if there != here:
        raise UsageError(
            f"patches of the model of {folder} stand {there} pixels apart, layer by layer, and {here} with these "
            "settings; say it with --stride and --hidden-stride as it is there"
        )
    shapes = [[leaf.shape for leaf in jax.tree.leaves(model)] for model in (fresh, trained)]
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"the model of {folder} does not fit these settings ({differing or 'other images or classes'}); "
            "start from a run with the same settings of the model, or with one layer less"
        )
    return jax.tree.unflatten(jax.tree.structure(fresh), jax.tree.leaves(trained)), differing


def _strides(model: DeepGP) -> str:
    """How far apart patches stand in each layer, in words; empty for layers on whole images."""
    covariances = [layer.gp.kernel.covariances[0] for layer in model.layers]
    grids = [c.grid for c in covariances if isinstance(c, Convolutional | MultiOutputConvolutional)]
    return ", ".join("×".join(map(str, dict.fromkeys(grid.stride))) for grid in grids)


def _check_unseen(folder: Path, before: Config, config: Config, data: Dataset) -> None:
    """Of the same images, those that are held out now must not be among those that `folder` was trained on."""
    if whole_name(before.data.dataset) != whole_name(config.data.dataset):
        return
    seen, parts = load_data(before, config.data.data_dir).train, _held_out(data)
    if number := sum(int((part.is_in(seen) & ~part.is_in(data.train)).sum()) for part in parts):
        raise UsageError(
            f"{folder} was trained on {number} of the {sum(map(len, parts))} images that are held out now; start from "
            "it with its seed, shares and numbers of images"
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
    while not _rests(config, history) and (event := next(events, None)) is not None:
        yield event


def _rests(config: Config, history: list[dict[str, Any]]) -> bool:
    patience = config.training.patience
    elbos = [line["elbo"] for line in history]
    return patience is not None and at_rest(elbos, patience // config.training.report_every)
