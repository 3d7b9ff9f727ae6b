"""Samples of the patch response g over two images: how much of it a model leaves open, and where."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase
from types import MappingProxyType

import numpy as np
from jaxtyping import Real
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from tickgp.evaluation.plots import DIVERGING, GREY, INK, new_figure
from tickgp.evaluation.plots_images import show_picture


def patch_response_figure(
    images: Real[np.ndarray, "2 H W"],
    samples: dict[str, Real[np.ndarray, "2 S rows columns"]],
    notes: Mapping[str, str] = MappingProxyType({}),
    said: str = "",
) -> Figure:
    """For each model, (a), (b), … below each other: two images, and S samples of g at each place minus its mean.

    `samples` holds the deviations of each model, a value for each patch at the place of its upper left corner. All
    models share one colour range, symmetric about 0 and as wide as the largest deviation. A paler place is one that a
    model is surer of; between models shades say nothing, for weights and variance share the scale of g. Thin lines are
    at a third of the range: solid above the mean, dashed below it. `notes` stand below the names of models, and `said`,
    on which images these are, above all.
    """
    norm = _symmetric(samples)
    lines = [f"({letter}) {name}" for letter, name in zip(ascii_lowercase, samples, strict=False)]
    titles = [f"{line}\n{notes[name]}" if name in notes else line for line, name in zip(lines, samples, strict=True)]
    width = 1.05 * (1 + next(iter(samples.values())).shape[1])
    heights = [2.5 + 0.2 * title.count("\n") for title in titles]
    figure = new_figure(width + 0.9, sum(heights) + 0.3 * bool(said))
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[width, 0.9])[0]
    parts = left.subfigures(len(samples), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, title, deviations in zip(parts, titles, samples.values(), strict=True):
        _model(part, images, deviations, norm)
        part.suptitle(title, fontsize=10, x=0.01, ha="left")
    bar = right.colorbar(ScalarMappable(norm, DIVERGING), cax=right.subplots())
    bar.set_label("g(patch) − its mean", fontsize=9)
    bar.ax.tick_params(labelsize=9)
    if said:
        figure.suptitle(said, fontsize=10, x=0.01, ha="left")
    return figure


def _symmetric(samples: dict[str, np.ndarray]) -> Normalize:
    largest = max(float(np.max(np.abs(some), initial=0, where=np.isfinite(some))) for some in samples.values())
    return Normalize(-largest or -1.0, largest or 1.0)


def _model(part: SubFigure, images: np.ndarray, deviations: np.ndarray, norm: Normalize) -> None:
    grid = part.subplots(2, 1 + deviations.shape[1], squeeze=False)
    for row, image, some in zip(grid, images, deviations, strict=True):
        show_picture(row[0], image[..., None])
        for axes, sample in zip(row[1:], some, strict=True):
            _sample(axes, sample, norm)
    grid[0, 0].set_title("image", fontsize=9)
    for number, axes in enumerate(grid[0, 1:], start=1):
        axes.set_title(f"sample {number}", fontsize=9)


def _sample(axes: Axes, sample: Real[np.ndarray, "rows columns"], norm: Normalize) -> None:
    axes.imshow(sample, cmap=DIVERGING, norm=norm, interpolation="nearest")
    third = float(norm.vmax or 0) / 3
    # matplotlib warns of levels that no value reaches.
    levels = [level for level in (-third, third) if (sample < level).any() and (sample > level).any()]
    if levels:
        axes.contour(sample, levels=levels, colors=INK, linewidths=0.5, negative_linestyles="dashed")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(GREY)
