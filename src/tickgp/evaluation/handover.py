"""Hand over to a person or not: what the model is not sure of, and what is unlike the images that it knows.

A threshold on the confidence keeps the error of what is kept below a limit (`evaluation.promise`). That holds for
images like the held-out ones; most others are found by their distance from training (`evaluation.familiarity`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from tickgp.errors import UsageError
from tickgp.evaluation.promise import Threshold, check_confidence, choose_threshold, least_images


@dataclass(frozen=True)
class Rule:
    """Which images the model decides: of a person are those it is unsure of and the unusual ones, or all."""

    max_distance: float = math.inf
    """The distance from the training images beyond which images are unusual."""
    threshold: Threshold | None = None
    """None where nothing can be promised: a person decides all images."""
    reason: str = ""
    """Why there is no threshold."""

    def __str__(self) -> str:
        """When the model decides by itself and how often it is wrong then, or why it never does."""
        if (chosen := self.threshold) is None:
            return f"No image can be decided by the model alone: {self.reason}."
        return (
            f"The model decides an image alone if it is at least {100 * chosen.threshold:.2f} % sure and the image is "
            f"like those it knows. At most {100 * chosen.max_error:g} % of these decisions are wrong (with "
            f"{100 * chosen.level:g} % confidence), provided that new images are like the {chosen.held_out} held-out "
            f"ones, of which it decided {100 * chosen.kept:.0f} % alone."
        )

    def as_json(self) -> dict[str, Any]:
        """The threshold, or null and the reason why there is none; with the limit of the distance, if there is one."""
        chosen = {"threshold": None, "reason": self.reason} if self.threshold is None else asdict(self.threshold)
        return {**chosen, "max_distance": self.max_distance if math.isfinite(self.max_distance) else None}

    def unusual(self, distance: ArrayLike) -> Bool[np.ndarray, " N"]:
        """Whether each image is further from training than the limit, in the precision that limits are kept in."""
        # What is no number is unusual too.
        return ~(np.asarray(distance, np.float32) <= np.float32(self.max_distance))

    def hand_over(self, confidence: ArrayLike, distance: ArrayLike | None) -> Bool[np.ndarray, " N"]:
        """Whether a person should look at each image: it is less sure than the threshold, or too far from training."""
        if self.threshold is None:
            return np.ones(np.shape(confidence), bool)
        c, d = check_confidence(np.asarray(confidence, np.float32)), np.asarray(distance, np.float32)
        if d.shape != c.shape:
            raise ValueError(
                f"`distance` has shape {d.shape}; give the `distance` of a prediction, one number for each of the "
                f"{len(c)} images"
            )
        return ~(c >= np.float32(self.threshold.threshold)) | self.unusual(d)


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
    def of(
        source: str,
        probabilities: ArrayLike,
        distance: ArrayLike,
        labels: ArrayLike,
        counted: Bool[np.ndarray, " N"],
    ) -> HeldOut:
        """From class probabilities (N, K), distances (N,) and the true classes (N,) of the images that are counted."""
        p, d = (np.asarray(numbers, np.float32)[counted] for numbers in (probabilities, distance))  # as they are saved
        if bad := int(np.sum(~(np.isfinite(p).all(axis=1) & np.isfinite(d)))):
            raise ArithmeticError(
                f"the model has no finite probabilities and distances for {bad} of {len(p)} {source} images; "
                "try a smaller learning rate, or float64"
            )
        return HeldOut(source, p.max(axis=1), p.argmax(axis=1) == np.asarray(labels)[counted], d)

    def max_distance(self, max_unusual: float = 0.01) -> float:
        """Beyond it are the furthest images, a share of `max_unusual` but at least one, and all others as far as these.

        Without images it is infinite.
        """
        furthest = np.sort(self.distance)[-_num_unusual(len(self.distance), max_unusual) :].astype(np.float32)
        return float(np.nextafter(furthest[0], np.float32(-np.inf))) if len(furthest) else math.inf

    def rule(self, max_error: float, level: float = 0.95, max_unusual: float = 0.01) -> Rule:
        """With the threshold of `choose_threshold` for images that are not unusual, or the reason why there is none.

        The promise is for what the model decides: the limit is set by an image beyond it, and given that image, those
        within the limit, which the threshold is chosen on, are drawn as new images within it are.
        """
        rule = Rule(self.max_distance(max_unusual))
        limits = {"max_error": max_error, "level": level}
        try:
            chosen = choose_threshold(self.confidence, self.right, unusual=rule.unusual(self.distance), **limits)
        except UsageError:
            raise
        except ValueError as reason:
            return replace(rule, reason=str(reason))
        return replace(rule, threshold=chosen)


def images_needed(max_error: float, level: float = 0.95, max_unusual: float = 0.01) -> int:
    """The least number of held-out images for a threshold of `HeldOut.rule`, if no two are equally far."""
    least = least_images(max_error, level)
    N = max(least + _num_unusual(least, max_unusual), math.floor((least - 1) / (1 - max_unusual)))
    while N - _num_unusual(N, max_unusual) < least:
        N += 1
    return N


def _num_unusual(N: int, max_unusual: float) -> int:
    """How many of N held-out images are to be unusual."""
    if not 0 <= max_unusual < 1:
        raise UsageError(f"max-unusual {max_unusual} was given; it must be at least 0 and below 1, such as 0.01")
    return max(int(max_unusual * N), 1)


def share_and_error(asked: Bool[np.ndarray, " N"], right: Bool[np.ndarray, " N"]) -> tuple[float, float | None]:
    """Share of the images that goes to a person, and the share of wrong ones among the rest (None without a rest)."""
    return float(asked.mean()), None if asked.all() else float((~right[~asked]).mean())
