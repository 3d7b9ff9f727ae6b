"""A trained model made deeper."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional, PatchResponse
from tickgp.gp.images import check_images
from tickgp.gp.inducing import InducingPatches
from tickgp.gp.kernels import AbstractKernel, AbstractStationary, Product, Sum
from tickgp.gp.layer_builders import KernelFamily, image_layer, some_images
from tickgp.gp.layers import Layer
from tickgp.gp.means import IdentityConv
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Positive, Real
from tickgp.gp.patches import PatchGrid
from tickgp.gp.variational import MeanField, SparseGP


def warm_start(trained: DeepGP, images: ArrayLike, *, key: PRNGKeyArray, **settings: Any) -> DeepGP:
    """A model one layer deeper: all layers of a trained deep convolutional GP, and a new one before its last.

    The new layer starts as the identity with little noise, and its inducing patches are taken from what the layers
    below it put out. It cuts off a margin of half a patch, so the last layer sees the same image without its rim. The
    last layer keeps the weights of the patches that are left (without weights, f is the mean over these), the places of
    its inducing patches are shifted by the margin, and all else stays as it was. This is exact if the new layer's
    stride is 1 and the last layer's stride divides the margin; with other strides it is approximate, the better the
    smoother the images are. The bound falls by the KL divergence of the new layer, whose q has hardly any variance yet.
    Settings: those of `image_layer`; patch size, stride, number of inducing patches, kernel and kind of q are those of
    the hidden layer below by default, the variance is 0.01, the lengthscale half the median distance between patches.
    Paper: three layers start from two
    """
    *hidden, last = trained.layers
    if not hidden:
        raise ValueError(
            "a warm start was asked from a model of a single layer; it needs a trained deep_conv or deep_tick of at "
            "least two, because a layer more changes what a single one sees"
        )
    if not isinstance(hidden[-1].mean, IdentityConv):
        raise ValueError(
            "a warm start was asked from a model whose hidden layers do not put out images; it needs a trained "
            "deep_conv or deep_tick, into which a layer can be put that changes nothing"
        )
    x = trained.pixels(jnp.asarray(some_images(check_images(images))))
    for layer in hidden:
        parts = (x[i : i + 50] for i in range(0, len(x), 50))
        x = jnp.concatenate([_expectation(layer, part, trained.jitter) for part in parts])
    top, grid = hidden[-1], hidden[-1].mean.grid
    like = {
        "patch_size": grid.patch_shape,
        "stride": grid.stride,
        "num_inducing": top.gp.inducing[0].num_inducing,
        "mean_field": isinstance(top.gp.q, MeanField),
        "variance": 0.01,
        "lengthscale": "median",
    }
    if "kernel" not in settings:
        settings["kernel"] = _family(top)
    new = image_layer(np.asarray(x), hidden[-1].mean.channels, key=key, **{**like, **settings})
    assert isinstance(new.mean, IdentityConv)
    last = Layer(_moved(last.gp, new.mean.grid, new.output_shape), last.mean, last.output_shape)
    return eqx.tree_at(lambda model: model.layers, trained, (*hidden, new, last))


def _family(layer: Layer) -> KernelFamily:
    """Of the kernel between patches: what makes one like it."""
    covariance = layer.gp.kernel.covariances[0]
    if isinstance(covariance, MultiOutputConvolutional) and isinstance(covariance.response.patch, AbstractStationary):
        return type(covariance.response.patch)
    raise ValueError(
        "the kernel of the hidden layer below is of no known family; say with kernel= which the new one has"
    )


def _moved(gp: SparseGP, through: PatchGrid, image_shape: tuple[int, ...]) -> SparseGP:
    """A sum over patches `gp`, for images of which the centre of each patch of `through` is left."""
    stride, margin = np.array(through.stride), (np.array(through.patch_shape) - 1) // 2

    def move(node: Any) -> Any:
        if isinstance(node, Convolutional):
            grid = PatchGrid(image_shape, node.grid.patch_shape, node.grid.stride)
            w = None if node.weights is None else weights(node.grid, grid, node.weights)
            return Convolutional(grid, _shrunk(node.response, stride), w)
        if isinstance(node, InducingPatches) and node.places is not None:
            return eqx.tree_at(lambda z: z.places.raw, node, (node.places.raw - margin) / stride)
        return node

    def weights(old: PatchGrid, new: PatchGrid, w: Real) -> Real:
        """For each new patch the weight of the nearest old one, times the number of those that it stands for.

        f divides by the number of patches.
        """
        corners = new.corners(np.arange(new.num_patches)) * stride + margin
        nearest = np.floor(corners / old.stride + 0.5).astype(int)
        row, column = np.minimum(nearest, (old.rows - 1, old.columns - 1)).T
        share = stride.prod() * new.num_patches / old.num_patches
        return Real(share * w.value[row * old.columns + column], w.trainable, w.prior)

    is_part = lambda node: isinstance(node, Convolutional | InducingPatches)
    kernel, inducing = (jax.tree.map(move, part, is_leaf=is_part) for part in (gp.kernel, gp.inducing))
    return SparseGP(kernel, inducing, gp.q)


def _shrunk(response: PatchResponse, stride: np.ndarray) -> PatchResponse:
    """The response with its location kernel in units of `stride` pixels: every lengthscale of it is divided by that.

    A single lengthscale for rows and columns is divided by the geometric mean of both strides.
    """
    if (stride == 1).all():
        return response

    def shrink(kernel: AbstractKernel) -> AbstractKernel:
        if not isinstance(kernel, AbstractStationary):
            raise ValueError(
                f"the stride of the new layer is {tuple(stride.tolist())}, and places divided by it would not mean the "
                f"same to the location kernel {type(kernel).__name__}; use a stride of 1, or a location kernel made of "
                "stationary ones by + and *"
            )
        old = kernel.lengthscale
        unit = stride if old.value.ndim else np.sqrt(stride.prod())
        return eqx.tree_at(lambda k: k.lengthscale, kernel, Positive(old.value / unit, old.trainable))

    is_single = lambda node: isinstance(node, AbstractKernel) and not isinstance(node, Sum | Product)
    return PatchResponse(response.patch, jax.tree.map(shrink, response.location, is_leaf=is_single))


@eqx.filter_jit
def _expectation(layer: Layer, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Float[Array, "N ..."]:
    return layer.expectation(x, jitter)
