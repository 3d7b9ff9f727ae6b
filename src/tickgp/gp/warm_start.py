"""A trained model made deeper."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from tickgp.gp.builders import as_pixels, few, image_layer
from tickgp.gp.convolution import Convolutional
from tickgp.gp.inducing import InducingPatches
from tickgp.gp.layers import Layer
from tickgp.gp.means import IdentityConv
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Real
from tickgp.gp.patches import PatchGrid
from tickgp.gp.variational import MeanField, SparseGP


def warm_start(trained: DeepGP, images: ArrayLike, *, key: PRNGKeyArray, **settings: Any) -> DeepGP:
    """A model one layer deeper: all layers of a trained deep convolutional GP, and a new one before its last.

    The new layer starts as the identity, on patches of what the layers below it put out. The last layer then sees
    smaller images: its patch weights go back to 1 and its inducing places are scaled to the new range; all else is
    kept. Settings: those of `image_layer`; patch size, stride, number of inducing patches and kind of q are by default
    those of the hidden layer below.
    Paper: three layers start from two
    """
    *hidden, last = trained.layers
    if not hidden or not isinstance(hidden[-1].mean, IdentityConv):
        raise ValueError(
            f"a warm start was asked from a model of {len(trained.layers)} layers; it needs a trained deep_conv or "
            "deep_tick of at least two, because a layer more changes what a single one sees"
        )
    x = trained.pixels(jnp.asarray(few(as_pixels(images))))
    for layer in hidden:
        parts = (x[i : i + 50] for i in range(0, len(x), 50))
        x = jnp.concatenate([_expectation(layer, part, trained.jitter) for part in parts])
    top, grid = hidden[-1], hidden[-1].mean.grid
    like = {
        "patch_size": grid.patch_shape,
        "stride": grid.stride,
        "num_inducing": top.gp.inducing[0].num_inducing,
        "mean_field": isinstance(top.gp.q, MeanField),
    }
    new = image_layer(np.asarray(x), hidden[-1].mean.channels, key=key, **{**like, **settings})
    last = Layer(_moved(last.gp, new.output_shape), last.mean, last.output_shape)
    return eqx.tree_at(lambda model: model.layers, trained, (*hidden, new, last))


def _moved(gp: SparseGP, image_shape: tuple[int, ...]) -> SparseGP:
    """A sum over patches `gp`, for images of another size."""

    def move(node: Any) -> Any:
        if isinstance(node, Convolutional):
            grid = PatchGrid(image_shape, node.grid.patch_shape, node.grid.stride)
            weights = None if node.weights is None else Real(jnp.ones(grid.num_patches), node.weights.trainable)
            return Convolutional(grid, node.response, weights)
        if isinstance(node, InducingPatches) and node.places is not None:
            return eqx.tree_at(lambda z: z.places.raw, node, node.places.raw * scale)
        return node

    is_part = lambda node: isinstance(node, Convolutional | InducingPatches)
    grids = [node.grid for node in jax.tree.leaves(gp.kernel, is_leaf=is_part) if isinstance(node, Convolutional)]
    reach = lambda shape: np.maximum(np.subtract(shape[:2], grids[0].patch_shape), 1)
    scale = jnp.asarray(reach(image_shape) / reach(grids[0].image_shape), float)
    kernel, inducing = (jax.tree.map(move, part, is_leaf=is_part) for part in (gp.kernel, gp.inducing))
    return SparseGP(kernel, inducing, gp.q)


@eqx.filter_jit
def _expectation(layer: Layer, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Float[Array, "N ..."]:
    return layer.expectation(x, jitter)
