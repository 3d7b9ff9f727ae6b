"""Test images that models get wrong, and the probabilities they gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Integer, Real
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from tickgp.data.contents import Split
from tickgp.evaluation.plots import GREY, INK, new_figure, plain
from tickgp.evaluation.plots_images import as_picture, show_picture
from tickgp.experiments.cells import MANY
from tickgp.experiments.figures.kept import have_predictions, predictions_of
from tickgp.experiments.figures.looks import Pictures, class_colours, class_legend, empty_figure, hatch_true
from tickgp.experiments.plan import KERNELS
from tickgp.experiments.predictions import other_data
from tickgp.experiments.results import Places
from tickgp.experiments.run_cnn import load_cnn_data
from tickgp.experiments.tables import Book

CAPTIONS = {
    "misclassified-mnist": (
        "Misclassified images of MNIST",
        "Drawn at random from those that all three models get wrong. The CNN is without dropout at test, and so surer "
        "than the B-CNN of table 1. GPs: S = 100.",
    ),
    "misclassified-semeion": (
        "Misclassified images of Semeion",
        "Drawn at random from those that all three models get wrong, which were trained on MNIST. The CNN is without "
        "dropout at test. GPs: S = 100.",
    ),
}
MOST_ON_A_PAGE = 200
_ABREAST = 10
_CELL_WIDTH, _CELL_HEIGHT, _BARS_HEIGHT = 1.25, 2.3, 0.6
_INCHES = 0.68
"""Side of an image on a page; cells and bars are measured in such sides."""
_MOST_NAMED, _MOST_NUMBERED = 20, 10


@dataclass(frozen=True)
class Misclassified:
    """A model's probabilities for test images, of which the wrong ones are shown: the whole test set, or a part."""

    name: str
    images: Real[np.ndarray, "n H W C"]
    labels: Integer[np.ndarray, " n"]
    probabilities: Float[np.ndarray, "n K"]
    class_names: Sequence[str]

    def wrong(self) -> Int[np.ndarray, " wrong"]:
        """Which of the images are misclassified, in their order."""
        return np.flatnonzero(self.probabilities.argmax(axis=1) != self.labels)


def misclassified(book: Book, places: Places) -> Pictures:
    best = book.best_cnn("mnist")
    if best is None or not have_predictions(book, places, [best, *(f"mnist/{kernel}" for kernel in KERNELS)]):
        return {}
    cell = book.cells[best]
    data = load_cnn_data(cell, places.data_dir)
    splits = {"test": data.test} | other_data(cell, data.train.images.shape[1:], places.data_dir)
    pictures: Pictures = {}
    for name, split in splits.items():
        models = _models(book, best, name, split, data.class_names, places)
        title = "mnist" if name == "test" else name
        if len(models) == 3:
            pictures[f"misclassified-{title}"] = few_misclassified(models)
            pictures |= {
                f"misclassified-{title}-all-{model.name}-{number}": page
                for model in models
                for number, page in enumerate(all_misclassified(model), start=1)
            }
    return pictures


def _models(
    book: Book, best: str, on: str, split: Split, class_names: tuple[str, ...], places: Places
) -> list[Misclassified]:
    """The CNN as it is, Conv and TICK; those whose predictions are there."""
    runs = {"CNN": (best, "deterministic")}
    runs |= {f"{title}-GP": (f"mnist/{kernel}", MANY) for kernel, title in KERNELS.items()}
    found = {title: predictions_of(book, places, run, on, way, split.labels) for title, (run, way) in runs.items()}
    return [
        Misclassified(title, split.images, split.labels, p, class_names) for title, p in found.items() if p is not None
    ]


