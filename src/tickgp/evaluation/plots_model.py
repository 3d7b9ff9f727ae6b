"""Figures of what a model has learned: its inducing patches, how far a patch's meaning reaches, which patches count."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tickgp.evaluation.plots import BLUE, DIVERGING, GREY, INK, ORANGE, new_figure, tidy
from tickgp.evaluation.plots_images import as_picture
from tickgp.evaluation.reach import agreement, half_way
from tickgp.gp.inducing import InducingPatches
from tickgp.gp.kernels import AbstractKernel
from tickgp.gp.patches import PatchGrid

_MOST_PATCHES = 100
_GAP = 1


def inducing_patches(inducing: InducingPatches, grid: PatchGrid) -> Figure:
    """Inducing patches side by side on one scale of grey or colour; a hundred, evenly chosen, when there are more."""
    Z = np.asarray(inducing.Z.value, float)
    shown = np.unique(np.linspace(0, len(Z) - 1, min(len(Z), _MOST_PATCHES)).round().astype(int))
    pictures = as_picture(_scaled(Z[shown]).reshape(len(shown), *grid.patch_shape, grid.image_shape[2]))
    columns = int(np.ceil(np.sqrt(len(shown))))
    rows, (h, w) = -(-len(shown) // columns), grid.patch_shape
    canvas = np.full((rows * (h + _GAP) - _GAP, columns * (w + _GAP) - _GAP, *pictures.shape[3:]), np.nan)
    for i, picture in enumerate(pictures):
        top, left = i // columns * (h + _GAP), i % columns * (w + _GAP)
        canvas[top : top + h, left : left + w] = picture
    figure = new_figure(3.6, 3.8)
    axes = figure.subplots()
    axes.imshow(np.nan_to_num(canvas, nan=1.0) if canvas.ndim == 3 else canvas, cmap="gray", interpolation="nearest")
    axes.axis("off")
    axes.set_title(f"{len(shown)} of {len(Z)} inducing patches" if len(shown) < len(Z) else "inducing patches")
    return figure


def _scaled(values: np.ndarray) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.full_like(values, 0.5)


def inducing_places(places: Float[np.ndarray, "M 2"], grid: PatchGrid) -> Figure:
    """The middles of patches whose upper-left corners are at `places`, in a frame for the image and one of a patch."""
    (H, W, _), (h, w) = grid.image_shape, grid.patch_shape
    figure = new_figure(3.6, 3.8)
    axes = figure.subplots()
    axes.add_patch(Rectangle((0, 0), W, H, fill=False, edgecolor=INK, linewidth=1.2))
    axes.add_patch(Rectangle((0, 0), w, h, facecolor=GREY, edgecolor=INK, linewidth=0.8, alpha=0.5))
    size = float(np.clip(3000 / len(places), 6, 30))
    axes.scatter(places[:, 1] + w / 2, places[:, 0] + h / 2, s=size, color=BLUE, alpha=0.6, linewidths=0)
    axes.set(xlabel="column (pixels)", ylabel="row (pixels)", aspect="equal", title="where they sit")
    axes.update_datalim([(0, 0), (W, H)])
    axes.autoscale_view()
    axes.invert_yaxis()
    tidy(axes)
    return figure


def translation_insensitivity(location: AbstractKernel, grid: PatchGrid) -> Figure:
    """k_loc against the distance in pixels, as a share of its value at 0; down and across where they differ."""
    figure = new_figure(5.6, 3.4)
    axes = figure.subplots()
    distance = np.linspace(0, max(*grid.image_shape[:2], 2) - 1, 200)
    across, down = (agreement(location, distance[:, None] * np.array(way)) for way in ((0.0, 1.0), (1.0, 0.0)))
    axes.plot(distance, across, color=BLUE, linewidth=1.8, label="across")
    if np.allclose(across, down, atol=1e-3):
        _mark_half(axes, half_way(location, (0.0, 1.0)))
    else:
        axes.plot(distance, down, color=ORANGE, linestyle="--", linewidth=1.8, label="down")
        axes.legend(frameon=False, loc="upper right")
    axes.set(xlabel="distance between two equal patches (pixels)", ylabel="agreement of their responses")
    axes.set(xlim=(0, distance[-1]), ylim=(0, 1.05))
    tidy(axes)
    return figure


def _mark_half(axes: Axes, half: float | None) -> None:
    if half is not None and half < axes.dataLim.x1:
        axes.plot([half, half, 0], [0, 0.5, 0.5], color=INK, linestyle=":", linewidth=1)
        axes.annotate(f"a half at {half:.2g} pixels", (half, 0.5), (8, 6), textcoords="offset points", fontsize=9)


def patch_weights(w: Float[np.ndarray, " P"], grid: PatchGrid) -> Figure:
    """The weight of each patch, as an image of where the patches stand."""
    figure = new_figure(4.4, 3.6)
    axes = figure.subplots()
    norm = CenteredNorm(halfrange=float(np.abs(w).max()) or 1.0)
    image = axes.imshow(w.reshape(grid.rows, grid.columns), cmap=DIVERGING, norm=norm, interpolation="nearest")
    figure.colorbar(image, ax=axes, label="weight")
    axes.set(xlabel="patch column", ylabel="patch row")
    return figure
