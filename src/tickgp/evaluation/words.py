"""The model in plain words: what it looks at, what it has learned about places, how it turns scores into labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tickgp.evaluation.findings import counted
from tickgp.evaluation.reach import agreement, crossings_across, half_way
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.covariances import Pointwise
from tickgp.gp.inducing import AbstractInducing, InducingPatches
from tickgp.gp.kernels import AbstractKernel
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import AbstractLikelihood, Bernoulli, RobustMax, Softmax
from tickgp.gp.means import Linear
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Triangular, trainable
from tickgp.gp.patches import PatchGrid


def describe(model: DeepGP, *, rows: bool = False) -> dict[str, str]:
    """A model of `build_model` by topics, layer by layer, in the order the data flows.

    It is of images, or of `rows` of scaled features.
    """
    depth = len(model.layers)
    facts = {"Model": _overview(model, rows)}
    for i, layer in enumerate(model.layers, start=1):
        unit = "" if i > 1 or model.standardise is None else " standard deviations"
        for topic, text in _layer(layer, unit):
            facts[topic if depth == 1 else f"Layer {i} of {depth}, {topic.lower()}"] = text
    return {**facts, "Labels": _likelihood(model.likelihood)}


def _overview(model: DeepGP, rows: bool) -> str:
    depth = len(model.layers)
    numbers = sum(map(_count, jax.tree.leaves(eqx.filter(model, trainable(model)), is_leaf=_is_triangular)))
    what = "A Gaussian process" if depth == 1 else f"A deep Gaussian process of {depth} layers"
    scaled = "" if model.standardise is None else " and are standardised first"
    values = f"Pixel values range from 0 to 1{scaled}."
    if rows:
        values = "They are features, each scaled to mean 0 and standard deviation 1."
    return f"{what} for {_input(model.layers[0])}. {values} It has {numbers:,} trainable parameters."


def _is_triangular(node: Any) -> bool:
    return isinstance(node, Triangular)


def _count(node: Any) -> int:
    """Numbers in an array, or below and on the diagonal of triangular ones."""
    if not _is_triangular(node):
        return node.size
    return node.raw.size * (node.raw.shape[-1] + 1) // (2 * node.raw.shape[-1])


def _input(layer: Layer) -> str:
    covariance = layer.gp.kernel.covariances[0]
    if not isinstance(covariance, Convolutional | MultiOutputConvolutional):
        return f"inputs of {layer.gp.inducing[0].Z.value.shape[1]:,} numbers each"
    shape = covariance.grid.image_shape
    return _images(shape) + {1: " (grey)", 3: " (colour)"}.get(shape[2], "")


def _images(shape: tuple[int, ...]) -> str:
    H, W, C = shape
    return f"images of {H}×{W} pixels with {'one channel' if C == 1 else f'{C} channels'}"


def _layer(layer: Layer, unit: str) -> Iterator[tuple[str, str]]:
    """`unit`: what differences between its inputs are measured in, if it has a name."""
    inducing = layer.gp.inducing[0]
    match covariance := layer.gp.kernel.covariances[0]:
        case Convolutional() | MultiOutputConvolutional():
            grid, response = covariance.grid, covariance.response
            each = f"{unit} in every {'pixel' if grid.image_shape[2] == 1 else 'number'}"
            yield "Patches", _patches(covariance, layer)
            yield "Memory", _memory(inducing)
            yield "Likeness", _likeness(response.patch, grid.patch_length, "patches", each)
            yield "Places", _places(response.location, grid)
            if isinstance(covariance, Convolutional):
                yield "Weights", _weights(covariance)
        case Pointwise():
            number, length = inducing.Z.value.shape
            yield "Input", _whole(layer)
            yield "Memory", f"What it has learned is stored as its values at {number:,} inducing points."
            yield "Likeness", _likeness(covariance.kernel, length, "inputs", f"{unit} in every number")


def _patches(covariance: Convolutional | MultiOutputConvolutional, layer: Layer) -> str:
    grid = covariance.grid
    h, w = grid.patch_shape
    number = "1 patch" if grid.num_patches == 1 else f"{grid.num_patches:,} patches"
    apart = f"{number} of {h}×{w} pixels, in steps of {counted(grid.stride[0], 'pixel')}"
    if isinstance(covariance, Convolutional):
        outputs = layer.output_shape[0]
        each = "its score" if outputs == 1 else f"each of its {outputs} scores"
        return f"It looks at {apart}; {each} is a weighted average of the responses to all of them."
    rows, columns, channels = layer.output_shape
    said = f"It turns {_images(grid.image_shape)} into {_images((rows, columns, channels))}"
    added = "added to the pixel at the middle of the patch"
    return f"{said}: each new pixel is the response to one of {apart}, {added}."


def _memory(inducing: AbstractInducing) -> str:
    located = isinstance(inducing, InducingPatches) and inducing.places is not None
    where = ", each with a place in the image" if located else ""
    return f"What it has learned is stored as its responses to {inducing.num_inducing:,} inducing patches{where}."


def _whole(layer: Layer) -> str:
    added = ", added to a linear summary of it" if isinstance(layer.mean, Linear) else ""
    return f"It looks at each input as a whole and gives {counted(layer.output_shape[0], 'number')} for it{added}."


def _likeness(kernel: AbstractKernel, length: int, things: str, each: str) -> str:
    """How different two patches may be and still get like responses. The difference is the same in every pixel."""
    half = half_way(kernel, [1.0] * length)
    if half is None:
        return f"The responses to any two {things} have a correlation above 0.5."
    spread = float(np.sqrt(kernel.diag(jnp.zeros((1, length)))[0]))
    return (
        f"The responses to two {things} have a correlation of 0.5 when the {things} differ by {half:.2g}{each}, and "
        "less beyond that. Before any image is seen, the prior with the learned kernel puts 95 % of responses within "
        f"±{2 * spread:.2g}."
    )


def _places(location: AbstractKernel | None, grid: PatchGrid) -> str:
    """How far a patch's meaning reaches."""
    if location is None:
        return "The response is translation invariant: a patch means the same wherever it is."
    last = max(1, (grid.columns - 1) * grid.stride[1])
    near, far = agreement(location, np.array([[0.0, 1.0], [0.0, float(last)]]))
    half = half_way(location, (0.0, 1.0)) or math.inf
    # Where it adds to what is said of both ends.
    inside = f", of 0.5 at {half:.2g} pixels" if half < last and float(f"{half:.2g}") not in (1, last) else ""
    return (
        "The response to a patch depends on its place. The responses to two equal patches have a correlation of "
        f"{near:.2f} when they are 1 pixel apart{inside}, and of {far:.2f} at opposite sides of the image "
        f"({counted(last, 'pixel')}).{_signs(location, grid)}"
    )


