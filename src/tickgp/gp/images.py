"""Images and labels at the library's edge: what is taken, and what is refused before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped


def to_pixels(images: Shaped[Array, "N H W C"]) -> Float[Array, "N H W C"]:
    """Bytes (uint8) divided by 255; floats as they are."""
    return images / 255.0 if images.dtype == jnp.uint8 else images.astype(float)


def check_images(images: ArrayLike) -> np.ndarray:
    """`images` as an array (N, H, W, C) of bytes or finite floats."""
    images = np.asarray(images)
    if images.ndim != 4:
        raise ValueError(
            f"images have shape {images.shape}; they must be (number, height, width, channels): "
            "add a last axis of length 1 to grey images, and a first one to a single image"
        )
    if images.dtype != np.uint8 and not np.issubdtype(images.dtype, np.floating):
        raise ValueError(f"images have type {images.dtype}; give bytes (uint8), or floats between 0 and 1")
    if 0 in images.shape:
        raise ValueError(f"images have shape {images.shape}; there must be at least one image of at least one pixel")
    if not np.isfinite(images).all():
        bad = int((~np.isfinite(images)).any(axis=(1, 2, 3)).sum())
        raise ValueError(f"{bad} of {len(images)} images hold NaN or infinite pixels; remove or fill them")
    return images


def check_labels(labels: ArrayLike, num_images: int, num_classes: int) -> np.ndarray:
    """`labels` as whole numbers (N,) from 0 to num_classes − 1, one for each image."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) != num_images:
        raise ValueError(f"labels have shape {labels.shape}; give one label for each of the {num_images} images")
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels have type {labels.dtype}; give whole numbers from 0 to {num_classes - 1}")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"labels go from {labels.min()} to {labels.max()}; this model has {num_classes} classes and takes "
            f"0 to {num_classes - 1}: number the classes from 0, or build the model for more classes"
        )
    return labels


def padded_batches(array: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """`array` cut along its first axis; the last batch is filled up with zeros, so that one shape serves for all."""
    for start in range(0, len(array), batch_size):
        batch = array[start : start + batch_size]
        yield np.concatenate([batch, np.zeros((batch_size - len(batch), *batch.shape[1:]), batch.dtype)])
