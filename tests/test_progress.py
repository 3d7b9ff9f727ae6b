"""What is shown of training where there is no terminal."""

import io

from rich.console import Console

from tickgp.cli.progress import progress
from tickgp.runs.events import Report, Stage, Step


def shown(*events: Report | Step | Stage) -> list[str]:
    text = io.StringIO()
    with progress(Console(file=text, width=200), "tick", 1000) as show:
        for event in events:
            show(event)
    return text.getvalue().splitlines()


def report(step: int, seconds: float) -> Report:
    return Report(step, -12.34, 0.5, 0.1, 0.4, 1e-5, 0, seconds)


def test_a_line_for_each_tenth_of_the_way():
    lines = shown(Stage("compiling"), *(report(step, step / 10) for step in range(50, 350, 50)))
    assert lines[:2] == ["compiling", "step 100 of 1000  ELBO -12.3  NLL 0.500  10 steps/s  1:30 left"]
    assert [line.split()[1] for line in lines[1:]] == ["100", "200", "300"]


def test_a_slow_run_says_once_how_long_it_will_take():
    steps = [Step(step, 20.0 + 4 * step) for step in (4, 8, 12, 16)]
    assert shown(*steps) == ["step 8 of 1000  0.25 steps/s  1:06:08 left"]
