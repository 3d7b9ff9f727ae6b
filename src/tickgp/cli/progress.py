"""Training as it is seen: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tickgp.cli.tables import say
from tickgp.runs.events import Report, Stage, Step


@contextmanager
def progress(console: Console, title: str, steps: int) -> Iterator[Callable[[Report | Step | Stage], None]]:
    """A progress bar on a terminal; lines where there is none: one for each tenth of the way, and one before that as
    soon as the pace of a slow run is known.
    """
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

        scores = ""

        def show(event: Report | Step | Stage) -> None:
            nonlocal scores
            if isinstance(event, Stage):
                bar.update(task, state=event.text)
                return
            scores = _scores(event) if isinstance(event, Report) else scores
            bar.update(task, completed=event.step, state=f"{pace(event)}  {scores}")

        yield show


def _lines(console: Console, steps: int) -> Callable[[Report | Step | Stage], None]:
    tenth, pace, is_first = 0, _Pace(steps), True

    def show(event: Report | Step | Stage) -> None:
        nonlocal tenth, is_first
        if isinstance(event, Stage):
            say(console, event.text)
            return
        speed = pace(event)
        if isinstance(event, Step):
            if is_first and pace.is_known:
                say(console, f"step {event.step} of {steps}  {speed}")
                is_first = False
        elif 10 * event.step // steps > tenth:
            tenth = 10 * event.step // steps
            say(console, f"step {event.step} of {steps}  {_scores(event)}  {speed}")

    return show


def _scores(report: Report) -> str:
    return f"ELBO {report.elbo:.1f}  NLL {report.nll:.3f}"


class _Pace:
    """Steps per second since what was said before, and the time left at that pace; before the first it has compiled."""

    is_known = False

    def __init__(self, steps: int):
        self.steps = steps
        self.last: Report | Step | None = None

    def __call__(self, report: Report | Step) -> str:
        last, self.last = self.last, report
        if last is None or report.seconds <= last.seconds:
            return f"{report.seconds:.0f} s"
        self.is_known = True
        rate = (report.step - last.step) / (report.seconds - last.seconds)
        return f"{rate:.3g} steps/s  {_duration((self.steps - report.step) / rate)} left"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
