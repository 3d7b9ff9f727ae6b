"""How many images can be worked on at once."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params

from tickgp.gp.models import DeepGP

LARGEST_ARRAY = 2**30
"""Bytes that the largest array of a batch may take."""
USUAL_BATCH = 128


def fitting_batch(model: DeepGP, images: np.ndarray) -> int:
    """The usual batch of 128 images, or half of it, a quarter …, until no array that `model` computes is above 1 GiB.

    For images of P patches that is most often the product of a hidden layer's q_sqrt and Lu⁻¹Kuf, M·P numbers for each
    image and channel, or where q is diagonal the patches themselves.
    """
    leaves, structure = jax.tree.flatten(model)
    arrays = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    largest = _largest_array(
        structure, arrays, (USUAL_BATCH, *images.shape[1:]), jax.dtypes.canonicalize_dtype(images.dtype)
    )
    halvings = max(0, math.ceil(math.log2(largest / LARGEST_ARRAY)))
    return max(1, USUAL_BATCH >> halvings)


@functools.lru_cache
def _largest_array(structure: Any, arrays: tuple[Any, ...], images: tuple[int, ...], dtype: Any) -> int:
    """Bytes of the largest array on the way of these images through a model; nothing is computed."""
    model = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*array) for array in arrays])
    forward = lambda model, x: model.propagate(x, key=jax.random.key(0)).mean
    traced = jax.make_jaxpr(forward)(model, jax.ShapeDtypeStruct(images, dtype))
    return max(_sizes(traced.jaxpr))


def _sizes(jaxpr: Any) -> Iterator[int]:
    """Bytes of every array that a program computes, those of its subprograms included."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield math.prod(variable.aval.shape) * variable.aval.dtype.itemsize
        for inner in jaxprs_in_params(equation.params):
            yield from _sizes(inner)
