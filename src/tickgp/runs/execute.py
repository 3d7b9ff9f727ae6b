"""Training in a folder, from the first step or from where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import jax

from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.evaluation.handover import images_needed
from tickgp.files import write_whole
from tickgp.gp.models import DeepGP
from tickgp.runs.events import Event, Finished, Note, Stopped
from tickgp.runs.folder import (
    PREVIOUS,
    check_free,
    forget_previous,
    held,
    keep_trained_on,
    load_data,
    load_own,
    prepare,
    read_history,
    remove_leftovers,
)
from tickgp.runs.model_file import NAME as MODEL
from tickgp.runs.model_file import check_precision, grids
from tickgp.runs.places import resolved
from tickgp.runs.run import Run, rests
from tickgp.runs.start_from import inherited
from tickgp.training.assemble import build_model, schedule
from tickgp.training.checkpoint import checkpoints, reached
from tickgp.training.config import Config, refuse_idle
from tickgp.training.loop import initial_state
from tickgp.training.toml import format_config, read_config


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
    dataset: str | None = None,
    data_dir: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    command: str = "",
) -> Iterator[Event]:
    """Start a new run with `config`; without it, continue the run in `folder` from its latest good checkpoint.

    The latter with other `limits`, and with its images at another place, `dataset` or `data_dir`, if given. It ends
    early, with a checkpoint, when `stop()` is true or after the settings' `max_seconds`. Nothing is written or replaced
    before the data are read and, for a new run, the model is built. No two processes train in one folder.
    """
    began, new = time.monotonic(), config is not None
    with ExitStack() as locked:
        if config is not None:
            config, data, notes = _begin(folder, config, overwrite)
        else:
            config, data, notes = _resume(folder, limits, dataset, data_dir, locked)
        yield from map(Note, (*notes, _loaded(data), *data.notes, *_warnings(config, data)))
        if stop():
            yield Stopped(0 if new else reached(folder / "checkpoint"))
            return
        model_key, training_key, elbo_key = jax.random.split(jax.random.key(config.seed), 3)
        model, seen = _build(config, data, model_key, new), None
        if config.training.start_from is not None and (new or not checkpoints(folder / "checkpoint")):
            model, seen, note = inherited(config, model, data, model_key)
            yield Note(note)
        if new:
            locked.enter_context(held(folder))
            prepare(config, folder, overwrite=overwrite)
        if seen is not None:
            keep_trained_on(folder, seen)
        run = Run(folder, config, data, command, began)
        yield from _to_the_end(run, model, stop, training_key, elbo_key)


def _begin(folder: Path, config: Config, overwrite: bool) -> tuple[Config, Dataset, list[str]]:
    """Settings and images of a new run, and what to say of them; nothing is written yet."""
    check_free(folder, overwrite=overwrite)
    refuse_idle(config)
    check_precision(config)
    config = resolved(config)
    if config.training.start_from == folder.resolve():
        raise UsageError(f"{folder} is to be overwritten by a run that starts from it; give another --out")
    return config, load_data(config), []


def _resume(
    folder: Path, limits: Limits | None, dataset: str | None, data_dir: Path | None, locked: ExitStack
) -> tuple[Config, Dataset, list[str]]:
    """Settings and images of a run that is there, which is locked, and what to say of them."""
    before = read_config(folder / "config.toml")
    check_precision(before)
    locked.enter_context(held(folder))
    data = load_own(folder, before, data_dir, dataset)
    places = replace(before.data, dataset=dataset or before.data.dataset, data_dir=data_dir or before.data.data_dir)
    config = resolved(replace(before, data=places))
    config, said = (config, []) if limits is None else _within(limits, config, folder)
    return config, data, [*(f"removed {name}, which was cut short" for name in remove_leftovers(folder)), *said]


def _build(config: Config, data: Dataset, key: jax.Array, new: bool) -> DeepGP:
    """The model before the first step; what does not go with these images is wrong use."""
    try:
        model = build_model(config.model, data.train.images, len(data.class_names), key=key)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if new:
        _check_gapless(model)
    return model


def _to_the_end(
    run: Run, model: DeepGP, stop: Callable[[], bool], training_key: jax.Array, elbo_key: jax.Array
) -> Iterator[Event]:
    """The run from its latest state, or from `model`, until it has finished or is stopped."""
    run.note_start()
    state, notes = run.latest(initial_state(model, natural_gradients=run.config.training.natural_gradients))
    if run.config != read_config(run.folder / "config.toml"):
        write_whole(run.folder / "config.toml", format_config(run.config).encode())
    yield from map(Note, notes)
    if not run.is_finished(state):
        if (run.folder / PREVIOUS).is_dir():
            yield Note(f"the run that was here is kept in {run.folder / PREVIOUS} until this one has finished")
        state = yield from run.train(state, stop, training_key)
        if not run.has_ended(state):
            yield Stopped(int(state.step))
            return
        yield from run.finish(state, elbo_key)
    forget_previous(run.folder)
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
    at_rest = (folder / MODEL).is_file() and rests(config, read_history(folder, last=step))
    if at_rest and now.max_steps > before.max_steps:
        raise UsageError(
            f"the ELBO of {folder} came to rest at step {step}, where it ended, so that more steps do nothing; begin "
            f"another run from it: --start-from {folder}"
        )
    if now.max_steps < step:
        raise UsageError(f"the run has reached step {step}; give --max-steps of at least that, or leave it out")
    if step in (0, now.max_steps) or now.decay != "linear" or before.max_steps == now.max_steps:
        return new, []
    rates = f"{schedule(before)(step):.2g}", f"{schedule(now)(step):.2g}"
    falls = f"its learning rate falls to 0 at the last step, now {now.max_steps}, and so goes on from"
    return new, [f"{falls} {rates[1]} instead of {rates[0]}"] if rates[0] != rates[1] else []


def _loaded(data: Dataset) -> str:
    parts = {"to train": data.train, "held out to choose by": data.validation, "to test": data.test}
    counts = {words: len(part) for words, part in parts.items() if part is not None}
    shown = ", ".join(f"{count:,} {words}" for words, count in counts.items())
    return f"{sum(counts.values()):,} images of {len(data.class_names)} classes: {shown}"


def _warnings(config: Config, data: Dataset) -> Iterator[str]:
    """What makes the numbers of a run worth less, as far as the images show it before training."""
    counted = data.is_counted()
    number, no_copies = int(counted.sum()), "" if counted.all() else " that are no copies"
    needed = images_needed(config.max_error, config.confidence, config.max_unusual)
    if number < needed:
        yield (
            f"with {number} held-out images{no_copies} the model will leave all decisions to a person: to decide alone "
            f"and be wrong in at most {100 * config.max_error:g} % takes {needed} of them, if "
            f"{100 * config.max_unusual:g} % are unusual; hold out more, or raise --max-error"
        )
    if copies := sum(int(part.is_in(data.train).sum()) for part in data.parts[1:]):
        yield (
            f"copies of training images among the held-out ones: {copies}; these make it look better than it is, but "
            "what it decides alone is chosen without them"
        )
