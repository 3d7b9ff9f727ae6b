"""`python -m benchmarks plot`: the growth of time and memory as a picture that is readable in grey."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.growth import FITTED, memory, power_law

_LABELS = {
    "M": "inducing patches M",
    "B": "batch size B",
    "side": "image side (pixels)",
    "channels": "hidden channels",
    "depth": "layers",
}
"""Names of the quantities, in the order of their columns."""
_SAME = 0.1
"""Exponents that differ by no more than this are the same."""
_MEASURED: dict[str, Any] = {"color": "black", "marker": "o", "markersize": 4, "linewidth": 1.2}
_POWER: dict[str, Any] = {"color": "0.65", "linestyle": "--", "linewidth": 4, "zorder": 0}


def growth_figure(machine: str, points: list[dict[str, Any]]) -> Figure:
    """A column for each quantity: milliseconds per step above, peak memory below. All axes are logarithmic."""
    good = [point for point in points if "median_ms" in point]
    quantities = [quantity for quantity in _LABELS if quantity in {point["quantity"] for point in good}]
    figure = Figure(figsize=(max(8.0, 1.0 + 1.8 * len(quantities)), 4.8), layout="constrained")
    panels = figure.subplots(2, len(quantities), sharex="col", sharey="row", squeeze=False)
    for column, quantity in enumerate(quantities):
        chosen = [point for point in good if point["quantity"] == quantity]
        x = [point["value"] for point in chosen]
        times, sizes = [point["median_ms"] for point in chosen], [memory(point) / 1e6 for point in chosen]
        for axes, y in zip(panels[:, column], (times, sizes), strict=True):
            _draw(axes, x, y)
            if quantity != "depth":  # three layers are two and one more, no power
                _draw_power(axes, x[-FITTED:], y[-FITTED:])
        panels[1, column].set_xlabel(_LABELS[quantity])
    panels[0, 0].set_ylabel("milliseconds per step")
    panels[1, 0].set_ylabel("peak memory (MB)")
    figure.suptitle(f"{machine}: a training step, all axes logarithmic")
    figure.legend(handles=_keys(), loc="outside lower center", ncols=2, frameon=False, handlelength=3)
    return figure


def _draw(axes: Axes, x: list[float], y: list[float]) -> None:
    axes.loglog(x, y, **_MEASURED)
    axes.set_xticks(x)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, which="major", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_power(axes: Axes, x: list[float], y: list[float]) -> None:
    """The fitted power law with its exponent, if that is also the exponent from each of these points to the next."""
    if len(x) < FITTED:
        return
    a, c = power_law(x, y)
    between = np.diff(np.log(y)) / np.diff(np.log(x))
    if np.all(np.abs(between - a) <= _SAME):
        axes.plot(x, c * np.array(x) ** a, **_POWER)
        axes.set_title(f"exponent {a:.2f}", fontsize="medium")


def _keys() -> list[Line2D]:
    law = f"power law of the last {FITTED} points, where the exponent between them is the same to ± {_SAME:g}"
    return [Line2D([], [], label="measured", **_MEASURED), Line2D([], [], label=law, **_POWER)]
