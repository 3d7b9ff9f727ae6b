"""Test error over the steps of training, for each kernel and depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Real
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tickgp.evaluation.plots import INK, new_figure, tidy
from tickgp.experiments.figures.looks import (
    CURVE_STYLES,
    KERNEL_DASHES,
    Pictures,
    draw_curve,
    key_line,
    legend_above,
    scale_to,
)
from tickgp.experiments.plan import DEPTHS, KERNELS
from tickgp.experiments.results import column_of, watched
from tickgp.experiments.tables import Book

CAPTIONS = {
    "traces": (
        "Error against steps on MNIST, one to three layers",
        "Three layers start from two that are trained, and are drawn after these. The paper draws time; ours shared a "
        "GPU with more or with fewer others, so that their times cannot be compared.",
    ),
}
_DEPTHS = {1: "one layer", 2: "two layers", 3: "three layers"}


@dataclass(frozen=True)
class Trace:
    """Test error, as a fraction, after so many steps of training a model of that kernel and depth."""

    kernel: Literal["Conv", "TICK"]
    depth: Literal[1, 2, 3]
    steps: Real[np.ndarray, " T"]
    error: Real[np.ndarray, " T"]


def traces(book: Book) -> Pictures:
    results = {kernel: {depth: book.run(f"mnist/deep-{kernel}-{depth}") for depth in DEPTHS} for kernel in KERNELS}
    drawn = [trace for kernel, title in KERNELS.items() for trace in _traces(title, results[kernel])]
    found = [result for some in results.values() for result in some.values() if result is not None]
    return {"traces": traces_figure(drawn, watched(found))} if drawn else {}


def _traces(title: Literal["Conv", "TICK"], results: dict[int, dict[str, Any] | None]) -> list[Trace]:
    """By depth. Three layers start where two end; without those it is not known at which step."""
    drawn = []
    for depth, result in results.items():
        first = results[2] if depth == 3 else None
        if result is None or (depth == 3 and first is None):
            continue
        before = 0.0 if first is None else column_of(first, "step")[-1]
        drawn.append(Trace(title, depth, before + column_of(result, "step"), column_of(result, "top1_error")))  # type: ignore[arg-type]
    return drawn


def traces_figure(traces: Sequence[Trace], watched: str = "all") -> Figure:
    """Error against steps: TICK solid, Conv dashed; one, two and three layers blue, orange and green.

    A marker for each measurement. A three-layer model starts from the trained two-layer one, so the caller adds that
    one's last step to its own; from there to its first measurement a dotted line leads. Depths that are not there are
    not in the legend. `watched` says how many test images the error is measured on.
    """
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    for trace in traces:
        dashes = KERNEL_DASHES[trace.kernel]
        draw_curve(axes, trace.steps / 1000, 100 * trace.error, CURVE_STYLES[trace.depth - 1], dashes)
    links = [np.array(link) / (1000, 0.01) for link in _links(traces)]
    axes.add_collection(LineCollection(links, colors=INK, linestyles="dotted", linewidths=1.2))
    axes.set(xlabel="steps of training (thousands)", ylabel=f"error on {watched} test images (%)")
    axes.set_xlim(left=0)
    scale_to(axes, [100 * trace.error for trace in traces])
    legend_above(axes, _keys(traces, bool(links)), columns=2)
    tidy(axes)
    return figure


def _links(traces: Sequence[Trace]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Step and error of the last measurement of two layers, and of the first of three, for each kernel with both."""
    two, three = ({trace.kernel: trace for trace in traces if trace.depth == depth} for depth in (2, 3))
    pairs = [(two[kernel], three[kernel]) for kernel in two if kernel in three]
    last, first = lambda t: (float(t.steps[-1]), float(t.error[-1])), lambda t: (float(t.steps[0]), float(t.error[0]))
    return [(last(a), first(b)) for a, b in pairs]


def _keys(traces: Sequence[Trace], linked: bool) -> list[Line2D]:
    """Depths, then kernels and what the dotted lines are: two columns of a legend."""
    keys = [key_line(_DEPTHS[depth], *CURVE_STYLES[depth - 1]) for depth in sorted({trace.depth for trace in traces})]
    shown = {trace.kernel for trace in traces}
    keys += [key_line(kernel, dashes=dashes) for kernel, dashes in KERNEL_DASHES.items() if kernel in shown]
    return [*keys, key_line("third layer added, not yet measured", dashes="dotted")] if linked else keys
