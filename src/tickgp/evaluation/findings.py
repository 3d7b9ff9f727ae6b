"""What the test images say of a model, in plain words: numbers first, no more certain than the data allow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from tickgp.evaluation.handover import Rule
from tickgp.evaluation.metrics import BINS, bin_index
from tickgp.evaluation.promise import share_interval, upper_bound


@dataclass(frozen=True)
class Finding:
    """A number to remember, what it counts, and a sentence that says what it means and how sure it is."""

    number: str
    unit: str
    text: str


def mistakes(metrics: dict[str, Any], labels: Int[np.ndarray, " N"]) -> Finding:
    """How many new images are labelled wrongly, from metrics.json and the true classes of the test images."""
    error, n, interval = metrics["test"]["top1_error"], metrics["test"]["n"], metrics["interval"].get("top1_error")
    if error == 0:
        # Resamples of no misses have no misses: an exact bound says what n right images are worth.
        most = per_hundred(float(upper_bound(0, n)))
        text = f"{no_misses(n)} Of 100 new ones up to {most} could be (95 % confidence)."
    else:
        between = ""
        if interval is not None:
            between = f" (between {per_hundred(interval[0])} and {per_hundred(interval[1])}, 95 % interval)"
        text = f"Of 100 new images about {per_hundred(error)} are labelled wrongly{between}."
    return Finding(per_hundred(error), "of 100 images wrong", text + _guessing(error, labels))


def _guessing(error: float, labels: np.ndarray) -> str:
    """A sentence, unless the error is clearly below that of always saying the most frequent class."""
    n = len(labels)
    guessed = 1 - float(np.bincount(labels).max()) / n
    if share_interval(round(error * n), n)[1] < guessed:
        return ""
    return (
        f" Guessing the most frequent class would be wrong {per_hundred(guessed)} of 100 times: that the model does "
        "better is not shown."
    )


def no_misses(n: int) -> str:
    """What to say instead of a share of 0."""
    return "The one test image was labelled right." if n == 1 else f"None of {n:,} test images was labelled wrongly."


def calibration(confidence: Float[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> Finding:
    """Whether it is right as often as it says: on average, and where it says so much."""
    said, was = float(confidence.mean()), float(right.mean())
    text = f"Its average confidence is {percent(said)}, and it is right {percent(was)} of the time."
    sentences = f"{text} {_verdict(confidence, right)}{_when_it_says(confidence, right)}"
    return Finding(percent(said), f"sure, {percent(was)} right", sentences)


def _verdict(confidence: np.ndarray, right: np.ndarray) -> str:
    """On the average, and on where it is off in another way: too sure here and too modest there may cancel."""
    overall = _Level.of(confidence, right).too_sure
    off = [level for level in _levels_off(confidence, right) if level.too_sure is not overall]
    alike = [[level for level in off if level.too_sure is sure] for sure in (True, False)]
    where = ", and ".join(str(max(levels, key=_Level.gap)) for levels in alike if levels)
    but = f"But it is {where}." if where else ""
    if overall is None:
        return but or f"On {counted(len(right), 'image')} no over- or underconfidence can be seen."
    often, name = ("less", "over") if overall else ("more", "under")
    return f"It is right {often} often than it says: it is {name}confident. {but}".rstrip()


@dataclass(frozen=True)
class _Level:
    """Images with like confidences: how sure it was of them on average, and how often it was right."""

    said: float
    hits: int
    n: int
    too_sure: bool | None
    """None when the images do not tell."""

    @staticmethod
    def of(confidence: np.ndarray, right: np.ndarray, level: float = 0.95) -> _Level:
        # Were it right as often as it says, image by image, then its hits would vary less than the binomial's.
        said, hits, n = float(confidence.mean()), int(right.sum()), len(right)
        low, high = share_interval(hits, n, level)
        return _Level(said, hits, n, None if low <= said <= high else said > high)

    def gap(self) -> float:
        """What it adds to the ECE, times the number of all images."""
        return abs(self.n * self.said - self.hits)

    def __str__(self) -> str:
        right = f"it is right {percent(self.hits / self.n)} of the time, on {self.n:,} images"
        return f"too {'sure' if self.too_sure else 'modest'} where it says about {percent(self.said)} ({right})"


def _levels_off(confidence: np.ndarray, right: np.ndarray, least: int = 20) -> list[_Level]:
    """Those bins of the ECE, of the ones with at least `least` images, in which it is not right as often as it says.

    The bins share the risk of 0.05 that one of them is found although all is well.
    """
    index = bin_index(confidence)
    filled = [index == i for i in range(BINS) if np.sum(index == i) >= least]
    levels = [_Level.of(confidence[own], right[own], 1 - 0.05 / len(filled)) for own in filled]
    return [level for level in levels if level.too_sure is not None]


def _when_it_says(confidence: np.ndarray, right: np.ndarray, level: float = 0.9, within: float = 0.05) -> str:
    """A sentence about the images with a confidence near `level`; nothing when they are too few to tell."""
    near = np.abs(confidence - level) <= within
    if near.sum() < 10:
        return ""
    count, hits = int(near.sum()), int(right[near].sum())
    low, high = (percent(share) for share in share_interval(hits, count))
    return (
        f" When it says {100 * level:g} % (give or take {100 * within:g}), it is right {percent(hits / count)} of the "
        f"time ({hits:,} of {count:,} images; between {low} and {high}, 95 % interval)."
    )


def handing_over(rule: Rule) -> Finding:
    """How much it can decide itself when few mistakes are allowed, or why that cannot be said."""
    if rule.threshold is None:
        return Finding("—", "no threshold", str(rule))
    return Finding(percent(rule.threshold.kept), "decided without help", str(rule))


def percent(share: float) -> str:
    """0.834 as '83 %'; more digits near 0 and 1, where they matter, and never 100 % for less than all."""
    hundredth = 100 * share
    if hundredth in (0, 100):
        return f"{hundredth:.0f} %"
    if hundredth > 90:
        return f"{min(round(hundredth, 1), 99.9)} %"
    return f"{hundredth:.0f} %" if hundredth >= 9.95 else f"{per_hundred(share)} %"


def counted(n: int, thing: str) -> str:
    """'1 image', '2 images'."""
    return f"{n:,} {thing}" if n == 1 else f"{n:,} {thing}s"


def per_hundred(share: float) -> str:
    """0.0111 as '1.1': how many of a hundred."""
    hundredth = 100 * share
    return f"{hundredth:.1f}" if hundredth >= 0.095 else f"{hundredth:.1g}"
