"""The digits embedded in scikit-learn."""

from __future__ import annotations

import numpy as np


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images (8, 8, 1) between 0 and 1, and their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return (digits.images[..., None] / 16).astype(np.float32), digits.target
