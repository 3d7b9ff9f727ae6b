"""The training loop: a generator of events that prints nothing and writes nothing."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped
from threadpoolctl import ThreadpoolController

from tickgp.gp.batches import Epochs, batch_at, check_at_least_one
from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs
from tickgp.gp.models import DeepGP
from tickgp.gp.natural import natural_step
from tickgp.gp.objective import elbo
from tickgp.gp.params import log_prior, trainable
from tickgp.gp.variational import FullRank
from tickgp.training.failures import all_finite, check_failures, raised_jitter

_ADAM = optax.scale_by_adam()


class State(eqx.Module):
    """All that a step changes: from it, training goes on as if it had never stopped."""

    model: DeepGP
    adam: optax.ScaleByAdamState
    """Adam's moments of what it trains: without those of the last layer's q(u) if natural gradients train that."""
    step: Int[Array, ""]
    failures: Int[Array, ""]
    """Steps in a row that gave no finite gradient and were not applied."""
    sums: Float[Array, " 2"]
    """Sum and number of the estimates of the ELBO since the last report."""


@dataclass(frozen=True)
class Progress:
    """Where training stands. `state` is valid until the next event is asked for: its memory is then used again."""

    state: State
    step: int
    elbo: float
    """Mean of the minibatch estimates since the last report, each for the whole dataset; NaN if no step succeeded."""
    skipped: int
    """Steps of this call since the last report that were not applied, because the gradient was not finite."""
    seconds: float
    """That the steps took since this call began, compilation included; what is done between reports does not count."""


def inverse_decay(learning_rate: float = 0.01, steps: float = 5000.0) -> Callable[[int], float]:
    """The learning rate `learning_rate` / (1 + t / `steps`): the paper's t⁻¹ decay for single layers.

    Paper: decaying learning rate
    """
    return lambda t: learning_rate / (1 + t / steps)


def linear_decay(learning_rate: float, steps: int) -> Callable[[int], float]:
    """The learning rate `learning_rate` (1 − t / `steps`): none is left when training ends after `steps`."""
    return lambda t: learning_rate * max(1 - t / steps, 0.0)


def train(
    start: DeepGP | State,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    steps: int,
    batch_size: int = 128,
    learning_rate: Callable[[int], float] | float | None = None,
    natural_gradients: bool = True,
    hidden_mean_rate: float = 1.0,
    num_samples: int = 1,
    likelihood_samples: int = 16,
    report_every: int = 100,
    quiet_seconds: float = math.inf,
    stop: Callable[[], bool] = lambda: False,
    key: PRNGKeyArray,
) -> Iterator[Progress]:
    """Maximise the ELBO, and say every `report_every` steps and at the end where it stands.

    With it the density of parameters that have a prior is maximised; it is not in the ELBO that is reported.
    start: a model, or the state in which training stopped; it goes on to `steps` in all. The state of an event is valid
    until the next event is asked for. learning_rate: a number, or a function of the step; from 0.03 straight to 0 if
    None. natural_gradients: the last layer's q(u) is trained by natural gradients, with steps of the size of the
    learning rate, at most 1, if its covariance is full and not frozen and the likelihood allows for it; Adam trains the
    rest. A state goes on as it began. hidden_mean_rate: factor on the learning rate of the means of the hidden layers'
    q(u). num_samples: draws of the hidden layers for each step. likelihood_samples: draws of the last layer for each of
    those, which cost next to nothing. quiet_seconds: yield a `Progress` at least this often, also between reports.
    stop: asked after each step whether to end early.
    In an epoch no image is seen twice. A step without a finite gradient is not applied (see `training.failures`).
    """
    state = _begin(start, natural_gradients)
    images = check_inputs(images)
    labels = state.model.likelihood.check(labels, len(images))
    samples = {"num_samples": num_samples, "likelihood_samples": likelihood_samples}
    check_at_least_one(steps=steps, batch_size=batch_size, report_every=report_every, **samples)
    x, y = jnp.asarray(images), jnp.asarray(labels)
    batch_size, rate = min(batch_size, len(x)), _rate(learning_rate, steps)
    key_order, key_step = jax.random.split(key)
    order = Epochs(len(x), batch_size, key_order)
    step = _compiled_step(jax.tree.structure(state), batch_size, hidden_mean_rate, **samples)
    take = lambda i, leaves: step(leaves, x, y, order(i), rate(i), key_step)
    yield from _events(state, take, steps, report_every, quiet_seconds, stop)


def _events(
    state: State,
    take: Callable[[int, list[Array]], list[Array]],
    steps: int,
    report_every: int,
    quiet_seconds: float,
    stop: Callable[[], bool],
) -> Iterator[Progress]:
    """Steps from `state` on, each of which takes its number and the arrays of a state to those of the next."""
    (leaves, structure), lapack, wait = jax.tree.flatten(state), _lapack(), _Wait()
    i, seconds, ending = int(state.step), 0.0, False
    since, before = 0, float(state.sums[1])  # steps of this call in the report to come, and those applied before it
    while i < steps and not ending:
        began, reporting = time.monotonic(), False
        with lapack.limit(limits=1, user_api="blas"):
            wait.begin()
            while not reporting:
                leaves = take(i, leaves)
                wait(leaves)
                i, since = i + 1, since + 1
                ending = i == steps or stop()
                reporting = ending or i % report_every == 0 or time.monotonic() - began > quiet_seconds
            state = jax.tree.unflatten(structure, leaves)
            check_failures(state.model, state.failures)
            total, count = (float(a) for a in state.sums)
        skipped = since - round(count - before)
        if i % report_every == 0:
            state = eqx.tree_at(lambda s: s.sums, state, jnp.zeros(2))
            leaves = jax.tree.leaves(state)
            since, before = 0, 0.0
        seconds += time.monotonic() - began
        yield Progress(state, i, total / count if count else float("nan"), skipped, seconds)


class _Wait:
    """Waits for the device after as many steps as it does in a quarter of a second.

    Steps are handed over faster than they are done: without it, whoever says stop would wait for all that are queued.
    """

    def __init__(self) -> None:
        self.at_once = 1

    def begin(self) -> None:
        self.queued, self.began = 0, time.monotonic()

    def __call__(self, leaves: list[Array]) -> None:
        self.queued += 1
        if self.queued < self.at_once:
            return
        jax.block_until_ready(leaves)
        self.at_once = max(1, int(0.25 * self.queued / max(time.monotonic() - self.began, 1e-6)))
        self.begin()


def fit(
    start: DeepGP | State, images: ArrayLike, labels: ArrayLike, *, steps: int, key: PRNGKeyArray, **settings: Any
) -> DeepGP:
    """The trained model. Settings: those of `train`."""
    model = start.model if isinstance(start, State) else start
    for event in train(start, images, labels, steps=steps, key=key, **settings):
        model = event.state.model
    return model


def initial_state(model: DeepGP, *, natural_gradients: bool = True) -> State:
    """Before the first step."""
    model = _copy(model)
    parameters, zero = eqx.filter(model, trainable(model)), lambda: jnp.zeros((), int)
    if natural_gradients and _can_be_natural(model):
        parameters = _without_last_q(parameters)
    return State(model, _ADAM.init(parameters), zero(), zero(), jnp.zeros(2))


def _begin(start: DeepGP | State, natural_gradients: bool) -> State:
    """The state to go on from, which `train` may use up."""
    state = _copy(start) if isinstance(start, State) else initial_state(start, natural_gradients=natural_gradients)
    natural = _last_q(state.adam.mu) is None
    if natural != (natural_gradients and _can_be_natural(state.model)):
        raise ValueError(
            f"the last q(u) of this state was trained {'with' if natural else 'without'} natural gradients, and is now "
            "to be trained otherwise; leave that as it was, or start anew from the state's model"
        )
    return state


def _copy(tree: Any) -> Any:
    """With arrays of its own: a step gives the memory of the state it takes to the next."""
    return jax.tree.map(jnp.copy, tree)


def _rate(learning_rate: Callable[[int], float] | float | None, steps: int) -> Callable[[int], float]:
    if learning_rate is None:
        return linear_decay(0.03, steps)
    return learning_rate if callable(learning_rate) else lambda t: learning_rate


def _lapack() -> ThreadpoolController:
    """By it LAPACK, which XLA calls on a CPU, is held to one thread: its threads and XLA's own wait for each other."""
    import scipy.linalg.cython_lapack  # noqa: F401  jax loads it at the first factorisation, too late to be found

    return ThreadpoolController()


