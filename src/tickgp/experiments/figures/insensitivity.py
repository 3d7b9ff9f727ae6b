"""ELBO and test NLL of TICK-GPs against the lengthscale of their location kernel: is the learned one a good one?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from tickgp.evaluation.plots import BLUE, GREEN, INK, ORANGE, new_figure, tidy
from tickgp.experiments.cells import MANY
from tickgp.experiments.figures.looks import Pictures, key_line
from tickgp.experiments.location_tables import is_learned, swept_runs
from tickgp.experiments.plan import DATASETS, SWEPT
from tickgp.experiments.tables import Book

CAPTIONS = {
    "insensitivity": (
        "Fixed and learned translation insensitivity",
        "ELBO and NLL of small TICK-GPs against the lengthscale of their location kernel: a mark for each seed.",
    ),
}
_LEARNED: dict[str, Any] = {"linestyle": "", "color": ORANGE, "markeredgecolor": INK, "markeredgewidth": 0.5}
_MARKERS = "Ds^v"
_ROWS = {"negative_elbo": "− ELBO\n(nats per training image)", "nll": "NLL of test images\n(nats per image)"}


@dataclass(frozen=True)
class Fitted:
    """A trained GP: its location lengthscale in pixels, and both scores in nats per image."""

    lengthscale: float
    negative_elbo: float
    nll: float


@dataclass(frozen=True)
class Sweep:
    """TICK-GPs with fixed lengthscales and with learned ones, and Conv-GPs, of which the lengthscale is infinite.

    Learned ones by what they are called, up to four kinds.
    """

    title: str
    fixed: Sequence[Fitted]
    learned: Mapping[str, Sequence[Fitted]]
    conv: Sequence[Fitted]


def insensitivity(book: Book) -> Pictures:
    found = {dataset: swept_runs(book, dataset) for dataset in SWEPT}
    sweeps = [_sweep(DATASETS[dataset], runs) for dataset, runs in found.items() if runs]
    return {"insensitivity": insensitivity_figure(sweeps)} if sweeps else {}


def _sweep(dataset: str, runs: dict[str, list[dict[str, Any]]]) -> Sweep:
    fixed, learned, conv = list[Fitted](), dict[str, list[Fitted]](), list[Fitted]()
    for title, results in runs.items():
        if results[0]["learned"] is None:
            conv += map(_fitted, results)
        elif is_learned(results[0]):
            learned[title] = [*map(_fitted, results)]
        else:
            fixed += map(_fitted, results)
    return Sweep(dataset, fixed, learned, conv)


def _fitted(result: dict[str, Any]) -> Fitted:
    lengthscale = np.inf if result["learned"] is None else result["learned"]["lengthscale"]
    nll = result["metrics"]["test"][MANY]["test"]["nll"]
    return Fitted(lengthscale, -result["elbo"] / result["train_images"], nll)


def insensitivity_figure(sweeps: Sequence[Sweep]) -> Figure:
    """A column for each dataset, ELBO above NLL: a line through the means over seeds, and a mark for each run."""
    figure = new_figure(1.0 + 3.2 * len(sweeps), 5.2)
    grid = figure.subplots(2, len(sweeps), sharex="col", squeeze=False)
    for column, sweep in zip(grid.T, sweeps, strict=True):
        column[0].set_title(sweep.title, fontsize=10, loc="left")
        for axes, score in zip(column, _ROWS, strict=True):
            _draw(axes, sweep, score)
        column[1].set_xlabel("location lengthscale (pixels)")
    for axes, words in zip(grid[:, 0], _ROWS.values(), strict=True):
        axes.set_ylabel(words)
    keys = [
        key_line("TICK, fixed lengthscale", BLUE, "o"),
        *(
            Line2D([], [], label=title, marker=marker, **_LEARNED)
            for title, marker in zip(sweeps[0].learned, _MARKERS, strict=False)
        ),
        key_line("Conv", GREEN, dashes="dashed"),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=2, frameon=False, fontsize=9, handlelength=3)
    return figure


def _draw(axes: Axes, sweep: Sweep, score: str) -> None:
    read = lambda runs: np.array([(run.lengthscale, getattr(run, score)) for run in runs]).reshape(-1, 2).T
    x, y = read(sweep.fixed)
    places = np.unique(x)
    axes.plot(places, [np.mean(y[x == place]) for place in places], color=BLUE, linewidth=1.6)
    axes.plot(x, y, "o", color=BLUE, markersize=3.5, alpha=0.6)
    for runs, marker in zip(sweep.learned.values(), _MARKERS, strict=False):
        axes.plot(*read(runs), marker=marker, zorder=5, **_LEARNED)
    for value in read(sweep.conv)[1]:
        axes.axhline(value, color=GREEN, linestyle="--", linewidth=1.0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(places.tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    tidy(axes)
