"""The model in plain words: what it looks at, what it has learned about places, how it turns scores into labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tickgp.evaluation.findings import counted
from tickgp.evaluation.reach import PatchCovariance, agreement, crossings_across, half_way, locations
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.covariances import AbstractCovariance, Pointwise
from tickgp.gp.inducing import AbstractInducing, InducingPatches
from tickgp.gp.kernels import AbstractKernel
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import AbstractLikelihood, Bernoulli, Gaussian, RobustMax, Softmax
from tickgp.gp.means import Identity, IdentityConv, Linear
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Triangular, trainable
from tickgp.gp.patches import PatchGrid

Pair = tuple[AbstractCovariance, AbstractInducing]


@dataclass(frozen=True)
class Fact:
    """A thing worth knowing of a model: what it is about, in a word or two, and a sentence or more."""

    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}"


def describe(model: DeepGP, *, rows: bool = False) -> list[Fact]:
    """The model, layer by layer, in the order the data flows; of images, or of `rows` of scaled features."""
    depth = len(model.layers)
    facts = [Fact("Model", _overview(model, rows))]
    for i, layer in enumerate(model.layers, start=1):
        prefix = "" if depth == 1 else f"Layer {i} of {depth}, "
        unit = "" if i > 1 or model.standardise is None else " standard deviations"
        for fact in _layer(layer, unit):
            topic = prefix + fact.topic.lower() if prefix else fact.topic
            facts.append(Fact(topic, fact.text))
    return [*facts, Fact("Labels", _likelihood(model.likelihood))]


def _overview(model: DeepGP, rows: bool) -> str:
    depth, first = len(model.layers), model.layers[0].gp.kernel.covariances[0]
    numbers = sum(map(_count, jax.tree.leaves(eqx.filter(model, trainable(model)), is_leaf=_is_triangular)))
    what = "A Gaussian process" if depth == 1 else f"A deep Gaussian process of {depth} layers"
    scaled = "" if model.standardise is None else " and are standardised first"
    values = f"Pixel values range from 0 to 1{scaled}."
    if rows:
        values = "They are features, each scaled to mean 0 and standard deviation 1."
    return f"{what} for {_input(first, model.layers[0])}. {values} It has {numbers:,} trainable parameters."


def _is_triangular(node: Any) -> bool:
    return isinstance(node, Triangular)


def _count(node: Any) -> int:
    """Numbers in an array, or below and on the diagonal of triangular ones."""
    if not _is_triangular(node):
        return node.size
    return 0 if node.raw is None else node.raw.size * (node.raw.shape[-1] + 1) // (2 * node.raw.shape[-1])


def _input(covariance: AbstractCovariance, layer: Layer) -> str:
    match covariance:
        case Convolutional() | MultiOutputConvolutional():
            shape = covariance.grid.image_shape
            return _images(shape) + {1: " (grey)", 3: " (colour)"}.get(shape[2], "")
        case Pointwise():
            return f"inputs of {layer.gp.inducing[0].Z.value.shape[1]:,} numbers each"
    return "images"


def _images(shape: tuple[int, ...]) -> str:
    H, W, C = shape
    return f"images of {H}×{W} pixels with {'one channel' if C == 1 else f'{C} channels'}"


def _layer(layer: Layer, unit: str) -> Iterator[Fact]:
    """`unit`: what differences between its inputs are measured in, if it has a name."""
    covariances, inducing, mixing = layer.gp.kernel.covariances, layer.gp.inducing, layer.gp.kernel.mixing
    kinds: dict[Any, list[Pair]] = {}
    for i, covariance in enumerate(covariances):
        kinds.setdefault(_kind(covariance), []).append((covariance, inducing[i % len(inducing)]))
    for kind, alike in kinds.items():
        if len(kinds) > 1:
            yield Fact("Kind", f"{len(alike)} of its latent functions are of the kind {kind[0]}:")
        yield from _facts(alike, layer, unit)
    if len(covariances) > 1:
        yield Fact("Kernels", f"Each of its {len(covariances)} latent functions has its own kernel.")
    if mixing is not None:
        yield Fact("Mixing", f"Its {mixing.shape[0]} outputs are mixtures of {mixing.shape[1]} latent functions.")


def _kind(covariance: AbstractCovariance) -> tuple[Any, ...]:
    """What must be equal for two covariances to be described together."""
    name = type(covariance).__name__
    if isinstance(covariance, PatchCovariance):
        return name, covariance.grid, covariance.response.location is None
    return (name,)


def _facts(pairs: list[Pair], layer: Layer, unit: str) -> Iterator[Fact]:
    alike, inducing = [covariance for covariance, _ in pairs], pairs[0][1]
    match alike[0]:
        case Convolutional() | MultiOutputConvolutional():
            yield from _patch_facts([k for k in alike if isinstance(k, PatchCovariance)], layer, inducing, unit)
        case Pointwise():
            kernels = [k.kernel for k in alike if isinstance(k, Pointwise)]
            yield Fact("Input", _whole(layer))
            number = inducing.num_inducing
            yield Fact("Memory", f"What it has learned is stored as its values at {number:,} inducing points.")
            yield Fact("Likeness", _likeness(kernels, inducing.Z.value.shape[1], "inputs", f"{unit} in every number"))
        case other:
            yield Fact("Prior", f"A prior of another kind, {type(other).__name__}, which cannot be described here.")


def _patch_facts(alike: list[PatchCovariance], layer: Layer, inducing: AbstractInducing, unit: str) -> Iterator[Fact]:
    grid = alike[0].grid
    yield Fact("Patches", _patches(alike[0], layer))
    yield Fact("Memory", _memory(inducing))
    each = f"{unit} in every {'pixel' if grid.image_shape[2] == 1 else 'number'}"
    yield Fact("Likeness", _likeness([k.response.patch for k in alike], grid.patch_length, "patches", each))
    yield Fact("Places", _places(locations(alike), grid))
    if isinstance(alike[0], Convolutional):
        yield Fact("Weights", _weights([k for k in alike if isinstance(k, Convolutional)]))


def _patches(covariance: PatchCovariance, layer: Layer) -> str:
    grid = covariance.grid
    (h, w), (sy, sx) = grid.patch_shape, grid.stride
    step = counted(sy, "pixel") if sy == sx else f"{counted(sy, 'pixel')} down and {sx} across"
    number = "1 patch" if grid.num_patches == 1 else f"{grid.num_patches:,} patches"
    apart = f"{number} of {h}×{w} pixels, in steps of {step}"
    if isinstance(covariance, Convolutional):
        outputs = layer.output_shape[0]
        each = "its score" if outputs == 1 else f"each of its {outputs} scores"
        return f"It looks at {apart}; {each} is a weighted average of the responses to all of them."
    rows, columns, channels = layer.output_shape
    said = f"It turns {_images(grid.image_shape)} into {_images((rows, columns, channels))}"
    around = ", added to the pixel at the middle of the patch" if isinstance(layer.mean, IdentityConv) else ""
    return f"{said}: each new pixel is the response to one of {apart}{around}."


def _memory(inducing: AbstractInducing) -> str:
    located = isinstance(inducing, InducingPatches) and inducing.places is not None
    where = ", each with a place in the image" if located else ""
    return f"What it has learned is stored as its responses to {inducing.num_inducing:,} inducing patches{where}."


def _whole(layer: Layer) -> str:
    means = {Linear: ", added to a linear summary of it", Identity: ", added to the input itself"}
    size, added = math.prod(layer.output_shape), means.get(type(layer.mean), "")
    return f"It looks at each input as a whole and gives {counted(size, 'number')} for it{added}."


def _likeness(kernels: list[AbstractKernel], length: int, things: str, each: str) -> str:
    """How different two patches may be and still get like responses. The difference is the same in every pixel."""
    halves = [half for k in kernels if (half := half_way(k, [1.0] * length)) is not None]
    if not halves:
        return f"The responses to any two {things} have a correlation above 0.5."
    spread = [float(np.sqrt(k.diag(jnp.zeros((1, length)))[0])) for k in kernels]
    return (
        f"The responses to two {things} have a correlation of 0.5 when the {things} differ by "
        f"{_range(halves, '{:.2g}')}{each}, and less beyond that. Before any image is seen, the prior with the learned "
        f"kernel puts 95 % of responses within ±{_range([2 * s for s in spread], '{:.2g}')}."
    )


def _places(locations: list[AbstractKernel], grid: PatchGrid) -> str:
    """How far a patch's meaning reaches."""
    if not locations:
        return "The response is translation invariant: a patch means the same wherever it is."
    last = max(1, (grid.columns - 1) * grid.stride[1])
    apart = [agreement(k, np.array([[0.0, 1.0], [0.0, float(last)]])) for k in locations]
    near, far = (_range([a[i] for a in apart], "{:.2f}") for i in (0, 1))
    crossings = [found[1] for k in locations if (found := crossings_across(k, grid)) is not None]
    return (
        "The response to a patch depends on its place. The responses to two equal patches have a correlation of "
        f"{near} when they are 1 pixel apart{_half_place(locations, last)}, and of {far} at opposite sides of the "
        f"image ({counted(last, 'pixel')}).{_signs(crossings)}"
    )


