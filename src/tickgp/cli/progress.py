"""Training as it is seen: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tickgp.cli.tables import say
from tickgp.runs.events import Report, Stage


@contextmanager
def progress(console: Console, title: str, steps: int) -> Iterator[Callable[[Report | Stage], None]]:
    """A progress bar on a terminal; lines, one for each tenth of the way, where there is none."""
    if not console.is_terminal:
        yield _lines(console, steps)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    pace = _Pace(steps)
    with Progress(*columns, console=console, expand=True) as bar:
        task = bar.add_task(title, total=steps, state="reading images")

        def show(event: Report | Stage) -> None:
            if isinstance(event, Stage):
                bar.update(task, state=event.text)
            else:
                bar.update(task, completed=event.step, state=f"{pace(event)}  {_scores(event)}")

        yield show


def _lines(console: Console, steps: int) -> Callable[[Report | Stage], None]:
    tenth, pace = 0, _Pace(steps)

    def show(event: Report | Stage) -> None:
        nonlocal tenth
        if isinstance(event, Stage):
            say(console, event.text)
            return
        speed = pace(event)
        if 10 * event.step // steps > tenth:
            tenth = 10 * event.step // steps
            say(console, f"step {event.step} of {steps}  {_scores(event)}  {speed}")

    return show


def _scores(report: Report) -> str:
    return f"ELBO {report.elbo:.1f}  NLL {report.nll:.3f}"


class _Pace:
    """Steps per second since the report before, and the time left at that pace; the first report has compiled."""

    def __init__(self, steps: int):
        self.steps = steps
        self.last: Report | None = None

    def __call__(self, report: Report) -> str:
        last, self.last = self.last, report
        if last is None or report.seconds <= last.seconds:
            return f"{report.seconds:.0f} s"
        rate = (report.step - last.step) / (report.seconds - last.seconds)
        return f"{rate:.3g} steps/s  {_duration((self.steps - report.step) / rate)} left"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