def _hidden_means(model: DeepGP) -> list[Any]:
    return [layer.gp.q.q_mu for layer in model.layers[:-1]]


def _last_q(model: DeepGP) -> Any:
    return model.layers[-1].gp.q


def _without_last_q(model: DeepGP) -> DeepGP:
    return eqx.tree_at(_last_q, model, None)


def _can_be_natural(model: DeepGP) -> bool:
    """Whether natural gradients can train the last layer's q(u): full, not frozen, with a likelihood that allows it."""
    q = _last_q(model)
    unfrozen = isinstance(q, FullRank) and q.q_mu.trainable and q.q_sqrt.trainable
    return unfrozen and model.likelihood.falls_with_variance


@functools.lru_cache(maxsize=32)
def _compiled_step(
    structure: jax.tree_util.PyTreeDef, batch_size: int, hidden_mean_rate: float, **samples: int
) -> Callable[..., list[Array]]:
    """`_step` from the arrays of a state to those of the next. Taking a state apart costs as much as small steps do."""

    def step(leaves: list[Array], *inputs: Any) -> list[Array]:
        state = jax.tree.unflatten(structure, leaves)
        new = _step(state, *inputs, batch_size=batch_size, hidden_mean_rate=hidden_mean_rate, samples=samples)
        return jax.tree.leaves(new)

    return jit(step, donate_argnums=0)


