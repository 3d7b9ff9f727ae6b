"""Likelihoods p(y | f): what a label says about the outputs of the last layer."""

# Without `from __future__ import annotations`: equinox does not see an AbstractVar in a string.
import math
from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from tickgp.gp.images import check_labels, check_targets
from tickgp.gp.linalg import matmul
from tickgp.gp.params import Positive, positive
from tickgp.gp.variational import Marginals

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(30)


class AbstractLikelihood(eqx.Module):
    """p(y | f) for each input on its own."""

    falls_with_variance: ClassVar[bool] = False
    """Whether the derivative of `expected_log_prob` with respect to a latent's variance is never positive, for any
    draw. Only log-concave p(y | f) can have this; for others natural gradients could widen q(u) without bound, so they
    are not used."""

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """F: how many outputs of the last layer it takes."""

    @abstractmethod
    def check(self, y: ArrayLike, num_inputs: int) -> np.ndarray:
        """`y` as an array that this likelihood takes for that many inputs; anything else is refused."""

    @abstractmethod
    def expected_log_prob(
        self, f: Marginals, y: Array, *, key: PRNGKeyArray, num_samples: int = 1
    ) -> Float[Array, " N"]:
        """E_q(f)[log p(y | f)], or an unbiased estimate of it from `num_samples` draws."""


class AbstractClassification(AbstractLikelihood):
    """A likelihood of labels 0 … num_classes − 1."""

    num_classes: eqx.AbstractVar[int]
    """K."""

    def check(self, y: ArrayLike, num_inputs: int) -> np.ndarray:
        return check_labels(y, num_inputs, self.num_classes)

    @abstractmethod
    def probabilities(self, f: Float[Array, "N F"]) -> Float[Array, "N K"]:
        """p(y = k | f) for every class."""


class Softmax(AbstractClassification):
    """p(y | f) = exp(f_y) / Σ_k exp(f_k); its expectation is estimated by Monte Carlo.

    Its derivatives are estimated by ∂E/∂mean = E[∂ log p] and ∂E/∂variance = ½ E[∂² log p] (R. Price, 1958), from the
    same draws. The latter is never positive. The derivative through a draw, mean + √variance ε, can have either sign,
    which natural gradients do not survive (docs/paper.md). Second derivatives of the estimate mean nothing.
    Paper: softmax likelihood
    """

    falls_with_variance = True
    num_classes: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        _check_classes(self.num_classes)

    @property
    def num_outputs(self) -> int:
        return self.num_classes

    def expected_log_prob(
        self, f: Marginals, y: Int[Array, " N"], *, key: PRNGKeyArray, num_samples: int = 1
    ) -> Float[Array, " N"]:
        fixed = eqx.tree_at(lambda g: g.latent_variance, f, jax.lax.stop_gradient(f.latent_variance))
        zero = f.latent_variance - fixed.latent_variance  # only its derivative counts

        def one_sample(key: PRNGKeyArray) -> Float[Array, " N"]:
            log_p = jax.nn.log_softmax(fixed.sample(key=key))
            curvature = jax.lax.stop_gradient(-f.softmax_curvature(jnp.exp(log_p)))
            return jnp.take_along_axis(log_p, y[:, None], axis=1)[:, 0] + jnp.sum(curvature * zero, axis=(1, 2)) / 2

        return jnp.mean(jax.vmap(one_sample)(jax.random.split(key, num_samples)), axis=0)

    def probabilities(self, f: Float[Array, "N F"]) -> Float[Array, "N K"]:
        return jax.nn.softmax(f)


