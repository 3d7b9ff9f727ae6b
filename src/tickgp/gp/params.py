"""Parameters: the arrays of a model that training may change, each constrained by its type.

An array that is not inside a parameter is a constant of the model: training never touches it.
"""

# Without `from __future__ import annotations`: equinox does not see an AbstractVar in a string.
import copy
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

Model = TypeVar("Model")
_LEAST, _MOST = 1e-6, 1e18


class AbstractParameter(eqx.Module):
    """An array that training may change: `raw` is what the optimiser moves, `value` what the equations use."""

    raw: eqx.AbstractVar[Float[Array, "..."]]
    trainable: eqx.AbstractVar[bool]

    @property
    @abstractmethod
    def value(self) -> Float[Array, "..."]:
        """The constrained array."""


@dataclass(frozen=True)
class Normal:
    """A prior: every entry of a parameter on its own ~ N(mean, deviation²)."""

    mean: float = 0.0
    deviation: float = 1.0

    def __post_init__(self) -> None:
        if not self.deviation > 0:
            raise ValueError(f"a deviation of {self.deviation} was given; it must be above 0")

    def log_density(self, value: Float[Array, "..."]) -> Float[Array, ""]:
        """log N(value; mean, deviation²) − log N(mean; mean, deviation²), summed over the entries: at most 0."""
        return -0.5 * jnp.sum(((value - self.mean) / self.deviation) ** 2)


class Real(AbstractParameter):
    """Any real array: value = raw. With a `prior`, training maximises its density too (see `log_prior`)."""

    raw: Float[Array, "..."]
    trainable: bool = eqx.field(static=True)
    prior: Normal | None = eqx.field(static=True)

    def __init__(self, value: ArrayLike, trainable: bool = True, prior: Normal | None = None):
        self.raw = jnp.asarray(value, float)
        self.trainable, self.prior = trainable, prior

    @property
    def value(self) -> Float[Array, "..."]:
        return self.raw


class Positive(AbstractParameter):
    """An array between 1e-6 and 1e18: value = 1e-6 + exp(raw).

    A step of the optimiser changes the value by a share of it, whatever its size: variances and lengthscales that are
    ten times too small are corrected as fast as ones that are ten times too large. The bounds keep squares and inverse
    squares well inside float32; at the upper one the gradient is 0.
    """

    raw: Float[Array, "..."]
    trainable: bool = eqx.field(static=True)

    def __init__(self, value: ArrayLike, trainable: bool = True):
        value = jnp.asarray(value, float)
        if not isinstance(value, jax.core.Tracer) and not bool(jnp.all((value > _LEAST) & (value <= _MOST))):
            raise ValueError(
                f"a positive parameter was given {value}; every entry must be above {_LEAST} and at most {_MOST:g}"
            )
        self.raw = jnp.log(value - _LEAST)
        self.trainable = trainable

    @property
    def value(self) -> Float[Array, "..."]:
        return jnp.minimum(_LEAST + jnp.exp(jnp.minimum(self.raw, math.log(_MOST))), _MOST)


class Triangular(AbstractParameter):
    """A lower-triangular matrix, or a stack of them: value = tril(raw)."""

    raw: Float[Array, "*stack M M"]
    trainable: bool = eqx.field(static=True)

    def __init__(self, value: ArrayLike, trainable: bool = True):
        self.raw = jnp.tril(jnp.asarray(value, float))
        self.trainable = trainable

    @property
    def value(self) -> Float[Array, "*stack M M"]:
        return jnp.tril(self.raw)


def positive(value: ArrayLike | Positive) -> Positive:
    """`value` as a `Positive`, unless it is one already."""
    return value if isinstance(value, Positive) else Positive(value)


def trainable(model: Model) -> PyTree[bool]:
    """A tree like `model` with True at the arrays that training may change: a filter for `eqx.partition`."""

    def mark(node: Any) -> Any:
        on = _is_parameter(node) and node.trainable
        return jax.tree.map(lambda _: on, node)

    return jax.tree.map(mark, model, is_leaf=_is_parameter)


def log_prior(model: PyTree) -> Float[Array, ""]:
    """The log densities of all parameters of `model` that have a prior, each relative to the greatest there is."""
    reals = (node for node in jax.tree.leaves(model, is_leaf=_is_parameter) if isinstance(node, Real))
    densities = (real.prior.log_density(real.value) for real in reals if real.prior is not None)
    return sum(densities, start=jnp.zeros(()))


def freeze(model: Model, where: Callable[[Model], Any]) -> Model:
    """`model` with every parameter below the node (or nodes) `where(model)` left out of training.

    >>> model = freeze(model, lambda m: m.layers[-1].gp.kernel.covariance.response.location.lengthscale)
    """
    return _set_trainable(model, where, False)


def unfreeze(model: Model, where: Callable[[Model], Any]) -> Model:
    """The reverse of `freeze`."""
    return _set_trainable(model, where, True)


def _is_parameter(node: Any) -> bool:
    return isinstance(node, AbstractParameter)


def _set_trainable(model: Model, where: Callable[[Model], Any], on: bool) -> Model:
    def mark(node: Any) -> Any:
        if not _is_parameter(node):
            return node
        marked = copy.copy(node)
        object.__setattr__(marked, "trainable", on)  # no other field of a parameter is known, nor what makes it
        return marked

    def below(node: Any) -> Any:
        return jax.tree.map(mark, node, is_leaf=_is_parameter)

    return eqx.tree_at(where, model, replace_fn=below, is_leaf=_is_parameter)
