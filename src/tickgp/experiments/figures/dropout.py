"""NLL on the training and the test set over the epochs: does what is optimised say how good the model is?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from jaxtyping import Real
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tickgp.evaluation.plots import new_figure, tidy
from tickgp.experiments.figures.looks import CURVE_STYLES, Pictures, draw_curve, key_line, scale_to
from tickgp.experiments.results import column_of, watched
from tickgp.experiments.tables import Book

CAPTIONS = {
    "dropout": (
        "Train and test NLL on MNIST",
        "TICK-GP, and B-CNNs with a dropout rate of p. The TICK-GP ends earlier because it takes fewer steps.",
    ),
}
_MARKERS = 10
"""On a line, about."""


@dataclass(frozen=True)
class Curve:
    """Negative log likelihood per image (nats) after each of some epochs; NaN where it was not measured."""

    epochs: Real[np.ndarray, " T"]
    train_nll: Real[np.ndarray, " T"]
    test_nll: Real[np.ndarray, " T"]


def dropout(book: Book) -> Pictures:
    names = {"TICK-GP": "mnist/tick", "B-CNN, p = 0.25": "mnist/bcnn-0.25", "B-CNN, p = 0.75": "mnist/bcnn-0.75"}
    found = {title: result for title, name in names.items() if (result := book.run(name)) is not None}
    curves = {title: _curve(result) for title, result in found.items()}
    return {"dropout": dropout_figure(curves, watched(found.values()))} if found else {}


def _curve(result: dict[str, Any]) -> Curve:
    settings = result["settings"]
    batch = settings["training"]["batch_size"] if "training" in settings else settings["batch_size"]
    epochs = column_of(result, "step") * batch / result["train_images"]
    return Curve(epochs, column_of(result, "train_nll"), column_of(result, "nll"))


def dropout_figure(curves: dict[str, Curve], watched: str = "all") -> Figure:
    """NLL against epochs: a panel of the test set and one of the training set, a colour and marker for each model.

    The panels have scales of their own: the NLL of training images may fall so far that that of test images would look
    flat beside it. A value that is not finite is a gap in its line. `watched` says how many images of each set it is
    measured on.
    """
    figure = new_figure(8.0, 3.9)
    test, train = figure.subplots(1, 2, sharex=True, width_ratios=[5, 4])
    epochs = [curve.epochs for curve in curves.values()]
    _panel(test, "test images", epochs, [curve.test_nll for curve in curves.values()])
    _panel(train, "training images, on another scale", epochs, [curve.train_nll for curve in curves.values()])
    test.set_ylabel(f"NLL on {watched} images\n(nats per image)")
    figure.supxlabel("epoch (a line ends where its training did)", fontsize=10)
    keys = [key_line(name, *style) for name, style in zip(curves, cycle(CURVE_STYLES), strict=False)]
    figure.legend(handles=keys, loc="outside upper left", ncols=3, frameon=False, fontsize=9, handlelength=3)
    return figure


def _panel(axes: Axes, title: str, epochs: list[np.ndarray], values: list[np.ndarray]) -> None:
    for x, y, style in zip(epochs, values, cycle(CURVE_STYLES), strict=False):
        draw_curve(axes, x, y, style, markers=(0, max(1, len(x) // _MARKERS)))
    scale_to(axes, values)
    axes.set_title(title, fontsize=10, loc="left")
    tidy(axes)
