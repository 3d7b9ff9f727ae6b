"""Figures of what a model predicts: reliability, hand-over, training, single images, confusions.

Colours are Okabe and Ito's, told apart by the colour-blind; what must be told apart in grey print differs in lightness.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tickgp.evaluation.handover import Rule, share_and_error
from tickgp.evaluation.metrics import BINS, Outcomes
from tickgp.evaluation.promise import Threshold, share_interval

ORANGE, BLUE, GREEN, GREY, INK = "#E69F00", "#0072B2", "#009E73", "#D0D0D0", "#333333"
# Pale at 0; darker below it than above, so that grey print keeps the sign of what is far from it.
DIVERGING = LinearSegmentedColormap.from_list("diverging", ["#08306B", "#3E8EC4", "#F7F7F7", "#F5A623", "#B35900"])


def reliability_diagram(probabilities: Float[np.ndarray, "N K"], labels: Int[np.ndarray, " N"]) -> Figure:
    """Share right against confidence in bins, with 95 % intervals, above the number of images in each bin."""
    outcomes = Outcomes.of(probabilities, labels)
    bins = outcomes.reliability()
    figure = new_figure(5.6, 5.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    above.plot([0, 1], [0, 1], color=INK, linestyle="--", linewidth=1, label="says as much as is true")
    some = bins.count > 0
    hits = np.rint(bins.right[some] * bins.count[some]).astype(int).tolist()
    intervals = np.array([share_interval(h, n) for h, n in zip(hits, bins.count[some].tolist(), strict=True)])
    above.vlines(bins.confidence[some], intervals[:, 0], intervals[:, 1], color=BLUE, linewidth=1.5, alpha=0.6)
    above.plot(bins.confidence[some], bins.right[some], "o", color=BLUE, label="test images")
    _percent_axis(above.yaxis)
    above.set(ylabel="share that is right", ylim=(-0.03, 1.03), xlim=(0, 1))
    _headed(above, f"Calibration error (ECE) {100 * outcomes.calibration_error():.1f} %")
    _counts(below, bins.count)
    for axes in (above, below):
        tidy(axes)
    return figure


def _counts(axes: Axes, count: Int[np.ndarray, " bins"]) -> None:
    bars = axes.bar((np.arange(BINS) + 0.5) / BINS, count, width=0.9 / BINS, color=GREY, edgecolor=INK, linewidth=0.5)
    axes.bar_label(bars, labels=[str(n) if n else "" for n in count], fontsize=7, padding=1)
    axes.set(xlabel="confidence: the probability of the predicted class", ylabel="images", ylim=(0, 1.3 * count.max()))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    _percent_axis(axes.xaxis)


def handover_curve(
    probabilities: Float[np.ndarray, "N K"],
    labels: Int[np.ndarray, " N"],
    distance: Float[np.ndarray, " N"],
    rule: Rule,
) -> Figure:
    """Error of the images kept against the share handed over, the least confident first; the threshold is marked.

    The mark may lie beside the curve: unusual images are handed over, however sure the model is.
    """
    risk = Outcomes.of(probabilities, labels).risk()
    handed_over = 1 - np.arange(1, len(risk) + 1) / len(risk)
    figure = new_figure(5.6, 3.8)
    axes = figure.subplots()
    axes.plot(handed_over, risk, color=BLUE, linewidth=1.8, label="test images")
    axes.set(xlabel="share of images handed over to a person", ylabel="error of the images kept")
    axes.set_xlim(0, float(np.clip(1.5 * handed_over[risk > 0].max(initial=0), 0.1, 1)))
    _room(axes, max(1.15 * risk.max(), 0.01))
    if rule.threshold is not None:
        asked = rule.hand_over(probabilities.max(axis=1), distance)
        _mark(axes, rule.threshold, *share_and_error(asked, probabilities.argmax(axis=1) == labels))
    _percent_axis(axes.xaxis)
    _percent_axis(axes.yaxis)
    _headed(axes, "Error of the images kept")
    tidy(axes)
    return figure


def _mark(axes: Axes, threshold: Threshold, share: float, error: float | None) -> None:
    limit = f"allowed: {100 * threshold.max_error:g} %"
    axes.axhline(threshold.max_error, color=INK, linestyle=":", linewidth=1, label=limit)
    _room(axes, max(axes.get_ylim()[1], 1.15 * threshold.max_error))
    axes.set_xlim(0, max(axes.get_xlim()[1], min(1.5 * share, 1.0)))
    rule = f"ask below {threshold.threshold:.3g}, or if unusual"
    axes.axvline(share, color=ORANGE, linestyle="--", linewidth=1.2, label=rule)
    if error is not None:
        axes.plot([share], [error], "D", color=ORANGE, markeredgecolor=INK, clip_on=False, zorder=5)


def _room(axes: Axes, top: float) -> None:
    """From a little below 0, so that a line at 0 is seen."""
    axes.set_ylim(-0.02 * top, top)


def training_curves(history: Sequence[dict[str, Any]]) -> Figure:
    """ELBO and, where there are values of it, held-out NLL over the steps; lines that are not numbers are left out."""
    curves = {name: curve(history, name) for name in ("elbo", "nll")}
    shown = {name: found for name, found in curves.items() if len(found[0])} or {"elbo": curves["elbo"]}
    figure = new_figure(5.6, 2.5 * len(shown) + 0.3)
    words = {"elbo": "ELBO (higher is better)", "nll": "held-out NLL (lower is better)"}
    rows = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, (steps, values)) in zip(rows, shown.items(), strict=True):
        axes.plot(steps, values, color=BLUE, linewidth=1.6, marker="o" if len(steps) < 30 else None, markersize=3.5)
        axes.set_ylabel(words[name])
        _clip(axes, values if name == "elbo" else -values, sign=1 if name == "elbo" else -1)
        tidy(axes)
    rows[-1].set_xlabel("training step")
    rows[-1].xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=True))
    return figure


def curve(history: Sequence[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one number of the history, where it is a number."""
    pairs = [(line["step"], line[name]) for line in history if line.get(name) is not None and np.isfinite(line[name])]
    steps, values = np.array(pairs, float).reshape(-1, 2).T
    return steps, values


