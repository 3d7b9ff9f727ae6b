"""NLL on the training and the test set over the epochs: does what is optimised say how good the model is?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np
from jaxtyping import Real
from matplotlib.figure import Figure

from tickgp.evaluation.plots import new_figure, tidy
from tickgp.experiments.figures.looks import (
    CURVE_STYLES,
    draw_curve,
    key_line,
    legend_above,
    scale_to,
)


@dataclass(frozen=True)
class Curve:
    """Negative log likelihood per image (nats) after each of some epochs; NaN where it was not measured."""

    epochs: Real[np.ndarray, " T"]
    train_nll: Real[np.ndarray, " T"]
    test_nll: Real[np.ndarray, " T"]


def dropout_figure(curves: dict[str, Curve], watched: str = "all") -> Figure:
    """NLL against epochs for some models: train dashed, test solid, a colour and marker for each model.

    Models take their colours in the order given. A value that is not finite is a gap in its line. `watched` says how
    many images of each set it is measured on.
    """
    figure = new_figure(5.6, 4.0)
    axes = figure.subplots()
    keys = []
    for (name, curve), style in zip(curves.items(), cycle(CURVE_STYLES), strict=False):
        draw_curve(axes, curve.epochs, curve.train_nll, style, "dashed")
        draw_curve(axes, curve.epochs, curve.test_nll, style, "solid")
        keys.append(key_line(name, *style))
    axes.set(xlabel="epoch", ylabel=f"NLL on {watched} images of each set\n(nats per image)")
    scale_to(axes, [values for curve in curves.values() for values in (curve.train_nll, curve.test_nll)])
    keys += [key_line("train", dashes="dashed"), key_line("test")]
    legend_above(axes, keys, columns=3)
    tidy(axes)
    return figure
