"""Images as arrays: colour to grey, small images into the frame of larger ones, and what is said of dark ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

GREY = (299, 587, 114)  # thousandths of red, green and blue
DARK = 63 / 255  # of white: what 14 bits come to when they are saved as 16


def to_grey(images: np.ndarray) -> np.ndarray:
    """0.299 R + 0.587 G + 0.114 B: (…, 3) to (…, 1). Bytes stay bytes, rounded; images of one channel stay as they are.

    Bytes are computed in whole numbers, so that every machine rounds alike.
    """
    if images.shape[-1] == 1:
        return images
    if images.shape[-1] != 3:
        raise ValueError(f"images of {images.shape[-1]} channels cannot be made grey; give images of 1 or 3 channels")
    wide = images.astype(np.uint32) if images.dtype == np.uint8 else images
    red, green, blue = (weight * wide[..., i : i + 1] for i, weight in enumerate(GREY))
    total = red + green + blue
    return ((total + 500) // 1000 if images.dtype == np.uint8 else total / 1000).astype(images.dtype)


def to_channels(images: np.ndarray, channels: int) -> np.ndarray:
    """Images with `channels` channels: colour made grey, grey repeated."""
    if channels == 1:
        return to_grey(images)
    if images.shape[-1] not in (1, channels):
        raise ValueError(
            f"images of {images.shape[-1]} channels cannot have {channels}; give images of 1 or {channels}"
        )
    return images if images.shape[-1] == channels else np.repeat(images, channels, axis=-1)


def pad(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """Images (N, H, W, C) in the middle of a black frame; where the rest is odd, below and to the right."""
    top, left = (height - images.shape[1]) // 2, (width - images.shape[2]) // 2
    below, right = height - images.shape[1] - top, width - images.shape[2] - left
    return np.pad(images, ((0, 0), (top, below), (left, right), (0, 0)))


def frame(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images as a model for `shape` (H, W, C) takes them: padded when smaller, grey or in colour as needed."""
    height, width, channels = shape
    if images.shape[1] > height or images.shape[2] > width:
        given = f"{images.shape[1]}×{images.shape[2]}"
        raise ValueError(f"images of {given} do not fit a model for {height}×{width}; choose data of at most that size")
    return pad(to_channels(images, channels), height, width)


def darkness(parts: Iterable[np.ndarray], *, from_files: bool) -> tuple[str, ...]:
    """A sentence if no pixel of these images is bright, so that models, made for pixels up to white, see little."""
    images = list(parts)
    white, brightest = 255 if images[0].dtype == np.uint8 else 1, max(part.max(initial=0) for part in images)
    if brightest > DARK * white:
        return ()
    if white == 255 and brightest == 1:
        or_else = "" if from_files else ", or store them as floats from 0 to 1"
        return (f"the pixels are bytes from 0 to 1, and 255 is white; multiply them by 255{or_else}",)
    fix = "multiply all by the same factor"
    if from_files:
        fix = "if their files have 16 bits and use fewer, stretch them first, all by the same factor"
    return (f"the brightest pixel of all images is {brightest:g} of {white}, so that little tells them apart; {fix}",)
