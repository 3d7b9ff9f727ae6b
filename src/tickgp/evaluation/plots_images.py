"""Figures of single images: what was seen, and the probabilities that it was given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from tickgp.evaluation.plots import BLUE, GREY, INK, ORANGE, plain

_LETTERS_ABREAST = 12
_NAMED_BARS = 5


def image_with_bars(
    image: np.ndarray, probabilities: Float[np.ndarray, " K"], label: int, class_names: Sequence[str]
) -> Figure:
    """An image (H, W, C) above the probabilities of its classes: predicted orange, true blue, others grey.

    A class that is both predicted and true is orange with blue hatching. A few classes with short names stand upright
    in their order; else the most probable ones, and the true one, lie beside their names.
    """
    figure = Figure(figsize=(1.5, 2.4), facecolor="white")
    show_picture(figure.add_axes((0.1, 0.46, 0.8, 0.53)), image)
    upright = len(class_names) * max(map(len, class_names)) <= _LETTERS_ABREAST
    if upright:
        _upright(figure.add_axes((0.17, 0.15, 0.8, 0.28)), probabilities, label, class_names)
    else:
        _lying(figure.add_axes((0.53, 0.13, 0.42, 0.30)), probabilities, label, class_names)
    return figure


def show_picture(axes: Axes, image: np.ndarray) -> None:
    """An image on axes without ticks."""
    axes.imshow(as_picture(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color(GREY)


def as_picture(image: np.ndarray) -> Float[np.ndarray, "H W *colour"]:
    """Numbers between 0 and 1: (H, W, 3) for colour; (H, W) for grey, or the first of any other number of channels.

    Bytes are divided by 255. Floats outside [0, 1] are scaled to their own range.
    """
    picture = image / 255.0 if image.dtype == np.uint8 else np.asarray(image, float)
    if picture.min() < 0 or picture.max() > 1:
        picture = (picture - picture.min()) / max(float(np.ptp(picture)), 1e-12)
    return picture if picture.shape[-1] == 3 else picture[..., 0]


def _upright(axes: Axes, probabilities: np.ndarray, label: int, class_names: Sequence[str]) -> None:
    order = np.arange(len(probabilities))
    bars = axes.bar(order, probabilities, width=0.8, linewidth=0.6, edgecolor=INK)
    _paint(bars, order, probabilities, label)
    axes.set(ylim=(0, 1), yticks=[0, 1])
    axes.set_xticks(order, [plain(name) for name in class_names], fontsize=7)
    axes.set_ylabel("probability", fontsize=7, labelpad=-3)
    axes.set_xlabel("class", fontsize=7, labelpad=1)
    _plain(axes)


def _lying(axes: Axes, probabilities: np.ndarray, label: int, class_names: Sequence[str]) -> None:
    order = np.argsort(-probabilities, kind="stable")[:_NAMED_BARS]
    if label not in order:
        order[-1] = label
    bars = axes.barh(np.arange(len(order)), probabilities[order], height=0.8, linewidth=0.6, edgecolor=INK)
    _paint(bars, order, probabilities, label)
    axes.set(xlim=(0, 1), xticks=[0, 1], ylim=(max(len(order), 3) - 0.5, -0.5))
    axes.set_yticks(range(len(order)), [plain(class_names[k], 12) for k in order], fontsize=7)
    axes.set_xlabel("probability", fontsize=7, labelpad=-6)
    _plain(axes)


def _paint(bars: BarContainer, order: np.ndarray, probabilities: np.ndarray, label: int) -> None:
    predicted = int(np.argmax(probabilities))
    for bar, k in zip(bars, order, strict=True):
        bar.set_facecolor(ORANGE if k == predicted else BLUE if k == label else GREY)
        if k == predicted == label:
            bar.set(hatch="/////", edgecolor=BLUE)


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=2, pad=1.5, labelsize=7)
