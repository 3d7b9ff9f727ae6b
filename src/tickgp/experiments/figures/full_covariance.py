"""A trained model, trained further with each way to draw its hidden layer: gain and price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Real
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from tickgp.evaluation.plots import BLUE, GREEN, GREY, INK, ORANGE, new_figure, tidy
from tickgp.evaluation.promise import share_interval
from tickgp.experiments.figures.looks import Dashes, Pictures, draw_curve, key_line
from tickgp.experiments.plan import KERNELS, SAMPLERS
from tickgp.experiments.results import column_of
from tickgp.experiments.side_tables import step_ms
from tickgp.experiments.tables import Book

CAPTIONS = {
    "full-covariance": (
        "Further training of two layers on MNIST",
        "With each way to draw the hidden layer, from the same trained model.",
    ),
}
Values = Real[np.ndarray, " _"]
_STYLES: dict[str, tuple[tuple[str, str], Dashes]] = {
    "marginal": ((BLUE, "o"), "solid"),
    "full": ((ORANGE, "s"), "dashed"),
    "correlated": ((GREEN, "^"), "dashdot"),
}
"""Colour and marker, and dashes, of each sampler."""
_BAND: dict[str, Any] = {"facecolor": GREY, "alpha": 0.4, "linewidth": 0, "zorder": 0}


@dataclass(frozen=True)
class SwitchedRun:
    """A two-layer model trained with marginal samples, then further with each of some samplers.

    `before` is (error, NLL) of the model they all start from; `after` has (further steps, error, NLL) of each sampler,
    by its name: "marginal", "full" or "correlated". Errors are fractions, NLL nats per image, both of `num_images` test
    images. `step_ms`: milliseconds that a step takes with each.
    """

    kernel: Literal["Conv", "TICK"]
    before: tuple[float, float]
    after: dict[str, tuple[Values, Values, Values]]
    step_ms: dict[str, float]
    num_images: int


def full_covariance(book: Book) -> Pictures:
    runs = []
    for kernel, title in KERNELS.items():
        before = book.run(f"mnist/deep-{kernel}-2")
        after = {how: book.run(f"mnist/deep-{kernel}-2-{how}") for how in SAMPLERS}
        found = {how: result for how, result in after.items() if result is not None}
        if before is None or not found:
            continue
        columns = lambda result: (column_of(result, "step"), column_of(result, "top1_error"), column_of(result, "nll"))
        runs.append(
            SwitchedRun(
                title,
                before=(before["curve"][-1]["top1_error"], before["curve"][-1]["nll"]),
                after={how: columns(result) for how, result in found.items()},
                step_ms={how: step_ms(result) for how, result in found.items()},
                num_images=before["settings"]["training"]["watched_images"],
            )
        )
    return {"full-covariance": full_covariance_figure(runs)} if runs else {}


def full_covariance_figure(runs: Sequence[SwitchedRun]) -> Figure:
    """A column for each run: error and NLL against further steps, and the time of a step below.

    A level line shows the trained model's, and a band the 95 % interval of its error. Each panel has a scale of its
    own.
    """
    figure = new_figure(1.0 + 3.6 * len(runs), 6.4)
    grid = figure.subplots(3, len(runs), squeeze=False, height_ratios=[3, 3, 1.3])
    watched = " or ".join(f"{number:,}" for number in sorted({run.num_images for run in runs}))
    for column, run in zip(grid.T, runs, strict=True):
        column[0].set_title(f"{run.kernel}, two layers", fontsize=10, loc="left")
        if np.isfinite(run.before[0]):
            low, high = share_interval(round(run.num_images * run.before[0]), run.num_images)
            column[0].axhspan(100 * low, 100 * high, **_BAND)
        _history(column[0], run, 1, 100.0)
        _history(column[1], run, 2, 1.0)
        column[1].set_xlabel("further training steps")
        _milliseconds(column[2], run)
    grid[0, 0].set_ylabel(f"error (%) on\n{watched} test images")
    grid[1, 0].set_ylabel(f"NLL (nats per image)\non {watched} test images")
    _legend(figure, runs, any(axes.patches for axes in grid[0]))
    return figure


def _history(axes: Axes, run: SwitchedRun, which: int, factor: float) -> None:
    for turn, (name, after) in enumerate(run.after.items()):
        style, dashes = _STYLES[name]
        # In turn, so that curves which lie close do not hide each other's markers.
        draw_curve(axes, after[0], factor * after[which], style, dashes, markers=(turn, len(_STYLES)))
    axes.axhline(factor * run.before[which - 1], color=INK, linestyle=":", linewidth=1.2)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    tidy(axes)


def _milliseconds(axes: Axes, run: SwitchedRun) -> None:
    times = {name: run.step_ms[name] for name in _STYLES if np.isfinite(run.step_ms.get(name, np.nan))}
    colours = [_STYLES[name][0][0] for name in times]
    bars = axes.barh(list(times), list(times.values()), color=colours, edgecolor=INK, linewidth=0.6)
    axes.bar_label(
        bars, labels=[f"{time:,.{0 if time >= 10 else 1}f} ms" for time in times.values()], padding=3, fontsize=8
    )
    axes.set(xlabel="milliseconds per step", xlim=(0, 1.25 * max(times.values(), default=1.0)))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, runs: Sequence[SwitchedRun], banded: bool) -> None:
    keys: list[Artist] = [key_line("before, trained with marginal samples", dashes="dotted")]
    if banded:
        keys.append(Patch(label="95 % interval of the error before", **_BAND))
    for name, (style, dashes) in _STYLES.items():
        if any(name in run.after for run in runs):
            keys.append(key_line(f"then {name}", *style, dashes=dashes))
    columns = min(3, 1 + len(runs))
    figure.legend(handles=keys, loc="outside upper left", ncols=columns, frameon=False, fontsize=9, handlelength=3)
