"""A promise of few errors: the confidence from which on a model may decide, chosen on images it was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from tickgp.errors import UsageError

LARGEST_SUGGESTION = 0.5
"""Error beyond which a model that decides by itself is of no use."""


@dataclass(frozen=True)
class Threshold:
    """Keep images of at least `threshold` in confidence and at most `max_distance` from training, and no others."""

    threshold: float
    max_error: float
    """What the true error of the kept images stays below, ..."""
    level: float
    """... with this confidence."""
    kept: float
    """Share of the held-out images that is kept."""
    held_out: int
    """Number of the held-out images."""
    errors: int
    """Wrong ones among those that are kept."""
    bound: float
    """Upper confidence bound of the error of the images that it keeps; at most `max_error`."""
    max_distance: float = math.inf
    """The largest distance from the training images at which an image still counts as like the held-out ones."""


def choose_threshold(
    confidence: ArrayLike, right: ArrayLike, *, max_error: float, level: float = 0.95, unusual: ArrayLike | None = None
) -> Threshold:
    """The lowest threshold t at which error(t) = P(wrong | confidence ≥ t) < `max_error`, with confidence `level`.

    `confidence` (N,) and `right` (N,) are of held-out images: drawn as those to come, and used for no other choice.
    Those that are `unusual` (N,) are handed over whatever their confidence; it is chosen on the others.

    A threshold passes when the exact binomial (Clopper-Pearson) upper bound of its error, at level 1 − δ, is at most
    `max_error`. Thresholds are tried in a fixed sequence: from the one that keeps the m most confident images down
    through all lower confidences, until the first that does not pass. Several starts m are used, each doubling the one
    before, so that one early mistake does not decide; they share the risk, δ = (1 − level) / number of starts. The
    starts depend on N, `max_error` and `level` alone, and the first is the least m that can pass.

    Why the guarantee holds although many thresholds are tried: let t* be the highest threshold with error(t*) ≥
    `max_error`. Nothing about t* is random, so the bound at t* is at most `max_error` with probability at most δ. To
    end at or below t* a sequence must pass at t*: the images kept there are kept by one of the thresholds it tries.
    A sequence that starts below t* has only images of error `max_error` or more to add to those above t*, and is even
    less likely to pass. A union over the starts gives 1 − level in all. This takes for granted that error(t) does not
    fall when the threshold is lowered, in truth and not in the sample: that confidence means something.
    """
    _check_limits(max_error, level)
    steps = _Steps.of(*_check_held_out(confidence, right, unusual))
    if steps.num_usual < least_images(max_error, level):
        raise ValueError(_too_few(steps, max_error, level))
    found = _lowest(steps, max_error, level)
    if found is None:
        raise ValueError(_best_instead(steps, max_error, level))
    return found


def least_images(max_error: float, level: float = 0.95) -> int:
    """The least n with (1 − max_error)ⁿ ≤ 1 − level: images that suffice to choose on when none of them is wrong."""
    _check_limits(max_error, level)
    return math.ceil(math.log(1 - level) / math.log1p(-max_error))


def _least_error(n: int, level: float) -> float:
    """What n images can show when none of them is wrong: 1 − (1 − level)^(1/n), rounded up to two digits."""
    if n == 0:
        return 1.0
    error = 1 - (1 - level) ** (1 / n)
    scale = 10.0 ** (1 - math.floor(math.log10(error)))
    return math.ceil(scale * error) / scale


def upper_bound(errors: int | np.ndarray, n: int | np.ndarray, level: float = 0.95) -> np.ndarray:
    """Clopper-Pearson: the largest error rate e with P(Binomial(n, e) ≤ errors) ≥ 1 − level.

    It is the `level` quantile of Beta(errors + 1, n − errors), and 1 when all are wrong.
    """
    from scipy.special import betaincinv

    errors, n = np.asarray(errors), np.asarray(n)
    return np.where(errors < n, betaincinv(errors + 1, np.maximum(n - errors, 1), level), 1.0)


def share_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson: the shares that `hits` of `n` do not contradict."""
    side = (1 + level) / 2
    return 1 - float(upper_bound(n - hits, n, side)), float(upper_bound(hits, n, side))


@dataclass(frozen=True)
class _Steps:
    """The thresholds that can be told apart on the usual images, highest first, with what each of them keeps."""

    threshold: Float[np.ndarray, " T"]
    kept: Int[np.ndarray, " T"]
    errors: Int[np.ndarray, " T"]
    num_usual: int
    held_out: int

    @classmethod
    def of(
        cls, confidence: Float[np.ndarray, " N"], wrong: Bool[np.ndarray, " N"], usual: Bool[np.ndarray, " N"]
    ) -> _Steps:
        order = np.argsort(-confidence[usual])
        c, errors = confidence[usual][order], np.cumsum(wrong[usual][order])
        last = np.flatnonzero(np.diff(c, append=-np.inf))
        return cls(c[last], last + 1, errors[last], num_usual=len(c), held_out=len(confidence))

    @property
    def num_wrong(self) -> int:
        """Wrong ones among the usual images."""
        return int(self.errors[-1]) if len(self.errors) else 0

    @property
    def images(self) -> str:
        """Which images these are, in words."""
        if self.num_usual == self.held_out:
            return f"{self.held_out} held-out images"
        return f"the {self.num_usual} of {self.held_out} held-out images that are not unusual"


