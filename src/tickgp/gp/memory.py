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

    For images of P patches the largest is most often the product of a hidden layer's q_sqrt and Lu⁻¹Kuf, M·P numbers
    for each image and channel, or where q is diagonal the patches themselves. Some arrays have the same size for any
    batch, such as q_sqrt, M² numbers for each output: where one of these is the largest, halving ends.
    """
    leaves, structure = jax.tree.flatten(model)
    arrays, dtype = tuple((leaf.shape, leaf.dtype) for leaf in leaves), jax.dtypes.canonicalize_dtype(images.dtype)
    largest_of = lambda batch: _largest_array(structure, arrays, (batch, *images.shape[1:]), dtype)
    batch, largest = USUAL_BATCH, largest_of(USUAL_BATCH)
    while batch > 1 and largest > LARGEST_ARRAY and (halved := largest_of(batch // 2)) < largest:
        batch, largest = batch // 2, halved
    return batch


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
