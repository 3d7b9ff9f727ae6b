"""Batches: an array cut into equal ones, and which images belong to a step of training."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray


def padded_batches(array: np.ndarray, batch_size: int) -> Iterator[np.ndarray]:
    """`array` cut along its first axis; the last batch is filled up with zeros, so that one shape serves for all."""
    for start in range(0, len(array), batch_size):
        batch = array[start : start + batch_size]
        yield np.concatenate([batch, np.zeros((batch_size - len(batch), *batch.shape[1:]), batch.dtype)])


def in_batches(function: Callable[[Array], Any], array: np.ndarray, batch_size: int) -> Any:
    """The arrays that `function` makes of batch after batch, put together again."""
    parts = [function(jnp.asarray(batch)) for batch in padded_batches(array, batch_size)]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[: len(array)], *parts)


class Epochs:
    """The order of the images at each step: drawn anew for every epoch, by its number alone.

    An epoch has as many steps as there are whole batches; in it no image is seen twice.
    """

    def __init__(self, num: int, batch_size: int, key: PRNGKeyArray):
        self._num, self._steps, self._key, self._epoch = num, num // batch_size, key, -1

    def __call__(self, step: int) -> Int[Array, " num"]:
        if (epoch := step // self._steps) != self._epoch:
            self._epoch, self._order = epoch, _shuffled(jax.random.fold_in(self._key, epoch), self._num)
        return self._order


def batch_at(step: Int[Array, ""], order: Int[Array, " num"], batch_size: int) -> Int[Array, " batch"]:
    """The numbers of the images of this step, of the order of its epoch."""
    first = step % (len(order) // batch_size) * batch_size
    return jax.lax.dynamic_slice_in_dim(order, first, batch_size)


@functools.partial(jax.jit, static_argnames="num")
def _shuffled(key: PRNGKeyArray, num: int) -> Int[Array, " num"]:
    """The numbers of `num` images in a random order."""
    return jax.random.permutation(key, num)


def check_at_least_one(**numbers: int) -> None:
    """Refuse a number of steps, images or draws that is not positive, by its name."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} {number} was given; it must be at least 1")