def _half_place(locations: list[AbstractKernel], last: int) -> str:
    """At which distance their correlation is 0.5, if that is inside the image and not one already spoken of."""
    halves = [half_way(k, (0.0, 1.0)) or math.inf for k in locations]
    inside = all(float(f"{half:.2g}") not in (1, last) and half < last for half in halves)
    return f", of 0.5 at {_range(halves, '{:.2g}')} pixels" if inside else ""


def _signs(crossings: list[float]) -> str:
    if not crossings:
        return ""
    if not all(map(math.isfinite, crossings)):
        return " The response is rough: it may change sign any number of times within a pixel."
    return (
        f" From one side of the image to the other the response is expected to change sign "
        f"{_range(crossings, '{:.2g}')} times (expected zero crossings)."
    )


def _weights(alike: Sequence[Convolutional]) -> str:
    weights = [np.asarray(k.weights.value) for k in alike if k.weights is not None]
    if not weights:
        return "All patches have the same weight."
    low, high = float(np.min(weights)), float(np.max(weights))
    scale = max(abs(low), abs(high))
    form = "{:.2f}" if scale >= 0.1 else "{:.1e}"
    if high - low <= 1e-3 * scale:
        return f"All patches have the same weight, {form.format(low)}."
    if (shown := form.format(low)) == form.format(high):
        return f"All patches have about the same weight, {shown}."
    row, column = alike[0].grid.corners(np.asarray(np.argmax(sum(np.abs(w) for w in weights))))
    return (
        f"The weights of the patches range from {_range([low, high], form)}; the patch that counts most has its "
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
        case Gaussian():
            noise = float(np.sqrt(likelihood.variance.value))
            numbers = counted(likelihood.num_outputs, "number")
            return f"A regression: {numbers} with noise of standard deviation {noise:.2g}."
    return f"Labels are given by the likelihood {type(likelihood).__name__}."


def _range(values: list[float], form: str) -> str:
    """One number, or the least and the largest of several that differ."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
