"""Metrics of predicted class probabilities (N, K) against labels (N,), and of scores of unfamiliar images.

The predicted class is the most probable one, the first of equals; `confidence` is its probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from tickgp.evaluation.promise import share_interval

BINS = 15
"""Of confidence, in the calibration error and its diagram."""
_FEW_MISSES = 10
"""Below which resamples say little of their mean."""
_LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Reliability:
    """Of each bin of confidence: its images, their mean confidence and the share predicted right (NaN when empty)."""

    count: Int[np.ndarray, " bins"]
    confidence: Float[np.ndarray, " bins"]
    right: Float[np.ndarray, " bins"]


@dataclass(frozen=True)
class Outcomes:
    """What the metrics need to know of each image; a resample of the images is a choice of rows."""

    num_classes: int
    rank: Int[np.ndarray, " N"]  # classes before the label when the most probable come first
    loss: Float[np.ndarray, " N"]
    distance: Float[np.ndarray, " N"]
    confidence: Float[np.ndarray, " N"]

    @staticmethod
    def of(probabilities: ArrayLike, labels: ArrayLike) -> Outcomes:
        from tickgp.gp.images import check_labels  # with jax, which takes long to load

        p = _check_probabilities(probabilities)
        N, K = p.shape
        y, classes = check_labels(np.asarray(labels), N, K)[:, None], np.arange(K)
        own = np.take_along_axis(p, y, axis=1)
        return Outcomes(
            num_classes=K,
            rank=np.sum((p > own) | ((p == own) & (classes < y)), axis=1),
            loss=-np.log(np.maximum(own[:, 0], _LEAST)),
            distance=np.sum((p - (classes == y)) ** 2, axis=1),
            confidence=p.max(axis=1),
        )

    def choose(self, rows: Int[np.ndarray, " M"]) -> Outcomes:
        chosen = (values[rows] for values in (self.rank, self.loss, self.distance, self.confidence))
        return Outcomes(self.num_classes, *chosen)

    def as_said(self, rng: np.random.Generator) -> Outcomes:
        """These images, each right with the probability that was said: what is known of it is its rank, 0 or not."""
        wrong = rng.random(len(self.confidence)) >= self.confidence
        return replace(self, rank=wrong.astype(int))

    @property
    def wrong(self) -> Bool[np.ndarray, " N"]:
        return self.rank > 0

    def metrics(self) -> dict[str, int | float | None]:
        """Those of `evaluate`."""
        top = {f"top{k}_error": self.top_error(k) if k < self.num_classes else None for k in (1, 2, 3)}
        return {
            "n": len(self.loss),
            **top,
            "nll": self.nll(),
            "nll_misses": self.nll_misses(),
            "ece": self.calibration_error(),
            "brier": self.brier(),
            "aurc": self.aurc(),
        }

    def top_error(self, k: int = 1) -> float:
        """Share of images whose label is not among the k most probable classes."""
        return float(np.mean(self.rank >= k))

    def nll(self) -> float:
        """Mean negative log probability of the label in nats, −(1/N) Σ_n log p_n[y_n].

        Probabilities count as at least the least positive float32, so that an impossible label costs 87 nats.
        """
        return float(np.mean(self.loss))

    def nll_misses(self) -> float | None:
        """`nll` of the images whose predicted class is wrong; None when there are none."""
        return float(np.mean(self.loss[self.wrong])) if self.wrong.any() else None

    def brier(self) -> float:
        """Squared distance from certainty of the label, summed over classes: (1/N) Σ_n Σ_k (p_n[k] − [k = y_n])²."""
        return float(np.mean(self.distance))

    def calibration_error(self) -> float:
        """ECE: Σ_b (n_b / N) |share right − mean confidence| in the bins of `bin_index`."""
        bins = self.reliability()
        return float(np.nansum(bins.count * np.abs(bins.right - bins.confidence)) / len(self.loss))

    def reliability(self) -> Reliability:
        """The bins of `calibration_error`, for a diagram."""
        index, weights = bin_index(self.confidence), (None, self.confidence, ~self.wrong)
        count, confidence, right = (np.bincount(index, weights=weight, minlength=BINS) for weight in weights)
        size = np.where(count > 0, count, np.nan)
        return Reliability(count, confidence / size, right / size)

    def risk(self) -> Float[np.ndarray, " N"]:
        """risk(m) = (1/m) Σ_{n ≤ m} wrong_n over the m most confident of N images, at the coverage m/N.

        Each of several equally confident images counts with their mean `wrong`. That is the expected curve when equals
        are put in random order, and does not depend on the order they are given in.
        """
        order = np.argsort(-self.confidence, kind="stable")
        confidence, wrong = self.confidence[order], self.wrong[order].astype(float)
        first = np.flatnonzero(np.diff(confidence, prepend=np.inf))
        equals = np.diff(first, append=len(order))
        wrong = np.repeat(np.add.reduceat(wrong, first) / equals, equals)
        return np.cumsum(wrong) / np.arange(1, len(order) + 1)

    def aurc(self) -> float:
        """Area under the curve of `risk` against the coverage: (1/N) Σ_m risk(m)."""
        return float(np.mean(self.risk()))


def bin_index(confidence: Float[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """The bin b of each confidence, [b/BINS, (b + 1)/BINS); certainty is in the last."""
    return np.minimum((confidence * BINS).astype(int), BINS - 1)


def evaluate(probabilities: ArrayLike, labels: ArrayLike) -> dict[str, int | float | None]:
    """The metrics of `metrics.json`; None where undefined: `nll_misses` without misses, top-k of at most k classes."""
    return Outcomes.of(probabilities, labels).metrics()


def intervals(
    probabilities: ArrayLike, labels: ArrayLike, *, num: int = 1000, level: float = 0.95, seed: int = 0
) -> dict[str, list[float]]:
    """Intervals [low, high] of the metrics of `evaluate`.

    Those of errors are exact binomial ones; the others are percentiles over `num` resamples of the N images.
    `nll_misses` uses the resamples that have misses, and has no interval below ten misses. Metrics that are None are
    left out. So is the ECE, which grows with each resampling, since chance moves every bin away from its confidence.
    Instead `ece_if_calibrated` says where it would lie if the model were right as often as it says, image by image.
    """
    outcomes, rng = Outcomes.of(probabilities, labels), np.random.default_rng(seed)
    N = len(outcomes.loss)
    # In order of confidence from the start, so that no resample has to be sorted again.
    outcomes = outcomes.choose(np.argsort(-outcomes.confidence, kind="stable"))
    draws = [outcomes.choose(np.sort(rng.integers(N, size=N))).metrics() for _ in range(num)]
    names = [name for name in draws[0] if name not in ("n", "ece")]
    defined = {name: [v for draw in draws if (v := draw[name]) is not None] for name in names}
    defined["ece_if_calibrated"] = [outcomes.as_said(rng).calibration_error() for _ in range(num)]
    sides = [(1 - level) / 2, (1 + level) / 2]
    found = {name: np.quantile(values, sides).tolist() for name, values in defined.items() if values}
    if np.sum(outcomes.rank >= 1) < _FEW_MISSES:
        found.pop("nll_misses", None)
    wrong = {name: int(np.sum(outcomes.rank >= k)) for k in (1, 2, 3) if (name := f"top{k}_error") in found}
    return {**found, **{name: list(share_interval(count, N, level)) for name, count in wrong.items()}}


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """How well a score tells images of another kind: P(outside > inside) + ½ P(outside = inside) of a random pair.

    `inside` and `outside` are the scores of in-distribution and out-of-distribution images; a higher score means
    further out. 1: told apart, ½: guessed.
    """
    inside, outside = np.sort(_scores(inside, "inside")), _scores(outside, "outside")
    below, not_above = (np.searchsorted(inside, outside, side=side) for side in ("left", "right"))
    return float(np.mean(below + not_above) / (2 * len(inside)))


def fpr95(inside: ArrayLike, outside: ArrayLike) -> float:
    """Share of in-distribution images flagged by the strictest rule `score ≥ t` that flags 95 % of those outside.

    Out-of-distribution images are the positives, as in `auroc`, and equal scores are flagged together: t is the largest
    value with P(outside ≥ t) ≥ 0.95, the result P(inside ≥ t).
    """
    inside, outside = _scores(inside, "inside"), np.sort(_scores(outside, "outside"))
    flagged = -(-95 * len(outside) // 100)
    return float(np.mean(inside >= outside[-flagged]))


def _check_probabilities(probabilities: ArrayLike) -> Float[np.ndarray, "N K"]:
    p = np.asarray(probabilities, dtype=float)
    if p.ndim != 2 or 0 in p.shape:
        raise ValueError(f"probabilities have shape {p.shape}; give at least one row, with a number for each class")
    tolerance = 1e-3
    fine = ((p >= -tolerance) & (p <= 1 + tolerance)).all(axis=1) & (np.abs(p.sum(axis=1) - 1) <= tolerance)
    if not fine.all():
        first = int(np.argmin(fine))
        raise ValueError(
            f"{(~fine).sum()} of {len(p)} rows are not probabilities: row {first} goes from {p[first].min():.4g} to "
            f"{p[first].max():.4g} and sums to {p[first].sum():.4g}; numbers must lie between 0 and 1 and sum to 1: "
            "apply a softmax to logits, and remove images that give NaN"
        )
    return p


def _scores(scores: ArrayLike, name: str) -> Float[np.ndarray, " N"]:
    s = np.asarray(scores, dtype=float)
    if s.ndim != 1 or len(s) == 0 or not np.isfinite(s).all():
        bad = int((~np.isfinite(s)).sum())
        raise ValueError(
            f"`{name}` has shape {s.shape} and {bad} numbers that are not finite; give one finite score for each image"
        )
    return s