def _clip(axes: Axes, values: np.ndarray, sign: int) -> None:
    """Leave the wild first values out of the frame, so that what came later can be seen: values should rise."""
    if len(values) < 4:
        return
    late = values[len(values) // 2 :]
    spread = max(float(np.ptp(late)), 0.02 * float(np.ptp(values)))
    low, high = max(values.min(), late.min() - 8 * spread), values.max()
    margin = 0.05 * (high - low) or 1.0
    axes.set_ylim(*sorted((sign * (low - margin), sign * (high + margin))))
    outside = int((values < low).sum())
    if outside:
        first = "One value lies" if outside == 1 else f"{outside} values lie"
        where, at, anchor = ("below", 0.04, "bottom") if sign > 0 else ("above", 0.96, "top")
        start = f"{sign * values[0]:,.0f}" if abs(values[0]) >= 100 else f"{sign * values[0]:.3g}"
        text = f"{first} {where} the frame; the first is {start}".replace("-", "−")
        axes.text(0.98, at, text, transform=axes.transAxes, ha="right", va=anchor, fontsize=8, color=INK)


def confusion_matrix(
    labels: Int[np.ndarray, " N"], predicted: Int[np.ndarray, " N"], class_names: Sequence[str], most: int = 24
) -> Figure:
    """Images of each class (rows) by predicted class (columns), shaded by share of the row.

    Of more classes than `most` those with the most mistakes are shown, and the others together.
    """
    counts, names = _confusions(labels, predicted, class_names, most)
    K, longest = len(names), max(len(name) for name in names)
    side = 1.6 + 0.27 * max(K, 6) + 0.05 * longest
    figure = new_figure(side, side - 0.2)
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # Mistakes are few: the root makes their cells visible beside those of the diagonal.
    axes.imshow(np.sqrt(shares), cmap="Blues", vmin=0, vmax=1)
    for row, column in np.argwhere(counts > 0):
        dark = shares[row, column] > 0.4
        axes.text(
            column, row, str(counts[row, column]), ha="center", va="center", fontsize=7.5, color="w" if dark else "k"
        )
    axes.set_xticks(range(K), names, rotation=90 if longest > 2 else 0, fontsize=8)
    axes.set_yticks(range(K), names, fontsize=8)
    axes.set_xticks(np.arange(K + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(K + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#E4E4E4", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="predicted class", ylabel="true class")
    return figure


def _confusions(
    labels: np.ndarray, predicted: np.ndarray, class_names: Sequence[str], most: int
) -> tuple[Int[np.ndarray, "K K"], list[str]]:
    K = len(class_names)
    counts = np.zeros((K, K), int)
    np.add.at(counts, (labels, predicted), 1)
    names = [plain(name) for name in class_names]
    if most >= K:
        return counts, names
    wrong = counts.sum(axis=0) + counts.sum(axis=1) - 2 * np.diag(counts)
    shown = np.sort(np.argsort(-wrong, kind="stable")[:most])
    group = np.full(K, most)
    group[shown] = np.arange(most)
    merged = np.zeros((most + 1, most + 1), int)
    np.add.at(merged, (group[labels], group[predicted]), 1)
    return merged, [*(names[k] for k in shown), f"{K - most} others"]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def tidy(axes: Axes) -> None:
    """No frame where there is no axis, and a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E8E8E8", linewidth=0.6)
    axes.set_axisbelow(True)


def shorten(name: str, most: int = 18) -> str:
    """A name of at most so many letters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def plain(name: str, most: int = 18) -> str:
    """A short name for a figure, in which dollar signs are not read as mathematics."""
    return shorten(name, most).replace("$", r"\$")


def _headed(axes: Axes, title: str) -> None:
    """A title with the legend below it, where it covers no data."""
    axes.set_title(title, loc="left", pad=24)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False, fontsize=9, borderpad=0, columnspacing=1.2
    )


def _percent_axis(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{round(100 * share, 6):g} %"))
