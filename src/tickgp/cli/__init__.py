"""The command line: options and printing only."""

from __future__ import annotations

import sys

import tyro
from rich.console import Console

import tickgp
from tickgp.cli import use
from tickgp.cli.reproduce import reproduce
from tickgp.cli.train import train_command

DESCRIPTION = "Image classification with Gaussian processes whose probabilities can be trusted."


def main() -> None:
    """`tickgp`: exit 0, 1 when a run failed, 2 when it was asked wrongly; a traceback only with --debug."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if arguments == ["--version"]:
        print(tickgp.__version__)
        return
    try:
        app = tyro.extras.SubcommandApp()
        app.command(name="train")(train_command(arguments))
        for command in (use.evaluate, use.predict, use.compare, use.info, use.report, reproduce, use.data):
            app.command(name=command.__name__)(command)
        app.cli(prog="tickgp", description=DESCRIPTION, args=arguments or ["--help"])
    except BrokenPipeError:  # whoever reads this output has seen enough
        sys.stderr.close()
        sys.exit(1)
    except (ValueError, ArithmeticError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"tickgp: {error}", style="red", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
