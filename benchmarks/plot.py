"""`python -m benchmarks plot`: the growth of time and memory as a picture that is readable in grey."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from benchmarks.growth import FITTED, memory, power_law

_LABELS = {
    "M": "inducing patches M",
    "B": "batch size B",
    "side": "image side (pixels)",
    "depth": "layers",
    "channels": "channels of the hidden layer",
}


def growth_figure(machine: str, points: list[dict[str, Any]]) -> Figure:
    """A column for each quantity: milliseconds per step above, peak memory below. All axes are logarithmic."""
    good = [point for point in points if "median_ms" in point]
    quantities = list(dict.fromkeys(point["quantity"] for point in good))
    figure = Figure(figsize=(3.0 * len(quantities), 5.2), layout="constrained")
    panels = figure.subplots(2, len(quantities), sharex="col", sharey="row", squeeze=False)
    for column, quantity in enumerate(quantities):
        chosen = [point for point in good if point["quantity"] == quantity]
        x = [point["value"] for point in chosen]
        _draw(panels[0, column], x, [point["median_ms"] for point in chosen])
        _draw(panels[1, column], x, [memory(point) / 1e6 for point in chosen])
        panels[1, column].set_xlabel(_LABELS[quantity])
    panels[0, 0].set_ylabel("milliseconds per step")
    panels[1, 0].set_ylabel("peak memory (MB)")
    figure.suptitle(machine)
    return figure


def _draw(axes: Axes, x: list[float], y: list[float]) -> None:
    """Measured points, and the fitted power law through the last of them with its exponent."""
    axes.loglog(x, y, "o-", color="black", markersize=4, linewidth=1.2)
    if len(x) > 1:
        a, c = power_law(x[-FITTED:], y[-FITTED:])
        ends = np.array([x[-FITTED:][0], x[-1]])
        axes.loglog(ends, c * ends**a, "--", color="0.55", linewidth=3, zorder=0)
        axes.set_title(f"exponent {a:.2f}", fontsize="medium")
    axes.set_xticks(x)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, which="major", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
