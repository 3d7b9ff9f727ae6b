"""A dataset: images with labels, split into a part to train on and a part to test on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tickgp.data.digits import read_digits


@dataclass(frozen=True)
class Split:
    """Images (N, H, W, C), bytes or numbers between 0 and 1, and a label from 0 to K − 1 for each."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Dataset:
    """What a model is trained on, what it is tested on, and the names of its classes."""

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]


def load_dataset(name: str) -> Dataset:
    """The dataset of that name."""
    if name not in READERS:
        raise ValueError(f"there is no dataset {name!r}; choose one of: {', '.join(READERS)}")
    return READERS[name]()


def load_digits() -> Dataset:
    """The 8×8 digits that come with scikit-learn: 1,437 to train on and 360 to test on, always the same ones."""
    from sklearn.model_selection import train_test_split

    images, labels = read_digits()
    train, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=0)
    return Dataset(
        "digits", Split(images[train], labels[train]), Split(images[test], labels[test]), tuple("0123456789")
    )


READERS: dict[str, Callable[[], Dataset]] = {"digits": load_digits}
