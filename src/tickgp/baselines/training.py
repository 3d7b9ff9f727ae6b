"""Training of the dropout CNN: a generator of events, as `tickgp.training.loop`, that prints and writes nothing."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

from tickgp.baselines.cnn import CNN, check_rate, dropout_scales
from tickgp.gp.batches import Epochs, batch_at, check_at_least_one
from tickgp.gp.images import check_labels, to_pixels

_ADAM = optax.scale_by_adam()


class CNNState(eqx.Module):
    """All that a step changes: from it, training goes on as if it had never stopped."""

    model: CNN
    adam: optax.OptState
    step: Int[Array, ""]
    sums: Float[Array, " 2"]
    """Sum and number of the losses since the last report."""


@dataclass(frozen=True)
class CNNProgress:
    """Where training stands. `state` is valid until the next event is asked for: its memory is then used again."""

    state: CNNState
    step: int
    loss: float
    """Mean since the last report of the cross-entropy of a minibatch under dropout, in nats per image."""
    seconds: float
    """That the steps took since this call began, compilation included; what is done between reports does not count."""


def train_cnn(
    start: CNN | CNNState,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    steps: int,
    batch_size: int = 128,
    learning_rate: float = 1e-4,
    dropout: float = 0.5,
    report_every: int = 100,
    stop: Callable[[], bool] = lambda: False,
    key: PRNGKeyArray,
) -> Iterator[CNNProgress]:
    """Minimise the cross-entropy by Adam, and say every `report_every` steps and at the end where it stands.

    start: a network, or the state in which training stopped; it goes on to `steps` in all. dropout: the share of units
    dropped, drawn anew for each image and step. stop: asked after each step whether to end early. In an epoch no image
    is seen twice.
    Paper: appendix CNN
    """
    state = jax.tree.map(jnp.copy, start) if isinstance(start, CNNState) else initial_state(start)
    images = state.model.check(images)
    labels = check_labels(labels, len(images), state.model.num_classes)
    check_at_least_one(steps=steps, batch_size=batch_size, report_every=report_every)
    x, y, rates = jnp.asarray(images), jnp.asarray(labels), (learning_rate, check_rate(dropout))
    batch_size = min(batch_size, len(x))
    key_order, key_step = jax.random.split(key)
    order, began = Epochs(len(x), batch_size, key_order), time.monotonic()
    for i in range(int(state.step), steps):
        state = _step(state, x, y, order(i), rates, key_step, batch_size=batch_size)
        ending = i + 1 == steps or stop()
        if ending or (i + 1) % report_every == 0:
            loss = _mean_loss(state)
            if (i + 1) % report_every == 0:
                state = eqx.tree_at(lambda s: s.sums, state, jnp.zeros(2))
            now = time.monotonic()
            yield CNNProgress(state, i + 1, loss, now - began)
            began += time.monotonic() - now
        if ending:
            return


def initial_state(model: CNN) -> CNNState:
    """Before the first step. Its arrays are its own: a step gives the memory of the state it takes to the next."""
    model = jax.tree.map(jnp.copy, model)
    return CNNState(model, _ADAM.init(model), jnp.zeros((), int), jnp.zeros(2))


def cross_entropy(logits: Float[Array, "N K"], labels: Shaped[Array, " N"]) -> Float[Array, ""]:
    """−(1/N) Σ_n log softmax(logits_n) at label n."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def _mean_loss(state: CNNState) -> float:
    total, count = (float(a) for a in state.sums)
    if not math.isfinite(total):
        raise ArithmeticError(f"the loss of the CNN was not finite before step {int(state.step)}; lower learning_rate")
    return total / count


@functools.partial(jax.jit, static_argnames="batch_size", donate_argnames="state")
def _step(
    state: CNNState,
    images: Shaped[Array, "N H W C"],
    labels: Shaped[Array, " N"],
    order: Int[Array, " N"],
    rates: tuple[Float[Array, ""] | float, Float[Array, ""] | float],
    key: PRNGKeyArray,
    *,
    batch_size: int,
) -> CNNState:
    """One step of Adam on the next batch of `order`, with new dropout; `rates` are those of learning and dropout."""
    batch = batch_at(state.step, order, batch_size)
    learning_rate, dropout = rates

    def loss(model: CNN) -> Float[Array, ""]:
        units = model.units(to_pixels(images[batch]))
        scales = dropout_scales(jax.random.fold_in(key, state.step), dropout, units.shape)
        return cross_entropy(model.output(units * scales), labels[batch])

    value, gradient = jax.value_and_grad(loss)(state.model)
    direction, adam = _ADAM.update(gradient, state.adam)
    model = jax.tree.map(lambda p, d: p - learning_rate * d, state.model, direction)
    return CNNState(model, adam, state.step + 1, state.sums + jnp.stack([value, jnp.ones_like(value)]))
