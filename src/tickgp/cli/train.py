"""`tickgp train`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from tickgp.cli.device import Device, set_up
from tickgp.cli.progress import progress
from tickgp.cli.signals import stop_on_signal
from tickgp.cli.tables import metrics_table
from tickgp.training.config import Config

if TYPE_CHECKING:
    from tickgp.runs.execute import Report


@dataclass(frozen=True)
class TrainOptions:
    """Train a model, then say how good its probabilities are on images it has not seen."""

    config_file: Annotated[Path | None, tyro.conf.arg(name="config", metavar="FILE")] = None
    """Settings in TOML; options given here win over it."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of the run; by default runs/<dataset>-<model>-<seed>."""
    overwrite: bool = False
    """Replace the run that the folder holds."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Continue this run; only --max-steps and --max-seconds may be given anew."""
    device: Device = None
    """Where to compute; by default a GPU if there is one."""
    tensorboard: bool = False
    """Write the training curves for TensorBoard too, into the folder of the run."""
    json: bool = False
    """Print the final metrics as one JSON object and nothing else."""
    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def train_command(arguments: list[str]) -> Callable[..., None]:
    """`train`, with the settings of --resume or --config as the defaults of its options."""
    from tickgp.training.toml import read_config

    before = Config()
    if resumed := _value_of("--resume", arguments):
        before = read_config(Path(resumed) / "config.toml")
    elif given := _value_of("--config", arguments):
        before = read_config(Path(given))
    default = TrainOptions(config=before)

    def command(options: Annotated[TrainOptions, tyro.conf.arg(name="")] = default) -> None:
        _train(options, before)

    command.__doc__ = TrainOptions.__doc__
    return command


def _value_of(name: str, arguments: list[str]) -> str | None:
    """The value of an option that must be read before the others."""
    for first, second in zip(arguments, [*arguments[1:], ""], strict=True):
        if first == name and second:
            return second
        if first.startswith(f"{name}="):
            return first.partition("=")[2]
    return None


def _train(options: TrainOptions, before: Config) -> None:
    set_up(options.device, float64=options.config.model.float64)
    from tickgp.runs.execute import Finished, Report, Stopped, execute

    config, console = options.config, Console(stderr=options.json)
    folder = _folder(options, before)
    title = f"{config.model.name} on {config.data.dataset}"
    finished: dict[str, Any] | None = None
    with stop_on_signal() as stopping, progress(console, title, config.training.max_steps) as show:
        draw = _tensorboard(folder) if options.tensorboard else lambda report: None
        for event in execute(folder, stop=stopping, command=shlex.join(["tickgp", *sys.argv[1:]])):
            match event:
                case Report():
                    show(event)
                    draw(event)
                case Finished():
                    finished = event.metrics
                case Stopped():
                    hint = f"stopped at step {event.step}; continue with: tickgp train --resume {folder}"
                    console.print(hint, highlight=False, soft_wrap=True)
                case _:
                    console.print(event.text, highlight=False, soft_wrap=True)
    if finished is None:
        sys.exit(130 if stopping() else 0)
    if options.json:
        print(json.dumps(finished))
        return
    console.print(metrics_table(title, finished))
    console.print(f"the report is {folder / 'report.html'}", highlight=False, soft_wrap=True)


def _tensorboard(folder: Path) -> Callable[[Report], None]:
    from tickgp.runs.tensorboard import tensorboard_writer

    return tensorboard_writer(folder)


def _folder(options: TrainOptions, before: Config) -> Path:
    """The folder of the run, ready to train in."""
    from tickgp.runs.folder import prepare
    from tickgp.training.tensors import write_whole
    from tickgp.training.toml import format_config

    config = options.config
    if options.resume is None:
        name = config.data.dataset.replace("/", "-").replace(":", "-")
        folder = options.out or Path("runs") / f"{name}-{config.model.name}-{config.seed}"
        prepare(config, folder, overwrite=options.overwrite)
        return folder
    asked = config.training
    kept = replace(before.training, max_steps=asked.max_steps, max_seconds=asked.max_seconds)
    if config != replace(before, training=kept):
        raise ValueError(f"{options.resume} is continued with its own settings; give only --max-steps or --max-seconds")
    write_whole(options.resume / "config.toml", format_config(config).encode())
    return options.resume
