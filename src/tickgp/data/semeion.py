"""The text file of Semeion's handwritten digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tickgp.data.contents import Split, check_labels, damaged

SIDE, DIGITS = 16, 10
COLUMNS = SIDE * SIDE + DIGITS


def read_semeion(path: Path) -> Split:
    """Images (N, 16, 16, 1), 0 for paper and 255 for ink, and their digits.

    A line is an image: 256 pixels, 0 or 1, then ten numbers of which the digit's is 1 and the others are 0.
    """
    rows = _numbers(path)
    if rows.shape[1] != COLUMNS:
        raise damaged(path, f"{rows.shape[1]} numbers in a line", f"{COLUMNS}")
    if not np.isin(rows, (0, 1)).all():
        raise damaged(path, "numbers that are neither 0 nor 1", "0 or 1 everywhere")
    pixels, digits = rows[:, : SIDE * SIDE], rows[:, SIDE * SIDE :]
    if not (bad := digits.sum(1) != 1).any():
        images = (255 * pixels).astype(np.uint8).reshape(-1, SIDE, SIDE, 1)
        return Split(images, check_labels(digits.argmax(1), len(images), DIGITS, path))
    raise damaged(path, f"line {bad.argmax() + 1} marks {int(digits[bad.argmax()].sum())} digits", "exactly one")


def _numbers(path: Path) -> np.ndarray:
    lines = path.read_text("utf-8", errors="replace").splitlines()
    if not any(line.strip() for line in lines):
        raise damaged(path, "no lines", f"lines of {COLUMNS} numbers")
    try:
        return np.loadtxt(lines, ndmin=2)
    except ValueError as error:
        raise damaged(path, str(error), f"lines of {COLUMNS} numbers") from error
