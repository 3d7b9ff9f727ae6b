"""What a reader returns, and the checks that every reader makes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tickgp.errors import UsageError

_AT_ONCE = 64
"""Images that are looked at together."""


@dataclass(frozen=True, repr=False)
class Split:
    """Images (N, H, W, C), bytes or numbers between 0 and 1, and a label from 0 to K − 1 for each."""

    images: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...] | None = None
    """Where each image comes from: its file below the folder that was read; None where images are not files."""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Split({len(self)} images of {'×'.join(map(str, self.images.shape[1:]))}, {self.images.dtype})"

    def take(self, chosen: np.ndarray) -> Split:
        """The images at these places, in their order; or those where `chosen` is true."""
        names = None if self.names is None else tuple(np.array(self.names, object)[chosen])
        return Split(self.images[chosen], self.labels[chosen], names)

    @cached_property
    def digests(self) -> np.ndarray:
        """A number for each image, the same for the same pixels, as bytes or as floats: in practice for no others."""
        parts = (self.images[i : i + _AT_ONCE] for i in range(0, len(self), _AT_ONCE))
        return np.array([_digest(image) for part in parts for image in _as_bytes(part)], np.uint64)

    def is_in(self, other: Split) -> np.ndarray:
        """Which images are among those of `other` too, pixel for pixel."""
        return np.isin(self.digests, other.digests)

    def is_new(self, beside: Split) -> np.ndarray:
        """Which images are neither among those of `beside` nor, pixel for pixel, the same as an earlier one."""
        first = np.zeros(len(self), bool)
        first[np.unique(self.digests, return_index=True)[1]] = True
        return first & ~self.is_in(beside)

    def map_images(self, change: Callable[[np.ndarray], np.ndarray]) -> Split:
        """The same, with `change` made to all images."""
        return replace(self, images=change(self.images))

    def name(self, i: int) -> str:
        """What image i is called: its file, or else its number."""
        return str(i) if self.names is None else self.names[i]


def _as_bytes(images: np.ndarray) -> Iterable[np.ndarray]:
    """Floats that are bytes divided by 255 as these bytes, others in single precision."""
    if images.dtype == np.uint8:
        return images
    levels = np.rint(255 * images)
    are = (np.abs(255 * images - levels) <= 1e-3) & (levels >= 0) & (levels <= 255)
    whole = are.reshape(len(images), -1).all(axis=1)
    each = zip(whole, levels, images, strict=True)
    return [level.astype(np.uint8) if is_bytes else image.astype(np.float32) for is_bytes, level, image in each]


def _digest(image: np.ndarray) -> int:
    return int.from_bytes(hashlib.blake2b(image.tobytes(), digest_size=8).digest())


@dataclass(frozen=True)
class Contents:
    """What a source holds: images to train on, images to test on (None: it has no split), and what was noticed."""

    train: Split
    test: Split | None
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    validation: Split | None = None
    """Images to make choices on, where the source has such."""

    @property
    def parts(self) -> tuple[Split, ...]:
        """All that there are."""
        return tuple(part for part in (self.train, self.test, self.validation) if part is not None)

    def map_images(self, change: Callable[[np.ndarray], np.ndarray]) -> Contents:
        """The same, with `change` made to all images."""
        return self._map(lambda split: split.map_images(change))

    def only(self, class_names: tuple[str, ...]) -> Contents:
        """The images of these classes alone, which are numbered in the order given."""
        if unknown := [name for name in class_names if name not in self.class_names]:
            raise UsageError(f"there is no class {unknown[0]!r}; choose among: {', '.join(self.class_names)}")
        if len(set(class_names)) < max(2, len(class_names)):
            raise UsageError(f"the classes {', '.join(class_names)} were asked for; name at least 2, each once")
        numbers = np.full(len(self.class_names), -1)
        numbers[[self.class_names.index(name) for name in class_names]] = np.arange(len(class_names))

        def part(split: Split) -> Split:
            kept = split.take(numbers[split.labels] >= 0)
            return replace(kept, labels=numbers[kept.labels])

        kept = replace(self._map(part), class_names=class_names)
        for kind in ("train", "test", "validation"):
            if (split := getattr(kept, kind)) is not None and not len(split):
                raise UsageError(
                    f"no {kind} image is of the classes {', '.join(class_names)}; add some, or name others"
                )
        return kept

    def _map(self, change: Callable[[Split], Split]) -> Contents:
        test, validation = (None if part is None else change(part) for part in (self.test, self.validation))
        return replace(self, train=change(self.train), test=test, validation=validation)


def damaged(path: Path, found: str, expected: str) -> ValueError:
    """The error of a file that is not what it should be: what was found, what is expected, what to do."""
    return ValueError(
        f"{path}: {found}; expected {expected}. The file is damaged or of another kind: replace it by the published one"
    )


def check_labels(labels: np.ndarray, num_images: int, num_classes: int, path: Path) -> np.ndarray:
    """`labels` as int64, when there is one from 0 to K − 1 for each image, and at least one image."""
    if len(labels) != num_images:
        raise damaged(path, f"{len(labels)} labels for {num_images} images", "one label for each image")
    if not len(labels):
        raise damaged(path, "no images at all", "at least one")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise damaged(path, f"labels from {labels.min()} to {labels.max()}", f"labels from 0 to {num_classes - 1}")
    return labels.astype(np.int64)
