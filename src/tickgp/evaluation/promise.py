"""A promise of few errors: the confidence from which on a model may decide, chosen on images it was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from tickgp.errors import UsageError

_LIMITS = [limit for power in range(-6, -1) for n in range(10, 100) if (limit := float(f"{n}e{power}")) <= 0.5]
"""Errors to advise, of two digits; with larger ones a model that decides by itself is of no use."""


@dataclass(frozen=True)
class Threshold:
    """Of the images that are not unusual keep those of at least `threshold` in confidence, and no others."""

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


def choose_threshold(
    confidence: Float[np.ndarray, " N"],
    right: Bool[np.ndarray, " N"],
    *,
    max_error: float,
    level: float = 0.95,
    unusual: Bool[np.ndarray, " N"] | None = None,
) -> Threshold:
    """The lowest threshold t at which error(t) = P(wrong | confidence ≥ t) < `max_error`, with confidence `level`.

    `confidence` and `right` are of held-out images: drawn as those to come, and used for no other choice. Those that
    are `unusual` are handed over whatever their confidence; it is chosen on the others.

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
    usual = np.ones(len(right), bool) if unusual is None else ~unusual
    steps = _Steps.of(check_confidence(confidence), ~right, usual)
    found = _lowest(steps, max_error, level)
    if found is None:
        raise ValueError(_why_none(steps, max_error, level))
    return found


def least_images(max_error: float, level: float = 0.95) -> int:
    """The least n with (1 − max_error)ⁿ ≤ 1 − level: images that suffice to choose on when none of them is wrong."""
    _check_limits(max_error, level)
    return math.ceil(math.log(1 - level) / math.log1p(-max_error))


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
    def images(self) -> str:
        """Which images these are, in words."""
        if self.num_usual == self.held_out:
            return f"{self.held_out} held-out images"
        return f"the {self.num_usual} of {self.held_out} held-out images that are not unusual"


def _lowest(steps: _Steps, max_error: float, level: float) -> Threshold | None:
    if steps.num_usual < least_images(max_error, level):
        return None
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


def _why_none(steps: _Steps, max_error: float, level: float) -> str:
    """Why no threshold passes, and what can be done, such as to allow the least larger error that one passes for."""
    needed, advice = least_images(max_error, level), ["hold out more images (validation-share)"]
    promise = f"at most {100 * max_error:g} % errors with {100 * level:g} % confidence"
    wrong = int(steps.errors.max(initial=0))
    said = f"no threshold allows to promise {promise} on {steps.images}, of which the model gets {wrong} wrong"
    if steps.num_usual < needed:
        said = (
            f"to promise {promise} takes {needed} held-out images that are not unusual, even if all are right; there "
            f"are {steps.num_usual} of {steps.held_out}"
        )
        if needed < steps.held_out:
            advice.append("count fewer as unusual (max-unusual)")
    least = upper_bound(steps.errors, steps.kept, level).min(initial=1)  # of several starts each may risk less
    larger = (_lowest(steps, limit, level) for limit in _LIMITS if limit > max_error and limit >= least)
    if (best := next((found for found in larger if found is not None), None)) is not None:
        advice.append(f"allow more errors: with max-error {best.max_error:g} it decides {100 * best.kept:.0f} % alone")
    return f"{said}: {', or '.join(advice)}"


def _check_limits(max_error: float, level: float) -> None:
    if not 0 < max_error < 1:
        raise UsageError(f"max-error {max_error} was given; it must be above 0 and below 1, such as 0.01")
    if not 0 < level < 1:
        raise UsageError(f"confidence {level} was given; it must be above 0 and below 1, such as 0.95")


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
