"""Why translation invariance is unrealistic: a stroke of a 2 that is also in a 7, elsewhere."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Real
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tickgp.evaluation.plots import BLUE, INK, ORANGE, new_figure
from tickgp.evaluation.plots_images import show_picture
from tickgp.experiments.figures.looks import Dashes

Box = tuple[int, int, int]
"""A square window of an image: row and column of its upper left corner, and its side."""


def invariance_figure(two: Real[np.ndarray, "H W"], seven: Real[np.ndarray, "H W"], boxes: tuple[Box, Box]) -> Figure:
    """A 2 and a 7 with a window marked in each, and between them, enlarged, the patches there.

    To a translation-invariant g both windows are the same patch, and speak for the same class; only with the place
    do they tell a 2, which has the stroke at its foot, from a 7, which has it at its head.
    """
    figure = new_figure(7.2, 3.2)
    places = figure.subplot_mosaic([["2", "of 2", "7"], ["2", "of 7", "7"]], width_ratios=[2, 1, 2])
    _marked(places["2"], two, boxes[0], ORANGE, "solid")
    _marked(places["7"], seven, boxes[1], BLUE, "dashed")
    _enlarged(places["of 2"], two, boxes[0], ORANGE)
    _enlarged(places["of 7"], seven, boxes[1], BLUE)
    for name, title in (("2", "image of a 2"), ("7", "image of a 7"), ("of 2", "the patches")):
        places[name].set_title(title, fontsize=11)
    places["of 2"].set_ylabel("of the 2", fontsize=9)
    places["of 7"].set_ylabel("of the 7", fontsize=9)
    return figure


def _marked(axes: Axes, image: np.ndarray, box: Box, colour: str, dashes: Dashes) -> None:
    row, column, size = box
    show_picture(axes, image[..., None])
    # White below the colour: seen on ink, on paper, and without colour.
    for width, edge in ((4.5, "white"), (2.5, colour)):
        frame = Rectangle((column - 0.5, row - 0.5), size, size, fill=False, edgecolor=edge, linewidth=width)
        axes.add_patch(frame).set_linestyle(dashes if edge == colour else "solid")
    axes.set_xlabel(f"patch at row {row}, column {column}", fontsize=9, color=INK)


def _enlarged(axes: Axes, image: np.ndarray, box: Box, colour: str) -> None:
    row, column, size = box
    show_picture(axes, image[row : row + size, column : column + size, None])
    axes.spines[:].set(color=colour, linewidth=2.5)


def matching_patches(
    two: Real[np.ndarray, "H W"], seven: Real[np.ndarray, "H W"], size: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Upper left corners (row, column) of two windows that look alike but stand far apart, the first in the 2.

    Of all pairs of windows that are inked and far apart, the pair with the smallest sum of squared differences
    between their pixels. Inked: with at least half as much ink as the most inked window of its image. Far apart: the
    window of the 2 is lower than that of the 7, by a third of the image's height or more.
    """
    patches, places, inked = zip(*(_windows(image, size) for image in (two, seven)), strict=True)
    squares = [np.sum(some**2, axis=1) for some in patches]
    difference = squares[0][:, None] - 2 * patches[0] @ patches[1].T + squares[1][None, :]
    lower = places[0][:, None, 0] - places[1][None, :, 0]
    allowed = inked[0][:, None] & inked[1][None, :] & (lower >= two.shape[0] / 3)
    if not allowed.any():
        raise ValueError(
            f"no inked window of {size}x{size} pixels of the first image is {two.shape[0] / 3:.1f} rows below one of "
            "the second; use a smaller size or other images"
        )
    first, second = np.unravel_index(np.argmin(np.where(allowed, difference, np.inf)), difference.shape)
    (a, b), (c, d) = places[0][first].tolist(), places[1][second].tolist()
    return (a, b), (c, d)


def _windows(
    image: np.ndarray, size: int
) -> tuple[Float[np.ndarray, "P E"], Real[np.ndarray, "P 2"], Bool[np.ndarray, " P"]]:
    """All windows of an image, where they stand, and which of them are inked."""
    if size > min(image.shape):
        raise ValueError(f"patch {size}x{size} does not fit in image {image.shape[0]}x{image.shape[1]}")
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(image, float), (size, size))
    places = np.indices(windows.shape[:2]).reshape(2, -1).T
    patches = windows.reshape(len(places), -1)
    ink = patches.sum(axis=1)
    return patches, places, (ink > 0) & (ink >= ink.max() / 2)
