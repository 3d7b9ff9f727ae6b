"""The dropout CNN of the comparison: one, two or three convolutions, a dense layer, dropout, and logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from tickgp.gp.images import check_images

KERNEL_SIZE = 5
POOL_SIZE = 2
CHANNELS = (32, 64, 128)
UNITS = 1024

Padding = Literal["VALID", "SAME"]
_PADDINGS: tuple[Padding, ...] = ("VALID", "VALID", "SAME")


class Dense(eqx.Module):
    """x W + b."""

    weights: Float[Array, "I O"]
    biases: Float[Array, " O"]

    def __init__(self, inputs: int, outputs: int, *, key: PRNGKeyArray):
        self.weights = initial_weights(key, (inputs, outputs))
        self.biases = initial_biases(outputs)

    def __call__(self, x: Float[Array, "N I"]) -> Float[Array, "N O"]:
        return x @ self.weights + self.biases


class Convolution(eqx.Module):
    """Every 5×5 window of the image times W, plus b: stride 1, no window over the edge, unless `padding` is SAME."""

    weights: Float[Array, "5 5 I O"]
    biases: Float[Array, " O"]
    padding: Padding = eqx.field(static=True)

    def __init__(self, inputs: int, outputs: int, padding: Padding, *, key: PRNGKeyArray):
        self.weights = initial_weights(key, (KERNEL_SIZE, KERNEL_SIZE, inputs, outputs))
        self.biases = initial_biases(outputs)
        self.padding = padding

    def __call__(self, x: Float[Array, "N H W I"]) -> Float[Array, "N h w O"]:
        order = ("NHWC", "HWIO", "NHWC")
        return (
            jax.lax.conv_general_dilated(x, self.weights, (1, 1), self.padding, dimension_numbers=order) + self.biases
        )


class CNN(eqx.Module):
    """logits = V·dropout(relu(U·flatten(c_L(… c_1(x))) + a)) + b, where c(x) = pool(relu(convolve(x))).

    Convolutions are 5×5 with 32, 64 and 128 channels, each followed by the maximum over 2×2 windows; U has 1024 units.
    The paper's network has two, and none pads its input: 28×28 pixels become 24, 12, 8, then 4×4×64 = 1024 numbers.
    For the deeper network the paper gives no sizes. A third unpadded 5×5 does not fit in 4×4, so the third alone pads
    with zeros (SAME) to keep its size; its channels double once more, and pooling leaves 2×2×128 = 512 numbers.
    Dropout is after the dense layer of 1024 units only. It is not part of this class: who trains or predicts draws
    `dropout_scales` for the units, or leaves them whole for the deterministic network, which is what a call gives.
    Paper: appendix CNN
    """

    convolutions: tuple[Convolution, ...]
    hidden: Dense
    output: Dense
    image_shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, image_shape: Sequence[int], num_classes: int, *, num_convolutions: int = 2, key: PRNGKeyArray):
        """A network for images (height, width, channels), with new random weights."""
        height, width, channels = image_shape
        pixels = pooled_size(height, num_convolutions) * pooled_size(width, num_convolutions)
        if num_classes < 2:
            raise ValueError(f"{num_classes} classes were given; there must be at least 2")
        *keys, key_hidden, key_output = jax.random.split(key, num_convolutions + 2)
        sizes = zip((channels, *CHANNELS), CHANNELS, _PADDINGS, keys, strict=False)
        self.convolutions = tuple(Convolution(i, o, padding, key=k) for i, o, padding, k in sizes)
        self.hidden = Dense(pixels * CHANNELS[num_convolutions - 1], UNITS, key=key_hidden)
        self.output = Dense(UNITS, num_classes, key=key_output)
        self.image_shape = (height, width, channels)

    @property
    def num_classes(self) -> int:
        return len(self.output.biases)

    def __call__(self, x: Float[Array, "N H W C"]) -> Float[Array, "N K"]:
        """Logits of the deterministic network."""
        return self.output(self.units(x))

    def units(self, x: Float[Array, "N H W C"]) -> Float[Array, "N 1024"]:
        """The units that dropout is for."""
        for convolve in self.convolutions:
            x = max_pool(jax.nn.relu(convolve(x)))
        return jax.nn.relu(self.hidden(x.reshape(len(x), -1)))

    def check(self, images: ArrayLike) -> np.ndarray:
        """`images` as an array, if this network takes images of their shape."""
        images = check_images(images)
        if images.shape[1:] != self.image_shape:
            made, given = ("×".join(map(str, shape)) for shape in (self.image_shape, images.shape[1:]))
            raise ValueError(f"images are {given} and this network takes {made}; resize them, or make another network")
        return images


def pooled_size(size: int, num_convolutions: int) -> int:
    """Height or width of an image of this `size` after all convolutions and poolings."""
    if not 1 <= num_convolutions <= len(CHANNELS):
        raise ValueError(f"{num_convolutions} convolutions were asked for; there can be 1 to {len(CHANNELS)}")
    left = size
    for padding in _PADDINGS[:num_convolutions]:
        left = (left - (KERNEL_SIZE - 1) * (padding == "VALID")) // POOL_SIZE
    if left < 1:
        raise ValueError(
            f"an image side of {size} pixels is too short for {num_convolutions} convolutions; "
            "1, 2 and 3 of them need 6, 16 and 20 pixels: use fewer, or pad the images"
        )
    return left


def max_pool(x: Float[Array, "N H W C"]) -> Float[Array, "N h w C"]:
    """The largest of each 2×2 window, side by side; an odd last row or column is left out."""
    # A maximum over axes, not `reduce_window`: the gradient of that scatters, slowly, and on a GPU in no fixed order.
    n, height, width, channels = x.shape
    h, w = height // POOL_SIZE, width // POOL_SIZE
    windows = x[:, : h * POOL_SIZE, : w * POOL_SIZE].reshape(n, h, POOL_SIZE, w, POOL_SIZE, channels)
    return jnp.max(windows, axis=(2, 4))


def dropout_scales(key: PRNGKeyArray, rate: Float[Array, ""] | float, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Factors that drop units: 0 with probability `rate`, else 1 / (1 − rate), so that their mean is 1."""
    return jax.random.bernoulli(key, 1 - rate, shape) / (1.0 - rate)


def check_rate(dropout: float) -> float:
    if not 0 <= dropout < 1:
        raise ValueError(f"a dropout rate of {dropout} was given; it must be at least 0 and below 1")
    return dropout


def initial_weights(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Draws of N(0, 0.1²) cut off at ±0.2, as TensorFlow's `truncated_normal`: 0.1 is the deviation before the cut."""
    return 0.1 * jax.random.truncated_normal(key, -2.0, 2.0, shape)


def initial_biases(num: int) -> Float[Array, " {num}"]:
    return jnp.full(num, 0.1)