def _step(
    state: State,
    images: Shaped[Array, "N ..."],
    labels: Shaped[Array, "N ..."],
    order: Int[Array, " N"],
    learning_rate: Float[Array, ""] | float,
    key: PRNGKeyArray,
    *,
    batch_size: int,
    hidden_mean_rate: float,
    samples: dict[str, int],
) -> State:
    """One step on the next batch of `order`: Adam's, and of a last q(u) that has no moments a natural one."""
    batch = batch_at(state.step, order, batch_size)
    parameters, constants = eqx.partition(state.model, trainable(state.model))

    def loss(parameters: DeepGP) -> tuple[Float[Array, ""], Float[Array, ""]]:
        model = eqx.combine(parameters, constants)
        step_key = jax.random.fold_in(key, state.step)
        bound = elbo(model, images[batch], labels[batch], len(images), key=step_key, **samples)
        return -(bound + log_prior(model)), bound

    (value, bound), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
    natural = _last_q(state.adam.mu) is None
    for_adam = _without_last_q if natural else lambda tree: tree
    slope = for_adam(gradient)
    direction, adam = _ADAM.update(slope, state.adam)
    means = jax.tree.map(lambda d: hidden_mean_rate * d, _hidden_means(direction))
    direction = eqx.tree_at(_hidden_means, direction, means)
    moved = jax.tree.map(lambda p, d: p - learning_rate * d, for_adam(parameters), direction)
    must_be_finite: list[Any] = [value, jax.tree.map(jnp.square, slope)]  # what Adam squares
    if natural:
        up = jax.tree.map(jnp.negative, _last_q(gradient))
        new_q = natural_step(_last_q(parameters), up, jnp.minimum(learning_rate, 1))
        moved = eqx.tree_at(_last_q, moved, new_q, is_leaf=lambda node: node is None)
        must_be_finite += [up, new_q]
    finite = all_finite(*must_be_finite)
    parameters, adam = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old), (moved, adam), (parameters, state.adam)
    )
    jitter, failures = raised_jitter(state.model.jitter, jnp.where(finite, 0, state.failures + 1))
    model = eqx.tree_at(lambda m: m.jitter, eqx.combine(parameters, constants), jitter)
    seen = jnp.stack([jnp.where(finite, bound, 0), finite.astype(float)])
    return State(model, adam, state.step + 1, failures, state.sums + seen)
