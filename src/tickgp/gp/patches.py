"""Patches of an image and where they stand. The order of patches is fixed here, for the whole library."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class SizeError(ValueError):
    """Images are too small, or have too few patches, for what was asked."""


class Located(eqx.Module):
    """T patches and the places of their upper-left corners (row, column) in pixels; no places where none matter."""

    patch: Float[Array, "T E"]
    place: Float[Array, "T 2"] | None


@dataclass(frozen=True)
class PatchGrid:
    """The patches x[p] of an image of shape (H, W, C), and their places l(p).

    A patch is a window of `patch_shape` (h, w) with all channels, so its length is E = h·w·C. With `stride` (sy, sx)
    there are P = rows·columns of them, rows = (H − h) // sy + 1 and columns = (W − w) // sx + 1.

    The order: patches row by row by their upper-left corners; inside a patch row, column, channel. So patch p is
    `image[r : r + h, c : c + w, :].reshape(-1)` with r = (p // columns)·sy and c = (p % columns)·sx.
    Paper: patches x[p], l(p)
    """

    image_shape: tuple[int, ...]
    patch_shape: tuple[int, int]
    stride: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if len(self.image_shape) != 3 or min(self.image_shape) < 1:
            raise ValueError(
                f"image shape {self.image_shape} is not (height, width, channels) with each at least 1; "
                "give grey images a last axis of length 1"
            )
        (H, W, _), (h, w) = self.image_shape, self.patch_shape
        if min(self.patch_shape) < 1 or h > H or w > W:
            raise SizeError(f"patch {h}x{w} does not fit in image {H}x{W}; use a patch from 1x1 to {H}x{W}")
        if min(self.stride) < 1:
            raise ValueError(f"stride {self.stride} must be at least 1 in both directions; use (1, 1) for every patch")

    @property
    def rows(self) -> int:
        return (self.image_shape[0] - self.patch_shape[0]) // self.stride[0] + 1

    @property
    def columns(self) -> int:
        return (self.image_shape[1] - self.patch_shape[1]) // self.stride[1] + 1

    @property
    def num_patches(self) -> int:
        """P."""
        return self.rows * self.columns

    @property
    def patch_length(self) -> int:
        """E."""
        return self.patch_shape[0] * self.patch_shape[1] * self.image_shape[2]

    def patches(self, images: Float[Array, "N H W C"]) -> Float[Array, "N P E"]:
        """All patches of each image."""
        self._check(images.shape)
        (h, w), (sy, sx) = self.patch_shape, self.stride
        bottom, right = (self.rows - 1) * sy + 1, (self.columns - 1) * sx + 1
        pixels = [images[:, i : i + bottom : sy, j : j + right : sx, :] for i in range(h) for j in range(w)]
        return jnp.stack(pixels, axis=3).reshape(len(images), self.num_patches, self.patch_length)

    def places(self) -> Float[Array, "P 2"]:
        """l(p): the upper-left corner (row, column) of each patch, in pixels."""
        return jnp.asarray(self.corners(np.arange(self.num_patches)), float)

    def corners(self, patch: np.ndarray) -> np.ndarray:
        """Upper-left corners (row, column) of the patches with these numbers."""
        return np.stack([patch // self.columns * self.stride[0], patch % self.columns * self.stride[1]], axis=-1)

    def windows(self, images: np.ndarray, image: np.ndarray, patch: np.ndarray) -> np.ndarray:
        """Patch number `patch[i]` of image number `image[i]`, for all i, in numpy: for picking a few among many."""
        self._check(images.shape)
        (h, w), corner = self.patch_shape, self.corners(patch)
        row = corner[:, 0, None, None] + np.arange(h)[:, None]
        column = corner[:, 1, None, None] + np.arange(w)
        return images[image[:, None, None], row, column].reshape(len(image), self.patch_length)

    def _check(self, shape: tuple[int, ...]) -> None:
        if shape[1:] != self.image_shape:
            fix = "resize them or build the model for this shape"
            if (*shape[1:], 1) == self.image_shape:
                fix = "add a last axis of length 1: images[..., None]"
            raise ValueError(
                f"images of shape {shape[1:]} were given to a model for images of shape {self.image_shape} "
                f"(height, width, channels); {fix}"
            )
