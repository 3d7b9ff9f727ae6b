"""The command line: options and printing only."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import tickgp
from tickgp.training.config import Config

if TYPE_CHECKING:
    from tickgp.training.loop import Progress as Event


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
    device: Literal["cpu", "gpu"] | None = None
    """Where to compute; by default a GPU if there is one."""
    json: bool = False
    """Print the final metrics as one JSON object and nothing else."""
    config: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)


def main() -> None:
    """`tickgp`: exit 0, 1 when a run failed, 2 when it was asked wrongly; a traceback only with --debug."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if arguments == ["--version"]:
        print(tickgp.__version__)
        return
    try:
        app = tyro.extras.SubcommandApp()
        app.command(name="train")(_train_command(arguments))
        app.command(name="data")(data)
        description = "Image classification with Gaussian processes whose probabilities can be trusted."
        app.cli(prog="tickgp", description=description, args=arguments)
    except (ValueError, ArithmeticError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"tickgp: {error}", style="red", markup=False)
        sys.exit(1)


def _train_command(arguments: list[str]) -> Callable[..., None]:
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
    if options.device is not None:
        os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[options.device]
    import jax

    from tickgp.training.loop import Progress as Event
    from tickgp.training.run import Finished, Stopped, execute

    jax.config.update("jax_enable_x64", options.config.model.float64)
    config = options.config
    folder = _folder(options, before)
    title = f"{config.model.name} on {config.data.dataset}"
    finished: dict[str, Any] | None = None
    console = Console(stderr=options.json)
    with _stop_on_signal() as stopping, _progress(console, title, config.training.max_steps) as show:
        for event in execute(folder, stop=stopping, command=shlex.join(["tickgp", *sys.argv[1:]])):
            match event:
                case Event():
                    show(event)
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
    else:
        _print_metrics(console, title, folder, finished)


def _folder(options: TrainOptions, before: Config) -> Path:
    """The folder of the run, ready to train in."""
    from tickgp.training.run import prepare
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


def _print_metrics(console: Console, title: str, folder: Path, metrics: dict[str, Any]) -> None:
    test = metrics["test"]
    table = Table("error", "NLL", "ECE", "ELBO", title=f"{title}: {test['n']} test images")
    cells = (f"{100 * test['top1_error']:.2f} %", f"{test['nll']:.4f}", f"{test['ece']:.4f}", f"{metrics['elbo']:.1f}")
    table.add_row(*cells)
    console.print(table)
    console.print(f"saved in {folder}", highlight=False, soft_wrap=True)


def data() -> None:
    """List the datasets."""
    from tickgp.data.catalogue import CATALOGUE

    table = Table("name", "what", "train", "test", "image", "classes")
    for name, entry in CATALOGUE.items():
        size = "×".join(map(str, entry.image))
        table.add_row(name, entry.about, str(entry.train), str(entry.test), size, str(len(entry.class_names)))
    table.add_row("folder:PATH", "a folder of images, one subfolder for each class", "", "", "", "")
    table.add_row("npz:FILE", "arrays x and y in a NumPy file", "", "", "", "")
    Console().print(table)


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask training to end after its current step; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def _progress(console: Console, title: str, steps: int) -> Iterator[Callable[[Event], None]]:
    """A progress bar on a terminal; lines, one for each tenth of the way, where there is none."""
    if not console.is_terminal:
        yield _lines(console, steps)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=steps, rate="compiling")
        yield lambda event: bar.update(
            task, completed=event.step, rate=f"{event.step / event.seconds:.0f}/s  ELBO {event.elbo:.1f}"
        )


def _lines(console: Console, steps: int) -> Callable[[Event], None]:
    tenth = 0

    def show(event: Event) -> None:
        nonlocal tenth
        if 10 * event.step // steps > tenth:
            tenth = 10 * event.step // steps
            line = f"step {event.step} of {steps}  ELBO {event.elbo:.1f}  {event.seconds:.0f} s"
            console.print(line, highlight=False, soft_wrap=True)

    return show
