"""The digits embedded in scikit-learn."""

from __future__ import annotations

import numpy as np

from tickgp.data.contents import Contents, Split


def read_digits() -> Contents:
    """1,797 images (8, 8, 1) between 0 and 1: 1,437 to train on and 360 to test on, always the same ones."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    whole = Split((digits.images[..., None] / 16).astype(np.float32), digits.target.astype(np.int64))
    train, test = train_test_split(np.arange(len(whole)), test_size=0.2, stratify=whole.labels, random_state=0)
    return Contents(whole.take(train), whole.take(test), tuple("0123456789"))
