"""Hand over to a person or not: what the model is not sure of, and what is unlike the images that it knows.

A threshold on the confidence keeps the error of what is kept below a limit (`evaluation.promise`). That holds for
images like the held-out ones; most others are found by their distance from training (`evaluation.familiarity`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from tickgp.errors import UsageError
from tickgp.evaluation.promise import Threshold, check_confidence, choose_threshold, least_images, too_few


@dataclass(frozen=True)
class HeldOut:
    """How sure a model was of images it was not trained on, and whether it was right: thresholds come from this."""

    source: str
    """Which images these are: "validation" or "test"."""
    confidence: Float[np.ndarray, " N"]
    right: Bool[np.ndarray, " N"]
    distance: Float[np.ndarray, " N"]
    """From the training images: `Prediction.distance`."""

    @staticmethod
    def of(source: str, probabilities: ArrayLike, distance: ArrayLike | None, labels: ArrayLike) -> HeldOut:
        """From class probabilities (N, K), distances (N,) and the true classes (N,)."""
        p, distance = (np.asarray(numbers, np.float32) for numbers in (probabilities, distance))  # as they are saved
        if bad := int(np.sum(~(np.isfinite(p).all(axis=1) & np.isfinite(distance)))):
            raise ArithmeticError(
                f"the model has no finite probabilities and distances for {bad} of {len(p)} {source} images; "
                "try a smaller learning rate, or float64"
            )
        return HeldOut(source, p.max(axis=1), p.argmax(axis=1) == np.asarray(labels), distance)

    def max_distance(self, max_unusual: float = 0.01) -> float:
        """The least distance that no more than a share of `max_unusual` exceeds; infinite without images."""
        number = _unusual(len(self.distance), max_unusual)
        return float(np.sort(self.distance)[-1 - number]) if len(self.distance) else math.inf

    def threshold(self, max_error: float, level: float = 0.95, max_unusual: float = 0.01) -> Threshold:
        """That of `choose_threshold` for images that are not unusual, with the limit of the distance.

        It is chosen on the images that are nearer than the one which sets that limit. Given the limit, these are drawn
        as new images below it are (ties in distance apart), and so the promise is that for what the model decides.
        """
        N, needed = len(self.distance), images_needed(max_error, level, max_unusual)
        nearer = np.argsort(self.distance, kind="stable")[: max(N - _unusual(N, max_unusual) - 1, 0)]
        confidence, right = self.confidence[nearer], self.right[nearer]
        if needed > N:
            raise ValueError(too_few(confidence, right, max_error, level, held_out=N, needed=needed))
        found = choose_threshold(confidence, right, max_error=max_error, level=level)
        found = replace(found, held_out=N, max_distance=self.max_distance(max_unusual))
        return replace(found, kept=float(np.mean(~hand_over(self.confidence, self.distance, found))))


def images_needed(max_error: float, level: float = 0.95, max_unusual: float = 0.01) -> int:
    """The least number of held-out images for `HeldOut.threshold`: one sets the limit, and some may lie beyond it."""
    least = least_images(max_error, level)
    N = least + _unusual(least, max_unusual)
    while (missing := least - (N - _unusual(N, max_unusual) - 1)) > 0:
        N += missing
    return N


def _unusual(N: int, max_unusual: float) -> int:
    """How many of N held-out images may lie beyond the limit of the distance."""
    if not 0 <= max_unusual < 1:
        raise UsageError(f"max_unusual is {max_unusual}; give a share from 0 to below 1, such as 0.01 for one in 100")
    return int(max_unusual * N)


def hand_over(confidence: ArrayLike, distance: ArrayLike | None, threshold: Threshold) -> Bool[np.ndarray, " N"]:
    """Whether a person should look at each image: it is less sure than the threshold, or too far from training."""
    if math.isnan(threshold.threshold) or math.isnan(threshold.max_distance):
        raise ValueError(f"{threshold} has a limit that is NaN, which would keep every image; choose it anew")
    c, d = check_confidence(np.asarray(confidence, np.float32)), np.asarray(distance, np.float32)
    if d.shape != c.shape or not np.isfinite(d).all():
        raise ValueError(
            f"`distance` has shape {d.shape} and {int((~np.isfinite(d)).sum())} values that are not finite; give the "
            f"`distance` of a prediction, one number for each of the {len(c)} images"
        )
    return (c < np.float32(threshold.threshold)) | is_unusual(d, threshold.max_distance)


def is_unusual(distance: ArrayLike, max_distance: float) -> Bool[np.ndarray, " N"]:
    """Whether each image is further from training than the limit, in the precision that limits are kept in."""
    return np.asarray(distance, np.float32) > np.float32(max_distance)


def share_and_error(asked: Bool[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> tuple[float, float | None]:
    """Share of the images that goes to a person, and the share of wrong ones among the rest (None without a rest)."""
    return float(asked.mean()), None if asked.all() else float((~right[~asked]).mean())
