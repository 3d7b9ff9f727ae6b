"""The binary version of CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tickgp.data.contents import Labelled, check_labels, damaged

SIDE, CHANNELS = 32, 3
ROW = 1 + CHANNELS * SIDE * SIDE


def read_cifar(paths: Sequence[Path]) -> Labelled:
    """Colour images (N, 32, 32, 3) and their labels, of all batches in turn."""
    images, labels = zip(*map(read_batch, paths), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def read_batch(path: Path) -> Labelled:
    """One batch: rows of 3,073 bytes, a label and then all red, all green and all blue pixels."""
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if len(content) % ROW:
        raise damaged(path, f"{len(content)} bytes", f"a multiple of {ROW}, one label and 32×32×3 pixels each")
    rows = content.reshape(-1, ROW)
    pixels = rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), check_labels(rows[:, 0], len(rows), 10, path)
