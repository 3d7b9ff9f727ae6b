"""What `TickClassifier` is given (images, images laid flat, rows of features) as the images that a model takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from tickgp.gp.images import check_inputs, warn_caller

_FAR = 10.0
"""Deviations from the mean beyond which features are all alike: to the model all of it is far from what it has seen."""

_ROUNDING = 1e-3
"""How far beyond 0 and 1 pixels may be, for they were computed: half precision has three digits."""

_LITTLE = 0.1
"""Range of pixels between which a model hardly tells any apart."""

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class RowScale:
    """Features as deviations from their means, in the units of their spread over the training rows."""

    mean: Float[np.ndarray, " D"]
    deviation: Float[np.ndarray, " D"]

    @staticmethod
    def of(rows: np.ndarray) -> RowScale:
        from sklearn.preprocessing import StandardScaler  # it knows a constant feature from one that varies little

        scaler = StandardScaler().fit(rows.astype(float))
        return RowScale(scaler.mean_, scaler.scale_)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return np.clip((rows - self.mean) / self.deviation, -_FAR, _FAR)


@dataclass(frozen=True)
class Inputs:
    """How rows of numbers become images of `shape`. Rows that are no images are scaled and taken as 1×1×D images."""

    shape: Shape
    scale: RowScale | None = None

    @staticmethod
    def of(rows: np.ndarray, shape: Shape | None) -> Inputs:
        """For images of `shape`, or for rows like these."""
        if shape is None:
            return Inputs((1, 1, rows.shape[1]), RowScale.of(rows))
        if rows.shape[1] != math.prod(shape):
            raise ValueError(
                f"X has rows of {rows.shape[1]} numbers, and images of {_text(shape)} have {math.prod(shape)}; give as "
                "image_shape the height, the width and, in colour, the channels of the images that were laid flat"
            )
        return Inputs(shape)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Images (N, H, W, C): bytes, or floats of the precision that jax computes in."""
        x = rows if self.scale is None else self.scale(rows)
        images = check_inputs(x.reshape(len(x), *self.shape))
        if self.scale is None:
            _check_range(images)
        return images if images.dtype == np.uint8 else images.astype(jnp.result_type(float))

    def check_like(self, X: Any) -> None:
        """Refuse images of another shape than those of the training; rows are checked by their length."""
        shape = _own_shape(X)
        if shape is not None and (self.scale is not None or shape != self.shape):
            known = f"rows of {self.shape[2]} features" if self.scale is not None else f"images of {_text(self.shape)}"
            raise ValueError(f"images of {_text(shape)} were given, and the model was fitted to {known}; give such")


def image_shape(X: Any, given: Any) -> Shape | None:
    """(H, W, C) of the images in `X`: its own, or for flat rows the one `given`; None for rows that are no images."""
    own, said = _own_shape(X), None if given is None else _three(given)
    if own is not None and said is not None and own != said:
        raise ValueError(f"X has images of {_text(own)}, and image_shape is {given}; leave image_shape out")
    return own or said


def as_rows(X: Any) -> Any:
    """Images (N, H, W) or (N, H, W, C) laid flat; anything else as it is, for scikit-learn to check."""
    shape = _own_shape(X)
    return X if shape is None else np.asarray(X).reshape(len(X), math.prod(shape))


def square(number: int) -> str | None:
    """`(s, s)` if that many numbers could be a square image of s × s pixels, worth the name."""
    side = math.isqrt(number)
    return f"({side}, {side})" if side * side == number and side >= 6 else None


def count_distinct(images: np.ndarray, limit: int) -> int:
    """How many of the images differ from each other, counted up to `limit`."""
    seen: set[bytes] = set()
    for image in images:
        seen.add((image + 0).tobytes())  # adding 0 makes −0 and 0 alike
        if len(seen) == limit:
            break
    return len(seen)


def _check_range(images: np.ndarray) -> None:
    """Refuse floats that are not between 0 and 1: bytes are taken to that range, and kernels start out made for it."""
    low, high = images.min(), images.max()
    if images.dtype == np.uint8 or (low >= -_ROUNDING and high <= 1 + _ROUNDING):
        return
    fix = "divide them by the largest value that a pixel can have"
    if low < -_ROUNDING:
        fix = (
            "shift and divide them, (X - low) / (high - low), with the least and the largest value a pixel can have; "
            "if it was a StandardScaler that moved them, leave that out and set standardise=True"
        )
    raise ValueError(f"pixels go from {low:g} to {high:g}; give floats between 0 and 1, or bytes (uint8): {fix}")


def warn_of_little_range(images: np.ndarray) -> None:
    """Kernels start out made for pixels from 0 to 1: between those that hardly differ they see nothing."""
    low, high, white = float(images.min()), float(images.max()), 255 if images.dtype == np.uint8 else 1
    if high - low >= _LITTLE * white:
        return
    said = f"pixels go from {low:g} to {high:g} only, and models are made for 0 to 1"
    fix = "divide them by the largest value that a pixel can have"
    if white == 255:
        said = f"pixels are bytes from {low:g} to {high:g} only, and 255 is white"
        fix = "multiply them by 255, or give floats from 0 to 1" if high == 1 else "stretch them, all in the same way"
    warn_caller(f"{said}; {fix}, or set standardise=True")


def _own_shape(X: Any) -> Shape | None:
    """(H, W, C) of an array of images; None for rows, and for what scikit-learn will refuse."""
    shape = _array(X).shape
    if len(shape) > 4:
        raise ValueError(f"X has shape {shape}; give images (N, H, W) or (N, H, W, C), or rows (N, D)")
    return _three(shape[1:]) if len(shape) > 2 else None


def _array(X: Any) -> np.ndarray:
    """`X` as an array, which images of different sizes cannot be."""
    try:
        array = np.asarray(X)
    except ValueError:
        _refuse_sizes(X)
        raise
    if array.dtype == object and array.ndim == 1:
        _refuse_sizes(array)
    return array


def _refuse_sizes(X: Any) -> None:
    shapes = {np.shape(x) for x in X}
    if len(shapes) > 1 and min(map(len, shapes)) > 1:
        small, large = ("×".join(map(str, shape)) for shape in (min(shapes), max(shapes)))
        raise ValueError(
            f"the images of X have different sizes, among them {small} and {large}; resize them to one, or use "
            'tickgp.load_dataset("folder:PATH", image_size=32)'
        ) from None


def _three(shape: Any) -> Shape:
    """(H, W) or (H, W, C) with its channels."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else ()
    if len(sizes) not in (2, 3) or not all(isinstance(size, int | np.integer) and size > 0 for size in sizes):
        raise ValueError(f"image_shape {shape!r} was given; it must be (height, width) or (height, width, channels)")
    height, width, *channels = map(int, sizes)
    return (height, width, *channels) if channels else (height, width, 1)  # type: ignore[return-value]


def _text(shape: Shape) -> str:
    return "×".join(map(str, shape))