def few_misclassified(models: Sequence[Misclassified], number: int = 8, seed: int = 0) -> Figure:
    """Some misclassified images on top, and below each of them the probabilities of every model, a row for a model.

    All models must have been given the same images: which are shown is up to `choose`.
    """
    for model in models:
        if not np.array_equal(model.images, models[0].images):
            raise ValueError(f"{model.name} and {models[0].name} have different images; give all models the same ones")
    chosen, said = choose(models, number, seed)
    if not len(chosen):
        return empty_figure("None of these images is misclassified.")
    figure = new_figure(max(1.0 * len(chosen) + 0.9, 4.6), 2.1 + 0.8 * len(models))
    grid = figure.subplots(1 + len(models), len(chosen), squeeze=False, height_ratios=[1.3, *[1.0] * len(models)])
    for axes, i in zip(grid[0], chosen, strict=True):
        show_picture(axes, models[0].images[i])
        axes.set_title(f"true: {plain(models[0].class_names[models[0].labels[i]], 12)}", fontsize=8)
    for row, model in zip(grid[1:], models, strict=True):
        for axes, i in zip(row, chosen, strict=True):
            _class_bars(axes, model.probabilities[i], int(model.labels[i]))
        row[0].set_yticks([0, 1], ["0", "1"])
        row[0].set_ylabel(f"{plain(model.name)}\nprobability", fontsize=8)
    for axes in grid[-1]:
        _name_classes(axes, models[0].class_names)
    figure.suptitle(said, fontsize=9, x=0.01, ha="left")
    figure.legend(handles=class_legend(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def choose(models: Sequence[Misclassified], number: int, seed: int) -> tuple[Int[np.ndarray, " chosen"], str]:
    """Which images to show for several models, and a line that says so.

    Random ones of those that every model gets wrong: the same image, a mistake of each, so rows differ only in how
    sure of it the models were. Where these are fewer than `number`, random ones that most models get wrong fill up.
    """
    times_wrong = np.zeros(len(models[0].labels), int)
    for model in models:
        times_wrong[model.wrong()] += 1
    shuffled = np.random.default_rng(seed).permutation(len(times_wrong))
    hardest = shuffled[np.argsort(-times_wrong[shuffled], kind="stable")][:number]
    chosen = hardest[times_wrong[hardest] > 0]
    by_all = int(np.sum(times_wrong == len(models)))
    who = (plain(models[0].name), "both models")[len(models) - 1] if len(models) < 3 else f"all {len(models)} models"
    others = len(chosen) - by_all
    said = f"{min(by_all, len(chosen))} of the {by_all} images misclassified by {who}, at random"
    return chosen, said if others <= 0 else f"{said}; {others} misclassified by some of them"


def _class_bars(axes: Axes, probabilities: Float[np.ndarray, " K"], label: int) -> None:
    colours = class_colours(probabilities, label)
    bars = axes.bar(range(len(colours)), probabilities, width=0.85, color=colours, edgecolor=INK, linewidth=0.5)
    hatch_true(bars[label])
    axes.set(ylim=(0, 1.02), xlim=(-0.7, len(colours) - 0.3), xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=2, pad=1.5, labelsize=7)


def _name_classes(axes: Axes, names: Sequence[str]) -> None:
    """Names below the bars, upright where they are long; none where there are too many to be read."""
    if len(names) <= _MOST_NAMED:
        longest = max(map(len, names))
        shown = [plain(name, 12) for name in names]
        axes.set_xticks(range(len(names)), shown, rotation=90 if longest > 1 else 0, fontsize=6)
    axes.set_xlabel("class", fontsize=7, labelpad=1)


def all_misclassified(model: Misclassified) -> list[Figure]:
    """Every image that a model gets wrong, on tall pages, the surest mistakes first; bars below, as in the few.

    Above each image: its true class → the predicted one. A page has 200 images; of several, each says which it is.
    """
    wrong = model.wrong()
    if not len(wrong):
        return [empty_figure(f"{plain(model.name)} misclassifies none of the {len(model.labels)} images.")]
    confidence = model.probabilities[wrong].max(axis=1)
    surest = wrong[np.argsort(-confidence, kind="stable")]
    pages = [surest[first : first + MOST_ON_A_PAGE] for first in range(0, len(surest), MOST_ON_A_PAGE)]
    said = f"{plain(model.name)}: {len(wrong)} of {len(model.labels)} images misclassified, surest first"
    which = [f"page {n} of {len(pages)}" for n in range(1, len(pages) + 1)] if len(pages) > 1 else ["all shown"]
    return [_page(model, shown, f"{said}; {here}") for shown, here in zip(pages, which, strict=True)]


def _page(model: Misclassified, shown: Int[np.ndarray, " shown"], said: str) -> Figure:
    columns = min(_ABREAST, len(shown))
    rows = -(-len(shown) // columns)
    wide, high = columns * _CELL_WIDTH, rows * _CELL_HEIGHT
    figure = new_figure(max(_INCHES * wide + 0.2, 5.6), _INCHES * high + 0.9)
    axes = figure.subplots()
    axes.set(xlim=(-0.15, wide), ylim=(high, -0.1), aspect="equal")
    axes.set_axis_off()
    axes.set_anchor("NW")
    corners = [(_CELL_WIDTH * (n % columns), _CELL_HEIGHT * (n // columns)) for n in range(len(shown))]
    for corner, i in zip(corners, shown.tolist(), strict=True):
        _small_image(axes, corner, model, i)
    _small_bars(axes, corners, model, shown)
    key = "true→predicted; bars: probabilities from 0 to 1"
    if len(model.class_names) <= _MOST_NUMBERED:
        key += ", with the numbers of their classes"
        for corner in corners:
            _number_classes(axes, corner, len(model.class_names))
    look: dict[str, Any] = {"alignment": "left", "frameon": False, "fontsize": 9, "title_fontsize": 9}
    figure.legend(handles=class_legend(), loc="outside upper left", ncols=3, title=f"{said}\n{key}", **look)
    return figure


def _number_classes(axes: Axes, corner: tuple[float, float], K: int) -> None:
    left, top = corner
    for k in range(K):
        place = left + (k + 0.5) / K, top + 1.33 + _BARS_HEIGHT
        axes.text(*place, str(k), ha="center", va="top", fontsize=7, color=INK, in_layout=False)


def _small_image(axes: Axes, corner: tuple[float, float], model: Misclassified, i: int) -> None:
    left, top = corner
    extent = (left, left + 1, top + 1.25, top + 0.25)
    axes.imshow(as_picture(model.images[i]), cmap="gray", vmin=0, vmax=1, extent=extent, aspect="equal")
    true, predicted = (plain(model.class_names[k], 4) for k in (model.labels[i], model.probabilities[i].argmax()))
    axes.text(left + 0.5, top + 0.2, f"{true}→{predicted}", ha="center", va="baseline", fontsize=9, color=INK)


def _small_bars(
    axes: Axes, corners: list[tuple[float, float]], model: Misclassified, shown: Int[np.ndarray, " shown"]
) -> BarContainer:
    """The bars of all cells at once: one call for thousands of bars. Lines are drawn at 0 and at 1."""
    K = model.probabilities.shape[1]
    lefts, tops = np.array(corners).T
    feet = np.repeat(tops + 1.3 + _BARS_HEIGHT, K)
    places = (lefts[:, None] + (np.arange(K) + 0.5) / K).ravel()
    colours = [colour for i in shown for colour in class_colours(model.probabilities[i], int(model.labels[i]))]
    heights = -_BARS_HEIGHT * model.probabilities[shown].ravel()
    bars = axes.bar(places, heights, 0.85 / K, bottom=feet, color=colours, edgecolor=INK, linewidth=0.2)
    for n, i in enumerate(shown):
        hatch_true(bars[n * K + int(model.labels[i])])
    axes.hlines(tops + 1.3 + _BARS_HEIGHT, lefts, lefts + 1, color=INK, linewidth=0.4)
    axes.hlines(tops + 1.3, lefts, lefts + 1, color=GREY, linewidth=0.4)
    return bars
