"""Before and after the switch from marginal samples of the hidden layer to correlated ones: gain and price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Real
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tickgp.evaluation.plots import BLUE, GREEN, INK, ORANGE, new_figure, tidy
from tickgp.experiments.figures.looks import Dashes, draw_curve, empty_figure, key_line, numbers

Values = Real[np.ndarray, " _"]
SAMPLERS: dict[str, tuple[tuple[str, str], Dashes]] = {
    "marginal": ((BLUE, "o"), "solid"),
    "full": ((ORANGE, "s"), "dashed"),
    "correlated": ((GREEN, "^"), "dashdot"),
}
"""Colour and marker, and dashes, of each sampler."""
_BEFORE = (INK, "")


@dataclass(frozen=True)
class SwitchedRun:
    """A two-layer model trained with marginal samples, then further with each of some samplers.

    `after` has (steps, error, NLL) of each sampler, by its name: "marginal", "full" or "correlated"; steps count on
    from those before. Errors are fractions, NLL nats per image. `step_ms`: milliseconds that a step takes with each.
    """

    kernel: Literal["Conv", "TICK"]
    steps_before: Values
    error_before: Values
    nll_before: Values
    after: dict[str, tuple[Values, Values, Values]]
    step_ms: dict[str, float]

    def __post_init__(self) -> None:
        unknown = {*self.after, *self.step_ms} - set(SAMPLERS)
        if unknown:
            raise ValueError(f"unknown samplers {sorted(unknown)}; use some of {list(SAMPLERS)}")

    def histories(self, which: int) -> list[np.ndarray]:
        """Errors (1) or NLLs (2): before the switch and, for each sampler, after it."""
        return [(self.error_before, self.nll_before)[which - 1], *(some[which] for some in self.after.values())]


def full_covariance_figure(runs: Sequence[SwitchedRun], watched: str = "all") -> Figure:
    """A column for each run: error and NLL against steps, the switch marked, and the time of a step below.

    The differences after the switch are small, so the frame holds them and the second half of what came before; where
    the first half lies above the frame, this is said. The axes of a row are the same for all runs. `watched` says how
    many test images error and NLL are measured on.
    """
    if not runs:
        return empty_figure("No runs to show.")
    figure = new_figure(1.0 + 3.6 * len(runs), 6.4)
    grid = figure.subplots(3, len(runs), squeeze=False, height_ratios=[3, 3, 1.3])
    for column, run in zip(grid.T, runs, strict=True):
        column[0].set_title(f"{run.kernel}, two layers", fontsize=10, loc="left")
        for axes, which, factor in ((column[0], 1, 100.0), (column[1], 2, 1.0)):
            _history(axes, run, which, factor)
        _milliseconds(column[2], run)
    for row, which, factor in ((grid[0], 1, 100.0), (grid[1], 2, 1.0)):
        _frame(row, [[factor * numbers(some) for some in run.histories(which)] for run in runs])
    grid[0, 0].set_ylabel(f"error on {watched}\ntest images (%)")
    grid[1, 0].set_ylabel(f"NLL on {watched}\ntest images (nats per image)")
    _legend(figure, runs)
    return figure


def _history(axes: Axes, run: SwitchedRun, which: int, factor: float) -> None:
    draw_curve(axes, run.steps_before, factor * run.histories(which)[0], _BEFORE, "solid")
    for turn, (name, after) in enumerate(run.after.items()):
        style, dashes = SAMPLERS[name]
        draw_curve(axes, after[0], factor * after[which], style, dashes, first=turn / 3)
    if len(run.steps_before):
        axes.axvline(float(run.steps_before[-1]), color=INK, linestyle=":", linewidth=1.2)
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    tidy(axes)


def _frame(row: np.ndarray, runs: list[list[np.ndarray]]) -> None:
    """One range for a row of axes: of the later half before the switch and all after it."""
    late = np.concatenate([part for before, *after in runs for part in (before[len(before) // 2 :], *after)])
    late = late[np.isfinite(late)]
    if not len(late):
        return
    margin = 0.08 * float(np.ptp(late)) or 0.1 * float(late.max()) or 1.0
    top = float(late.max()) + margin
    for axes, (before, *_) in zip(row, runs, strict=True):
        axes.set_ylim(float(late.min()) - margin, top)
        above = int(np.sum(before > top))
        if above:
            said = f"{above} early value{'s' if above > 1 else ''} above, up to {np.nanmax(before):.3g}"
            axes.set_title(said, fontsize=8, color=INK, loc="right")


def _milliseconds(axes: Axes, run: SwitchedRun) -> None:
    times = {name: run.step_ms[name] for name in SAMPLERS if np.isfinite(run.step_ms.get(name, np.nan))}
    colours = [SAMPLERS[name][0][0] for name in times]
    bars = axes.barh(list(times), list(times.values()), color=colours, edgecolor=INK, linewidth=0.6)
    axes.bar_label(
        bars, labels=[f"{time:,.{0 if time >= 10 else 1}f} ms" for time in times.values()], padding=3, fontsize=8
    )
    axes.set(xlabel="milliseconds per step", xlim=(0, 1.25 * max(times.values(), default=1.0)))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, runs: Sequence[SwitchedRun]) -> None:
    keys = [key_line("before: marginal samples", *_BEFORE)]
    for name, (style, dashes) in SAMPLERS.items():
        if any(name in run.after for run in runs):
            keys.append(key_line(f"after: {name}", *style, dashes=dashes))
    keys.append(key_line("switch", dashes="dotted"))
    columns = 3 if len(runs) > 1 else 2
    figure.legend(handles=keys, loc="outside upper left", ncols=columns, frameon=False, fontsize=9, handlelength=3)
