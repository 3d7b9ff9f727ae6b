"""The binary version of CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tickgp.data.contents import Split, check_labels, damaged

SIDE, CHANNELS = 32, 3
ROW = 1 + CHANNELS * SIDE * SIDE


def read_cifar(paths: Sequence[Path]) -> Split:
    """Colour images (N, 32, 32, 3) and their labels, of all batches in turn."""
    batches = [read_batch(path) for path in paths]
    return Split(np.concatenate([b.images for b in batches]), np.concatenate([b.labels for b in batches]))


def read_batch(path: Path) -> Split:
    """One batch: rows of 3,073 bytes, a label and then all red, all green and all blue pixels."""
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if len(content) % ROW:
        raise damaged(path, f"{len(content)} bytes", f"a multiple of {ROW}, one label and 32×32×3 pixels each")
    rows = content.reshape(-1, ROW)
    pixels = rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return Split(np.ascontiguousarray(pixels), check_labels(rows[:, 0], len(rows), 10, path))