class RobustMax(AbstractClassification):
    """p(y | f) = 1 − ε if f_y is the largest of all, else ε/(K − 1).

    E[log p] = p_y log(1 − ε) + (1 − p_y) log(ε/(K − 1)) with p_y = ∫ N(f_y) Π_{k≠y} Φ((f_y − μ_k)/σ_k) df_y, by
    Gauss-Hermite quadrature. This needs independent outputs, and is exact to a few digits only while their variances
    are of similar size.
    """

    num_classes: int = eqx.field(static=True)
    epsilon: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self) -> None:
        _check_classes(self.num_classes)
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon {self.epsilon} was given; it is a probability between 0 and 1, such as 1e-3")

    @property
    def num_outputs(self) -> int:
        return self.num_classes

    def expected_log_prob(
        self, f: Marginals, y: Int[Array, " N"], *, key: PRNGKeyArray, num_samples: int = 1
    ) -> Float[Array, " N"]:
        if f.mixing is not None:
            raise ValueError("RobustMax needs independent outputs and was given mixed ones; use Softmax, or no mixing")
        p = self.probability_largest(f.mean, f.variance, y)
        return p * math.log1p(-self.epsilon) + (1 - p) * math.log(self.epsilon / (self.num_classes - 1))

    def probabilities(self, f: Float[Array, "N F"]) -> Float[Array, "N K"]:
        largest = jax.nn.one_hot(jnp.argmax(f, axis=1), self.num_classes)
        return largest * (1 - self.epsilon) + (1 - largest) * self.epsilon / (self.num_classes - 1)

    def probability_largest(
        self, mean: Float[Array, "N K"], variance: Float[Array, "N K"], y: Int[Array, " N"]
    ) -> Float[Array, " N"]:
        """P(f_y > f_k for all k ≠ y) under independent Gaussians."""
        own = jax.nn.one_hot(y, self.num_classes, dtype=bool)
        pick = lambda a: jnp.sum(jnp.where(own, a, 0), axis=1)
        f_y = pick(mean)[:, None] + jnp.sqrt(pick(variance))[:, None] * _nodes()
        standardised = (f_y[:, None, :] - mean[:, :, None]) / jnp.sqrt(variance)[:, :, None]
        log_below = jnp.sum(jnp.where(own[:, :, None], 0, log_ndtr(standardised)), axis=1)
        return _gauss_hermite(jnp.exp(log_below))


class Bernoulli(AbstractClassification):
    """Two classes from one output: p(y = 1 | f) = Φ(f), the probit link.

    E[log p] by Gauss-Hermite quadrature. Its error grows with the variance: about 1e-3 nats at 25, 0.02 at 100, 0.2 at
    400.
    """

    falls_with_variance = True
    num_classes: int = eqx.field(static=True, default=2, init=False)

    @property
    def num_outputs(self) -> int:
        return 1

    def expected_log_prob(
        self, f: Marginals, y: Int[Array, " N"], *, key: PRNGKeyArray, num_samples: int = 1
    ) -> Float[Array, " N"]:
        nodes = f.mean + jnp.sqrt(f.variance) * _nodes()
        return _gauss_hermite(log_ndtr(jnp.where(y[:, None] == 1, nodes, -nodes)))

    def probabilities(self, f: Float[Array, "N F"]) -> Float[Array, "N K"]:
        return jnp.concatenate([ndtr(-f), ndtr(f)], axis=1)


class Gaussian(AbstractLikelihood):
    """Regression: p(y | f) = N(y; f, variance), for F real outputs."""

    falls_with_variance = True
    variance: Positive
    num_outputs: int = eqx.field(static=True, default=1)

    def __init__(self, variance: ArrayLike | Positive = 1.0, num_outputs: int = 1):
        self.variance, self.num_outputs = positive(variance), num_outputs

    def check(self, y: ArrayLike, num_inputs: int) -> np.ndarray:
        return check_targets(y, num_inputs, self.num_outputs)

    def expected_log_prob(
        self, f: Marginals, y: Float[Array, "N F"], *, key: PRNGKeyArray, num_samples: int = 1
    ) -> Float[Array, " N"]:
        noise = self.variance.value
        square = (y - f.mean) ** 2 + f.variance
        return jnp.sum(-0.5 * jnp.log(2 * jnp.pi * noise) - 0.5 * square / noise, axis=1)


def _nodes() -> Float[Array, " T"]:
    """Where Gauss-Hermite quadrature looks, for ε ~ N(0, 1)."""
    return jnp.asarray(_NODES, float)


def _gauss_hermite(values: Float[Array, "N T"]) -> Float[Array, " N"]:
    """E[function(ε)], ε ~ N(0, 1), from its values at the nodes."""
    return matmul(values, jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), float))


def _check_classes(num_classes: int) -> None:
    if num_classes < 2:
        raise ValueError(f"a likelihood of {num_classes} classes was asked for; there must be at least 2")