def _signs(location: AbstractKernel, grid: PatchGrid) -> str:
    """A sentence on how often the response changes sign, if the kernel is known to be stationary."""
    if (found := crossings_across(location, grid)) is None:
        return ""
    down, across = found
    if not math.isfinite(down + across):
        return " The response is rough: it may change sign any number of times within a pixel."
    return (
        f" The response is expected to change sign {across:.2g} times from the leftmost patch to the rightmost, and "
        f"{down:.2g} times from the top to the bottom (expected zero crossings)."
    )


def _weights(covariance: Convolutional) -> str:
    if covariance.weights is None:
        return "All patches have the same weight."
    w = np.asarray(covariance.weights.value)
    low, high, scale = float(w.min()), float(w.max()), float(np.abs(w).max())
    form = "{:.2f}" if scale >= 0.1 else "{:.1e}"
    if high - low <= 1e-3 * scale:
        return f"All patches have the same weight, {form.format(low)}."
    if (shown := form.format(low)) == form.format(high):
        return f"All patches have about the same weight, {shown}."
    row, column = covariance.grid.corners(np.asarray(np.argmax(np.abs(w))))
    return (
        f"The weights of the patches range from {shown} to {form.format(high)}; the patch that counts most has its "
        f"upper-left corner at row {row}, column {column}."
    )


def _likelihood(likelihood: AbstractLikelihood) -> str:
    match likelihood:
        case Softmax():
            return f"A softmax turns the scores of the {likelihood.num_classes} classes into probabilities."
        case RobustMax():
            return (
                f"The label is the class with the highest of {likelihood.num_classes} scores, except for a share of "
                f"{likelihood.epsilon:g} of the labels, which are taken to be wrong."
            )
        case Bernoulli():
            return "There are two classes and one score: the higher it is, the more likely the second class (probit)."
    return f"Labels are given by the likelihood {type(likelihood).__name__}."
