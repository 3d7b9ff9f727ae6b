"""The command line: options and printing only."""

from __future__ import annotations

import io
import multiprocessing
import os
import sys

import tyro
from rich.console import Console

import tickgp
from tickgp.cli import use
from tickgp.cli.reproduce import reproduce
from tickgp.cli.train import train_command
from tickgp.errors import UsageError

DESCRIPTION = (
    "Image classification with Gaussian processes: how sure it is, and which images a person should check.\n"
    "`tickgp --version` says which version this is; --debug shows where an error comes from."
)
SHORT = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
"""For help: of each flag the form that changes something, and no None. The others are understood as well: settings of
--config or --resume are defaults too, and one must be able to say again, or to take back, what these say."""


def main() -> None:
    """`tickgp`: exit 0, 1 when it failed, 2 when asked wrongly, 130 when stopped; a traceback only with --debug."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be of any bytes
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if arguments == ["--version"]:
        print(tickgp.__version__)
        return
    try:
        _run(arguments or ["--help"])
    except KeyboardInterrupt:
        for child in multiprocessing.active_children():  # Python would wait for them
            child.kill()
        sys.exit(130)
    except BrokenPipeError:  # whoever reads this output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"tickgp: {_in_words(error)}", style="red", markup=False
        )
        sys.exit(2 if isinstance(error, UsageError) else 1)


def _in_words(error: Exception) -> str:
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():  # NumPy's, and JAX's
        detail = str(error).partition("\n")[0]
        return (
            f"there is not enough memory{f' ({detail})' if detail else ''}; training takes less with smaller batches "
            "(--batch-size), fewer inducing patches (--num-inducing), patches further apart (--stride) or smaller "
            "images (--image-size)"
        )
    expected = isinstance(error, ValueError | ArithmeticError | OSError)
    return str(error) if expected else f"{type(error).__name__}: {error} (--debug shows where)"


def _run(arguments: list[str]) -> None:
    """The command that the first argument names, by itself: its errors then point to its own help."""
    others = (use.evaluate, use.predict, use.compare, use.info, use.report, reproduce, use.data)
    of_train = arguments if arguments[0] == "train" else []
    commands = {"train": train_command(of_train)} | {command.__name__: command for command in others}
    if arguments[0] in commands:
        config = SHORT if {"-h", "--help"} & {*arguments} else ()
        tyro.cli(commands[arguments[0]], prog=f"tickgp {arguments[0]}", args=arguments[1:], config=config)
        return
    app = tyro.extras.SubcommandApp()
    for name, command in commands.items():
        app.command(name=name)(command)
    app.cli(prog="tickgp", description=DESCRIPTION, args=arguments)
