"""What the figures of the experiments share: the colours of classes, legends above the axes, a figure of nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Real
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from tickgp.evaluation.plots import BLUE, GREEN, GREY, INK, ORANGE, new_figure

Pictures = dict[str, Figure]
"""By the names of their files."""
Dashes = Literal["solid", "dashed", "dashdot", "dotted"]
CURVE_STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), ("#CC79A7", "D"), ("#56B4E9", "v"), (INK, "P"))
"""Colour and marker of the first, second, … curve: the markers tell them apart in grey print."""
KERNEL_DASHES: dict[str, Dashes] = {"TICK": "solid", "Conv": "dashed"}
_TRUE_HATCH = "////"
_WIDE = 15.0


def empty_figure(sentence: str) -> Figure:
    """A figure of nothing, that says why."""
    figure = new_figure(5.6, 1.2)
    figure.text(0.5, 0.5, sentence, ha="center", va="center", fontsize=10, color=INK)
    return figure


def numbers(values: Real[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """The values with NaN for what is not finite: a line then has a gap there."""
    values = np.asarray(values, float)
    return np.where(np.isfinite(values), values, np.nan)


def draw_curve(
    axes: Axes,
    x: Real[np.ndarray, " T"],
    y: Real[np.ndarray, " T"],
    style: tuple[str, str],
    dashes: Dashes = "solid",
    markers: tuple[int, int] = (0, 1),
) -> Line2D:
    """A line of that colour and marker. `markers`: which point has the first one, and at how many there is another."""
    (line,) = axes.plot(numbers(x), numbers(y), color=style[0], linestyle=dashes, linewidth=1.6)
    line.set(marker=style[1], markersize=5, markevery=markers)
    return line


def scale_to(axes: Axes, values: Iterable[Real[np.ndarray, " _"]]) -> None:
    """A logarithmic axis where the values are positive and spread over more than a factor of 15, else one from 0."""
    found = np.concatenate([numbers(some) for some in values])
    found = found[np.isfinite(found)]
    if len(found) and found.min() > 0 and found.max() > _WIDE * found.min():
        axes.set_yscale("log", subs=(2, 3, 5))
        axes.set_ylim(found.min() / 1.25, found.max() * 1.25)
        axes.yaxis.set_major_formatter(FuncFormatter(_as_number))
        few = found.max() < 300 * found.min()
        axes.yaxis.set_minor_formatter(FuncFormatter(_as_number) if few else NullFormatter())
        if few:
            axes.yaxis.grid(which="minor", color="#E8E8E8", linewidth=0.6)
    elif len(found) and found.min() >= 0:
        axes.set_ylim(0, 1.08 * found.max() or 1.0)


def _as_number(value: float, _: int | None) -> str:
    return f"{value:g}"


def legend_above(axes: Axes, handles: Sequence[Artist], columns: int) -> None:
    """A legend over the axes, where it covers no data."""
    look = {"frameon": False, "fontsize": 9, "handlelength": 2.6, "borderpad": 0.2, "columnspacing": 1.4}
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.01), ncols=columns, **look)


def key_line(label: str, colour: str = INK, marker: str = "", dashes: Dashes = "solid") -> Line2D:
    """A line of a legend."""
    return Line2D([], [], color=colour, marker=marker, markersize=5, linestyle=dashes, linewidth=1.6, label=label)


def class_colours(probabilities: Float[np.ndarray, " K"], label: int) -> list[str]:
    """Predicted orange, true blue, others grey; orange where the prediction is true."""
    colours = [GREY] * len(probabilities)
    colours[label] = BLUE
    colours[int(np.argmax(probabilities))] = ORANGE
    return colours


def hatch_true(bar: Patch) -> None:
    """The true class is hatched as well as coloured, so that print in grey shows it."""
    bar.set_hatch(_TRUE_HATCH)


def class_legend() -> list[Patch]:
    """What the colours of bars say."""
    predicted, true, others = (
        Patch(facecolor=colour, edgecolor=INK, linewidth=0.6, label=label)
        for colour, label in ((ORANGE, "predicted class"), (BLUE, "true class"), (GREY, "other classes"))
    )
    hatch_true(true)
    return [predicted, true, others]
