"""`tickgp train`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tickgp.cli.device import Device, set_up
from tickgp.cli.progress import progress
from tickgp.cli.signals import stop_on_signal
from tickgp.cli.tables import metrics_table, open_console, say
from tickgp.errors import UsageError
from tickgp.runs.places import short_name
from tickgp.training.config import Config, DataConfig

if TYPE_CHECKING:
    from rich.console import Console

    from tickgp.runs.events import Event, Report, Stage, Step


@dataclass(frozen=True)
class TrainOptions:
    """Train a model, then say how good its probabilities are on images it has not seen."""

    config_file: Annotated[Path | None, tyro.conf.arg(name="config", metavar="FILE")] = None
    """Settings in TOML; options given here win over it."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run; by default runs/<dataset>-<model>-<seed>."""
    overwrite: bool = False
    """Replace the run that the folder holds; if finished, it stays in previous-run/ there until the new one is."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Continue this run; only --max-steps and --max-seconds may be given anew, and with --dataset or --data-dir the
    place where its images are now."""
    device: Device = None
    """Where to compute; by default a GPU if there is one."""
    tensorboard: bool = False
    """Write the training curves for TensorBoard too, into the folder of the run."""
    json: bool = False
    """Print the final metrics as one JSON object and nothing else."""
    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def train_command(arguments: list[str]) -> Callable[..., None]:
    """`train`, with the settings of --resume or --config as the defaults of its options."""
    before = Config()
    if resumed := _value_of("--resume", arguments):
        if not (Path(resumed) / "config.toml").is_file():
            raise UsageError(f"{resumed} is not the folder of a run; give --resume one that `tickgp train` wrote")
        before = _settings(Path(resumed) / "config.toml")
    elif given := _value_of("--config", arguments):
        before = _settings(Path(given))
    default = TrainOptions(config=before)

    def command(options: Annotated[TrainOptions, tyro.conf.arg(name="")] = default) -> None:
        _train(options, before)

    command.__doc__ = TrainOptions.__doc__
    return command


def _settings(file: Path) -> Config:
    """What is wrong in a file that was named is wrong in how it was asked."""
    from tickgp.training.toml import read_config

    try:
        return read_config(file)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _value_of(name: str, arguments: list[str]) -> str | None:
    """The value of an option that must be read before the others."""
    for first, second in pairwise([*arguments, ""]):
        if first == name and second:
            return second
        if first.startswith(f"{name}="):
            return first.partition("=")[2]
    return None


def _train(options: TrainOptions, before: Config) -> None:
    folder, config = _folder(options), options.config
    if options.resume is not None:
        _check_resumed(options, before)
    set_up(options.device, float64=config.model.float64)
    from tickgp.runs.execute import Limits, execute
    from tickgp.runs.model_file import load_rule
    from tickgp.runs.tensorboard import tensorboard_writer

    new = options.resume is None
    limits = Limits(config.training.max_steps, config.training.max_seconds)
    kept = new or config.training == before.training
    command = shlex.join(["tickgp", *sys.argv[1:]])
    console = open_console(options.json)
    with stop_on_signal() as stopping, progress(console, config.model.name, config.training.max_steps) as show:
        draw = tensorboard_writer(folder) if options.tensorboard else lambda report: None
        events = execute(
            folder,
            config if new else None,
            overwrite=options.overwrite,
            limits=None if kept else limits,
            **_moved(before.data, config.data),
            stop=stopping,
            command=command,
        )
        ended = _follow(events, show, draw, console)
    if isinstance(ended, int):
        if options.json:
            print(json.dumps({"stopped": ended, "run": str(folder)}))
        begun = ended or options.resume
        resume = f"tickgp train --resume {folder}"
        go_on = (
            f"stopped at step {ended}; continue with: {resume}; or test it as it is with: {resume} --max-steps {ended}"
        )
        say(console, go_on if begun else "stopped before the first step; nothing was written")
        sys.exit(130 if stopping() else 0)
    if options.json:
        print(json.dumps({**ended, "hand_over": load_rule(folder).as_json()}))
        return
    console.print(metrics_table(f"{config.model.name} on {config.data.dataset}", ended))
    say(console, str(load_rule(folder)))
    say(console, f"the report is {folder / 'report.html'}")


def _follow(
    events: Iterator[Event],
    show: Callable[[Report | Step | Stage], None],
    draw: Callable[[Report], None],
    console: Console,
) -> int | dict[str, Any]:
    """Show what happens; returns the final metrics, or the step at which it stopped."""
    from tickgp.runs.events import Finished, Report, Stage, Step, Stopped

    for event in events:
        match event:
            case Report():
                show(event)
                draw(event)
            case Stage() | Step():
                show(event)
            case Finished():
                return event.metrics
            case Stopped():
                return event.step
            case _:
                say(console, event.text)
    raise AssertionError("a run ends by saying how")


def _folder(options: TrainOptions) -> Path:
    """The folder of the run."""
    if options.resume is not None:
        return options.resume
    name = short_name(options.config.data.dataset)
    return options.out or Path("runs") / f"{name}-{options.config.model.name}-{options.config.seed}"


def _moved(before: DataConfig, now: DataConfig) -> dict[str, Any]:
    """The place of the images, where it is not the one that was known."""
    places = {"dataset": (before.dataset, now.dataset), "data_dir": (before.data_dir, now.data_dir)}
    return {name: new for name, (old, new) in places.items() if new != old}


def _check_resumed(options: TrainOptions, before: Config) -> None:
    """A run goes on as it was begun; if asked to another step, for another time, or with images that were moved."""
    run, asked = options.resume, options.config.training
    if options.out is not None or options.overwrite or options.config_file is not None:
        raise UsageError(
            f"--resume {run} goes on in its folder with its settings; leave out --out, --overwrite, --config"
        )
    training = replace(before.training, max_steps=asked.max_steps, max_seconds=asked.max_seconds)
    places = {name: getattr(options.config.data, name) for name in ("dataset", "data_dir")}
    if options.config != replace(before, training=training, data=replace(before.data, **places)):
        raise UsageError(
            f"{run} is continued with its own settings; give only --max-steps or --max-seconds, or with --dataset or "
            "--data-dir the place where its images are now"
        )
