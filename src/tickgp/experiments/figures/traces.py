"""Test error over the time of training, for each kernel and depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Real
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tickgp.evaluation.plots import INK, new_figure, tidy
from tickgp.experiments.figures.looks import (
    CURVE_STYLES,
    KERNEL_DASHES,
    draw_curve,
    key_line,
    legend_above,
    numbers,
    scale_to,
)

_DEPTHS = {1: "one layer", 2: "two layers", 3: "three layers"}


@dataclass(frozen=True)
class Trace:
    """Test error, as a fraction, after so many seconds of training a model of that kernel and depth."""

    kernel: Literal["Conv", "TICK"]
    depth: Literal[1, 2, 3]
    seconds: Real[np.ndarray, " T"]
    error: Real[np.ndarray, " T"]


def traces_figure(traces: Sequence[Trace], watched: str = "all") -> Figure:
    """Error against time: TICK solid, Conv dashed; one, two and three layers blue, orange and green.

    Times are drawn as given, a marker for each measurement. A three-layer model starts from the trained two-layer one,
    so the caller adds that one's last time to its own; from there to its first measurement a dotted line leads. Depths
    that are not there are not in the legend. `watched` says how many test images the error is measured on.
    """
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    unit, length = time_unit([trace.seconds for trace in traces])
    for trace in traces:
        dashes = KERNEL_DASHES[trace.kernel]
        draw_curve(axes, trace.seconds / length, 100 * trace.error, CURVE_STYLES[trace.depth - 1], dashes)
    links = [np.array(link) / (length, 0.01) for link in _links(traces)]
    axes.add_collection(LineCollection(links, colors=INK, linestyles="dotted", linewidths=1.2))
    axes.set(xlabel=f"time of training ({unit})", ylabel=f"error on {watched} test images (%)")
    axes.set_xlim(left=0)
    scale_to(axes, [100 * trace.error for trace in traces])
    legend_above(axes, _keys(traces, bool(links)), columns=2)
    tidy(axes)
    return figure


def _links(traces: Sequence[Trace]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Time and error of the last measurement of two layers, and of the first of three, for each kernel with both."""
    two, three = ({trace.kernel: trace for trace in traces if trace.depth == depth} for depth in (2, 3))
    pairs = [(two[kernel], three[kernel]) for kernel in two if kernel in three]
    return [((a.seconds[-1], a.error[-1]), (b.seconds[0], b.error[0])) for a, b in pairs]


def _keys(traces: Sequence[Trace], linked: bool) -> list[Line2D]:
    """Depths, then kernels and what the dotted lines are: two columns of a legend."""
    keys = [key_line(_DEPTHS[depth], *CURVE_STYLES[depth - 1]) for depth in sorted({trace.depth for trace in traces})]
    shown = {trace.kernel for trace in traces}
    keys += [key_line(kernel, dashes=dashes) for kernel, dashes in KERNEL_DASHES.items() if kernel in shown]
    return [*keys, key_line("third layer added, not yet measured", dashes="dotted")] if linked else keys


def time_unit(times: Sequence[Float[np.ndarray, " _"]]) -> tuple[str, float]:
    """The unit in which the longest of these times (seconds) is best read, and its seconds."""
    found = np.concatenate([numbers(some) for some in times])
    longest = float(np.max(found, initial=0, where=np.isfinite(found)))
    return ("s", 1.0) if longest < 180 else ("min", 60.0) if longest < 3 * 3600 else ("h", 3600.0)
