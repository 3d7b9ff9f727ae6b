"""Images and labels at the library's edge: what is taken, and what is refused before anything is compiled."""

from __future__ import annotations

import sys
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped


def to_pixels(images: Shaped[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Bytes (uint8) divided by 255; floats as they are."""
    return images / 255.0 if images.dtype == jnp.uint8 else images.astype(float)


class Standardise(eqx.Module):
    """(x − mean) / deviation of each channel, with the numbers of the training images."""

    mean: Float[Array, " C"]
    deviation: Float[Array, " C"]

    def __init__(self, images: Float[np.ndarray, "N H W C"]):
        deviation = images.std(axis=(0, 1, 2), dtype=np.float64)
        self.mean = jnp.asarray(images.mean(axis=(0, 1, 2), dtype=np.float64), float)
        self.deviation = jnp.asarray(np.where(deviation > 0, deviation, 1), float)

    def __call__(self, x: Float[Array, "N H W C"]) -> Float[Array, "N H W C"]:
        return (x - self.mean) / self.deviation


def check_images(images: ArrayLike) -> np.ndarray:
    """`images` as an array (N, H, W, C) of bytes or finite floats, with a warning if it seems to be (N, C, H, W).

    What models are built from goes through here; what they are then trained and tested on only through `check_inputs`,
    so that this is said once.
    """
    images = np.asarray(images)
    if images.ndim != 4:
        raise ValueError(
            f"images have shape {images.shape}; they must be (number, height, width, channels): "
            "add a last axis of length 1 to grey images, and a first one to a single image"
        )
    if images.shape[1] in (1, 3, 4) and images.shape[2] == images.shape[3] >= 8:
        warn_caller(
            f"images of shape {images.shape[1:]} look as if their channels came first; they are taken as (height, "
            "width, channels): np.moveaxis(images, 1, -1) would move them to the end"
        )
    return check_inputs(images)


def warn_caller(message: str) -> None:
    """A warning that points at whoever called this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("tickgp."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def check_inputs(x: ArrayLike) -> np.ndarray:
    """Inputs (N, …) as an array of bytes or finite floats, true and false as 1 and 0; images must look like pixels."""
    x = np.asarray(x)
    if x.dtype == bool:
        x = x.astype(np.float32)
    if x.dtype != np.uint8 and not np.issubdtype(x.dtype, np.floating):
        raise ValueError(f"images have type {x.dtype}; give bytes (uint8), or floats between 0 and 1")
    if x.ndim < 2 or 0 in x.shape:
        raise ValueError(f"images have shape {x.shape}; there must be at least one image of at least one pixel")
    if x.dtype != np.uint8 and not np.isfinite(x).all():
        bad = int((~np.isfinite(x)).reshape(len(x), -1).any(axis=1).sum())
        raise ValueError(f"{bad} of {len(x)} images hold NaN or infinite pixels; remove or fill them")
    if x.ndim == 4 and x.dtype != np.uint8 and np.abs(x).max() > 10:
        raise ValueError(
            f"pixels go from {x.min():g} to {x.max():g}; the models are made for floats between 0 and 1: divide them "
            "by the largest value that a pixel can have, or give bytes (uint8)"
        )
    return x


def check_labels(labels: ArrayLike, num_images: int, num_classes: int) -> np.ndarray:
    """`labels` as whole numbers (N,) from 0 to num_classes − 1, one for each image."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) != num_images:
        raise ValueError(f"labels have shape {labels.shape}; give one label for each of the {num_images} images")
    if labels.dtype == bool:
        labels = labels.astype(int)
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels have type {labels.dtype}; give whole numbers from 0 to {num_classes - 1}: labels.astype(int), or "
            "np.unique(labels, return_inverse=True)[1] for names"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"labels go from {labels.min()} to {labels.max()}; this model has {num_classes} classes and takes "
            f"0 to {num_classes - 1}: number the classes from 0, or build the model for more classes"
        )
    return labels


def check_targets(targets: ArrayLike, num_inputs: int, num_outputs: int) -> np.ndarray:
    """`targets` of a regression as finite floats (N, F), a row for each input."""
    targets = np.asarray(targets)
    if targets.shape != (num_inputs, num_outputs) or not np.issubdtype(targets.dtype, np.floating):
        raise ValueError(
            f"targets have shape {targets.shape} and type {targets.dtype}; give floats of shape "
            f"({num_inputs}, {num_outputs}): a row for each input, a column for each output"
        )
    if not np.isfinite(targets).all():
        raise ValueError(f"{int((~np.isfinite(targets)).sum())} targets are NaN or infinite; remove or fill them")
    return targets
