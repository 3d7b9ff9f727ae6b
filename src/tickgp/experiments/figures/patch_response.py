"""Samples of the patch response g over two images: how much of it a model leaves open, and where."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int, Real
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from tickgp.evaluation.plots import DIVERGING, GREY, INK, new_figure
from tickgp.evaluation.plots_images import show_picture
from tickgp.experiments.cells import MANY, two_against_seven
from tickgp.experiments.figures.invariance import invariance_figure, matching_patches
from tickgp.experiments.figures.kept import have_predictions, predictions_of
from tickgp.experiments.figures.looks import Pictures
from tickgp.experiments.patch_response import patch_response_deviations
from tickgp.experiments.plan import KERNELS
from tickgp.experiments.results import Places
from tickgp.experiments.tables import Book
from tickgp.runs.folder import load_data
from tickgp.runs.model_file import load_model

CAPTIONS = {
    "invariance": ("Why invariance is unrealistic", "A similar stroke in a 2 and in a 7, at different heights."),
    "patch-response": (
        "Samples of the patch response, 2 against 7",
        "Five samples each, as deviations from the posterior mean; outlined where they are beyond a third of the "
        "range. The response shares its scale with the weights, so shades can be compared within a model, not between "
        "the two.",
    ),
}


def patch_response(book: Book, places: Places) -> Pictures:
    names = {kernel: two_against_seven(kernel, book.scale).name for kernel in KERNELS}
    if not have_predictions(book, places, names.values()):
        return {}
    models = {kernel: load_model(places.folder(book.cells[name])) for kernel, name in names.items()}
    test = load_data(models["tick"].config, places.data_dir).test
    p = {kernel: predictions_of(book, places, name, "test", MANY, test.labels) for kernel, name in names.items()}
    if p["conv"] is None or p["tick"] is None:
        return {}
    chosen, said = won_by_tick(p["conv"], p["tick"], test.labels)
    samples = {
        f"{title}-GP": patch_response_deviations(models[kernel].model, test.images[chosen], key=jax.random.key(0))
        for kernel, title in KERNELS.items()
    }
    notes = {"Conv-GP": "the same response everywhere", "TICK-GP": _learned(book.run(names["tick"]))}
    spread = "standard deviation over all samples and places"
    notes = {name: f"{spread} {samples[name].std():.1f}\n{note}" for name, note in notes.items()}
    two, seven = (test.images[test.labels == label][0, ..., 0] / 255.0 for label in (0, 1))
    boxes = tuple((*corner, 5) for corner in matching_patches(two, seven, 5))
    return {
        "patch-response": patch_response_figure(test.images[chosen, ..., 0] / 255.0, samples, notes, said),
        "invariance": invariance_figure(two, seven, boxes),  # type: ignore[arg-type]
    }


def won_by_tick(
    conv: Float[np.ndarray, "N K"], tick: Float[np.ndarray, "N K"], labels: Int[np.ndarray, " N"]
) -> tuple[Int[np.ndarray, " 2"], str]:
    """Two images that Conv gets wrong and TICK right, those where TICK gains most, and a line that says so.

    If fewer were won, others where it gains most fill up.
    """
    before, after = (p[np.arange(len(labels)), labels] for p in (conv, tick))
    won = (before < 0.5) & (after > 0.5)
    chosen = np.lexsort((before - after, ~won))[:2]
    if won.sum() >= 2:
        return chosen, f"2 of the {won.sum()} images that Conv gets wrong and TICK right, those where TICK gains most"
    number = "No image is" if not won.any() else "Only the first image is"
    return chosen, f"{number} one that Conv gets wrong and TICK right; the others are those where TICK gains most"


def _learned(result: dict[str, Any] | None) -> str:
    learned = result and result["learned"]
    if not learned:
        return ""
    lengthscale, crossings = learned["lengthscale"], learned["zero_crossings"]
    return f"location lengthscale {lengthscale:.1f} pixels, {crossings:.1f} zero crossings between outer patches"


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
