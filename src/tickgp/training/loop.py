"""The training loop: a generator of events that prints nothing and writes nothing."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

from tickgp.gp.images import check_images, check_labels, to_pixels
from tickgp.gp.likelihoods import AbstractClassification
from tickgp.gp.models import DeepGP
from tickgp.gp.objective import elbo
from tickgp.gp.params import trainable
from tickgp.training.failures import all_finite, check_jitter, raised_jitter

_ADAM = optax.scale_by_adam()


class State(eqx.Module):
    """All that a step changes; with it, training can be taken up again."""

    model: DeepGP
    adam: optax.OptState
    step: Int[Array, ""]
    failures: Int[Array, ""]
    """Steps in a row that gave no finite gradient and were not applied."""


@dataclass(frozen=True)
class Progress:
    """Where training stands. `state` is valid until the next event is asked for: its memory is then used again."""

    state: State
    step: int
    elbo: float
    """Mean of the minibatch estimates since the last event, each for the whole dataset; NaN if no step succeeded."""
    seconds: float
    """Since training began, compilation included."""


def inverse_decay(learning_rate: float = 0.01, steps: float = 5000.0) -> Callable[[int], float]:
    """The learning rate `learning_rate` / (1 + t / `steps`): the paper's t⁻¹ decay for single layers.

    Paper: decaying learning rate
    """
    return lambda t: learning_rate / (1 + t / steps)


def train(
    model: DeepGP,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    steps: int,
    batch_size: int = 128,
    learning_rate: Callable[[int], float] | None = None,
    num_samples: int = 1,
    report_every: int = 100,
    key: PRNGKeyArray,
) -> Iterator[Progress]:
    """Maximise the ELBO of `model` by Adam, and say every `report_every` steps and after the last where it stands.

    learning_rate: as a function of the step; `inverse_decay()` if None. num_samples: draws of the hidden layers for
    each step. In an epoch no image is seen twice. A step without a finite gradient is not applied (see
    `training.failures`).
    """
    images = check_images(images)
    if isinstance(model.likelihood, AbstractClassification):
        labels = check_labels(labels, len(images), model.likelihood.num_classes)
    if steps < 1 or batch_size < 1:
        raise ValueError(f"{steps} steps with batches of {batch_size} were asked for; both must be at least 1")
    x, y = jnp.asarray(images), jnp.asarray(labels)
    batch_size, rate = min(batch_size, len(x)), learning_rate or inverse_decay()
    per_epoch = len(x) // batch_size
    state, start, sums = _initial(model), time.monotonic(), jnp.zeros(2)
    for i in range(steps):
        if i % per_epoch == 0:
            order = _shuffle(jax.random.fold_in(key, i), len(x))
        state, sums = _step(state, sums, x, y, order, rate(i), key, batch_size=batch_size, num_samples=num_samples)
        if (i + 1) % report_every == 0 or i + 1 == steps:
            check_jitter(state.model)
            total, count = (float(a) for a in sums)
            yield Progress(state, i + 1, total / count if count else float("nan"), time.monotonic() - start)
            sums = jnp.zeros(2)


def fit(
    model: DeepGP, images: ArrayLike, labels: ArrayLike, *, steps: int, key: PRNGKeyArray, **settings: Any
) -> DeepGP:
    """`model`, trained. Settings: those of `train`."""
    for event in train(model, images, labels, steps=steps, key=key, **settings):
        model = event.state.model
    return model


def _initial(model: DeepGP) -> State:
    # A step gives the memory of the state it takes to the one it makes, so the caller's model must not share it.
    model = jax.tree.map(jnp.copy, model)
    return State(model, _ADAM.init(eqx.filter(model, trainable(model))), jnp.zeros((), int), jnp.zeros((), int))


@functools.partial(jax.jit, static_argnames="num")
def _shuffle(key: PRNGKeyArray, num: int) -> Int[Array, " num"]:
    return jax.random.permutation(key, num)


@functools.partial(jax.jit, static_argnames=("batch_size", "num_samples"), donate_argnames=("state", "sums"))
def _step(
    state: State,
    sums: Float[Array, " 2"],
    images: Shaped[Array, "N H W C"],
    labels: Shaped[Array, "N ..."],
    order: Int[Array, " N"],
    learning_rate: Float[Array, ""] | float,
    key: PRNGKeyArray,
    *,
    batch_size: int,
    num_samples: int,
) -> tuple[State, Float[Array, " 2"]]:
    """One step of Adam on the next batch of `order`. `sums` adds up the estimates of the ELBO, and counts them."""
    first = state.step % (len(order) // batch_size) * batch_size
    batch = jax.lax.dynamic_slice_in_dim(order, first, batch_size)
    parameters, constants = eqx.partition(state.model, trainable(state.model))

    def loss(parameters: DeepGP) -> Float[Array, ""]:
        model = eqx.combine(parameters, constants)
        x, step_key = to_pixels(images[batch]), jax.random.fold_in(key, state.step)
        return -elbo(model, x, labels[batch], len(images), key=step_key, num_samples=num_samples)

    value, gradient = jax.value_and_grad(loss)(parameters)
    direction, adam = _ADAM.update(gradient, state.adam)
    moved = jax.tree.map(lambda p, d: p - learning_rate * d, parameters, direction)
    finite = all_finite(value, gradient)
    parameters, adam = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old), (moved, adam), (parameters, state.adam)
    )
    jitter, failures = raised_jitter(state.model.jitter, jnp.where(finite, 0, state.failures + 1))
    model = eqx.tree_at(lambda m: m.jitter, eqx.combine(parameters, constants), jitter)
    seen = jnp.stack([jnp.where(finite, -value, 0), finite.astype(float)])
    return State(model, adam, state.step + 1, failures), sums + seen