def _lowest(steps: _Steps, max_error: float, level: float) -> Threshold | None:
    starts, risk = _starts(steps.num_usual, max_error, level)
    bound = upper_bound(steps.errors, steps.kept, 1 - risk)
    passed = bound <= max_error
    ends = [_last_in_row(passed, int(i)) for i in np.searchsorted(steps.kept, starts) if passed[i]]
    if not ends:
        return None
    end = max(ends)
    return Threshold(
        threshold=float(steps.threshold[end]),
        max_error=max_error,
        level=level,
        kept=int(steps.kept[end]) / steps.held_out,
        held_out=steps.held_out,
        errors=int(steps.errors[end]),
        bound=float(bound[end]),
    )


def _starts(N: int, max_error: float, level: float) -> tuple[list[int], float]:
    """Numbers kept m, 2m, 4m, ... ≤ N to start from, as many as fit, and the risk δ of each, at which m can pass."""
    fits = lambda count: least_images(max_error, 1 - (1 - level) / count) * 2 ** (count - 1) <= N
    count = 1
    while fits(count + 1):
        count += 1
    risk = (1 - level) / count
    return [least_images(max_error, 1 - risk) * 2**i for i in range(count)], risk


def _last_in_row(passed: Bool[np.ndarray, " T"], start: int) -> int:
    """The last threshold of the unbroken row of those that pass, from `start` on."""
    return start + int(np.argmin(np.append(passed[start:], False))) - 1


def _best_instead(steps: _Steps, max_error: float, level: float) -> str:
    """What to say when no threshold passes."""
    said = f"no threshold keeps the error below {max_error:g} with confidence {level:g} on {steps.images}"
    if (found := _least_larger(steps, max_error, level)) is not None:
        return (
            f"{said}; the best that can be had is an error below {found.max_error:g}, keeping {100 * found.kept:.0f} % "
            "of the images: allow that, hold out more images, or improve the model"
        )
    nor = f", nor below any larger error up to {LARGEST_SUGGESTION:g}" if max_error < LARGEST_SUGGESTION else ""
    often = f"{steps.num_wrong} of {steps.num_usual}"
    return f"{said}{nor}: the model is wrong too often ({often}); improve it, or hold out more images"


def _too_few(steps: _Steps, max_error: float, level: float) -> str:
    """What to say of fewer images than are needed."""
    needed, unusual = least_images(max_error, level), steps.held_out - steps.num_usual
    fewer = ", count fewer as unusual (max-unusual)" if unusual > 1 and steps.held_out > needed else ""
    return (
        f"{steps.images} cannot show an error below {max_error:g} with confidence {level:g}, even when all are right; "
        f"at least {needed} are needed: hold out more images{fewer}{_or_allow(steps, max_error, level)}"
    )


def _or_allow(steps: _Steps, max_error: float, level: float) -> str:
    """What else to do where the held-out images are too few."""
    if (found := _least_larger(steps, max_error, level)) is not None:
        return f", or allow a larger error, such as {found.max_error:g}"
    if not steps.num_wrong:
        return ""
    often = f"{steps.num_wrong} of {steps.num_usual}"
    return f", and improve the model, which is wrong too often ({often}) for a larger error"


def _least_larger(steps: _Steps, max_error: float, level: float) -> Threshold | None:
    """The threshold of the least larger error that this data can promise; None if none is of use."""
    least = _least_error(steps.num_usual, level)
    larger = {least, *(min(float(f"{max_error * 1.1**i:.2g}"), LARGEST_SUGGESTION) for i in range(1, 200))}
    limits = sorted(limit for limit in larger if max(max_error, least) <= limit <= LARGEST_SUGGESTION)
    found = (_lowest(steps, limit, level) for limit in limits if limit > max_error)
    return next((threshold for threshold in found if threshold is not None), None)


def _check_limits(max_error: float, level: float) -> None:
    if not 0 < max_error < 1:
        raise UsageError(f"max-error {max_error} was given; it must be above 0 and below 1, such as 0.01")
    if not 0 < level < 1:
        raise UsageError(f"confidence {level} was given; it must be above 0 and below 1, such as 0.95")


def _check_held_out(
    confidence: ArrayLike, right: ArrayLike, unusual: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidences, which images are wrong, and which are usual."""
    c = check_confidence(confidence)
    r, u = np.asarray(right), np.zeros(len(c), bool) if unusual is None else np.asarray(unusual)
    for name, given, such_as in (("right", r, "label == predicted"), ("unusual", u, "distance > limit")):
        if given.shape != c.shape:
            raise ValueError(f"`{name}` has shape {given.shape}; give true or false for each of the {len(c)} images")
        if not np.isin(given, (0, 1)).all():
            raise ValueError(f"`{name}` has type {given.dtype} and other values than true and false; give {such_as}")
    return c, ~r.astype(bool), ~u.astype(bool)


def check_confidence(confidence: ArrayLike) -> Float[np.ndarray, " N"]:
    c = np.asarray(confidence, dtype=float)
    if c.ndim != 1:
        raise ValueError(f"confidence has shape {c.shape}; give one number for each image: probabilities.max(axis=1)")
    if not ((c >= 0) & (c <= 1 + 1e-3)).all():
        bad = int((~((c >= 0) & (c <= 1 + 1e-3))).sum())
        raise ValueError(
            f"{bad} of {len(c)} confidences are NaN or outside [0, 1]; give the largest probability of each image"
        )
    return c
