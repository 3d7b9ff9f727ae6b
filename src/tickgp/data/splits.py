"""Images set aside, class by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

UNEVEN = 3  # times as many images in the largest class as in the smallest: worth a word


def stratified_split(
    labels: np.ndarray, share: float, seed: int, class_names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Indices (kept, set aside): about `share` of every class is set aside, and at least one image of it on each side.

    With a share of 1 everything is set aside: to evaluate a model on images of which it has seen none.
    """
    if not 0 < share <= 1:
        raise ValueError(f"a share of {share} cannot be set aside; give a number above 0 and at most 1")
    if share == 1:
        return np.arange(0), np.arange(len(labels))
    rng, aside = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        if len(members) < 2:
            raise ValueError(
                f"class {class_names[label]!r} has 1 image; to set some aside, a class needs at least 2: add images "
                "of it, leave the class out, or separate training and test images yourself"
            )
        aside[members[: np.clip(round(share * len(members)), 1, len(members) - 1)]] = True
    return np.flatnonzero(~aside), np.flatnonzero(aside)


def unevenness(labels: np.ndarray, class_names: Sequence[str]) -> tuple[str, ...]:
    """A sentence on classes of very different sizes, if they are."""
    counts = np.bincount(labels, minlength=len(class_names))
    few, many = int(counts.argmin()), int(counts.argmax())
    if len(labels) and (missing := [name for name, count in zip(class_names, counts, strict=True) if not count]):
        return (f"there are no training images of {', '.join(map(repr, missing))}, which the model cannot learn",)
    if counts[many] < UNEVEN * counts[few] or not len(labels):
        return ()
    images = "image" if counts[few] == 1 else "images"
    return (
        f"the classes are uneven: {counts[few]} training {images} of {class_names[few]!r}, {counts[many]} of "
        f"{class_names[many]!r}; look at the confusions of each class in the report, not only at the error of all",
    )
