"""Kernels on vectors: covariances k(a, b) of a GP with real outputs."""

# Without `from __future__ import annotations`: equinox does not see an AbstractVar in a string.
import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from tickgp.gp.linalg import matmul
from tickgp.gp.params import Positive, positive

Scale = ArrayLike | Positive
"""A positive number, or a vector of them, or the parameter itself."""


Correlation = Callable[[Array], Array]
"""c as a function of r², elementwise."""


class NotStationaryError(TypeError):
    """Of a kernel that is not known to be a function of a − b."""


class AbstractKernel(eqx.Module):
    """A positive-definite function k(a, b) of two vectors."""

    @abstractmethod
    def __call__(self, a: Float[Array, "A D"], b: Float[Array, "B D"]) -> Float[Array, "A B"]:
        """k(a_i, b_j) for all i and j."""

    @abstractmethod
    def diag(self, a: Float[Array, "A D"]) -> Float[Array, " A"]:
        """k(a_i, a_i) for all i."""

    def at_zero(self) -> tuple[Float[Array, ""], Float[Array, "*D"]]:
        """k(0) and −k''(0) along each dimension, of a stationary kernel as a function of a − b."""
        raise NotStationaryError(f"{type(self).__name__} is not known to be stationary: it has no k(0) and k''(0)")

    def __add__(self, other: "AbstractKernel") -> "Sum":
        return Sum((self, other))

    def __mul__(self, other: "AbstractKernel") -> "Product":
        return Product((self, other))


class AbstractStationary(AbstractKernel):
    """k(a, b) = variance · c(r), with r the distance of a and b after division by the lengthscale.

    One lengthscale for all dimensions, or a vector with one for each.
    """

    variance: eqx.AbstractVar[Positive]
    lengthscale: eqx.AbstractVar[Positive]

    @staticmethod
    @abstractmethod
    def correlation(r2: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """c as a function of r², elementwise and without parameters: on a GPU it is compiled into the fused sums.

        Its derivative by r² must be finite at 0. A kernel with further parameters is an `AbstractKernel` of its own.
        """

    def __call__(self, a: Float[Array, "A D"], b: Float[Array, "B D"]) -> Float[Array, "A B"]:
        return self.variance.value * self.correlation(squared_distances(a, b, self.lengthscale.value))

    def diag(self, a: Float[Array, "A D"]) -> Float[Array, " A"]:
        return jnp.broadcast_to(self.variance.value, a.shape[:1])

    def at_zero(self) -> tuple[Float[Array, ""], Float[Array, "*D"]]:
        """As r² is quadratic, −c''(0) is −2 dc/d(r²)."""
        variance, (_, slope) = self.variance.value, with_slope(self.correlation, jnp.zeros_like(self.variance.value))
        return variance, variance * -2 * slope / self.lengthscale.value**2


class SquaredExponential(AbstractStationary):
    """variance · exp(−r²/2)."""

    variance: Positive
    lengthscale: Positive

    def __init__(self, variance: Scale = 1.0, lengthscale: Scale = 1.0):
        self.variance, self.lengthscale = positive(variance), positive(lengthscale)

    @staticmethod
    def correlation(r2: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return jnp.exp(-r2 / 2)


class Matern12(AbstractStationary):
    """variance · exp(−r)."""

    variance: Positive
    lengthscale: Positive

    def __init__(self, variance: Scale = 1.0, lengthscale: Scale = 1.0):
        self.variance, self.lengthscale = positive(variance), positive(lengthscale)

    @staticmethod
    def correlation(r2: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return _of_root(lambda s: jnp.exp(-s), r2, slope_at_zero=0.0)

    def at_zero(self) -> tuple[Float[Array, ""], Float[Array, "*D"]]:
        """Its paths have no derivative: −k''(0) is infinite."""
        return self.variance.value, jnp.full_like(self.lengthscale.value, jnp.inf)


class Matern32(AbstractStationary):
    """variance · (1 + √3 r) exp(−√3 r)."""

    variance: Positive
    lengthscale: Positive

    def __init__(self, variance: Scale = 1.0, lengthscale: Scale = 1.0):
        self.variance, self.lengthscale = positive(variance), positive(lengthscale)

    @staticmethod
    def correlation(r2: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return _of_root(lambda s: (1 + s) * jnp.exp(-s), 3 * r2, slope_at_zero=-1 / 2)


class Matern52(AbstractStationary):
    """variance · (1 + √5 r + 5r²/3) exp(−√5 r)."""

    variance: Positive
    lengthscale: Positive

    def __init__(self, variance: Scale = 1.0, lengthscale: Scale = 1.0):
        self.variance, self.lengthscale = positive(variance), positive(lengthscale)

    @staticmethod
    def correlation(r2: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        return _of_root(lambda s: (1 + s + s**2 / 3) * jnp.exp(-s), 5 * r2, slope_at_zero=-1 / 6)


class Sum(AbstractKernel):
    """k(a, b) = Σ_i k_i(a, b)."""

    terms: tuple[AbstractKernel, ...]

    def __call__(self, a: Float[Array, "A D"], b: Float[Array, "B D"]) -> Float[Array, "A B"]:
        return sum((k(a, b) for k in self.terms[1:]), start=self.terms[0](a, b))

    def diag(self, a: Float[Array, "A D"]) -> Float[Array, " A"]:
        return sum((k.diag(a) for k in self.terms[1:]), start=self.terms[0].diag(a))

    def at_zero(self) -> tuple[Float[Array, ""], Float[Array, "*D"]]:
        values, curvatures = zip(*(k.at_zero() for k in self.terms), strict=True)
        return sum(values[1:], start=values[0]), sum(curvatures[1:], start=curvatures[0])


class Product(AbstractKernel):
    """k(a, b) = Π_i k_i(a, b)."""

    factors: tuple[AbstractKernel, ...]

    def __call__(self, a: Float[Array, "A D"], b: Float[Array, "B D"]) -> Float[Array, "A B"]:
        return math.prod((k(a, b) for k in self.factors[1:]), start=self.factors[0](a, b))

    def diag(self, a: Float[Array, "A D"]) -> Float[Array, " A"]:
        return math.prod((k.diag(a) for k in self.factors[1:]), start=self.factors[0].diag(a))

    def at_zero(self) -> tuple[Float[Array, ""], Float[Array, "*D"]]:
        values, curvatures = zip(*(k.at_zero() for k in self.factors), strict=True)
        value = math.prod(values[1:], start=values[0])
        ratios = [curvature / v for v, curvature in zip(values, curvatures, strict=True)]
        return value, value * sum(ratios[1:], start=ratios[0])


def expected_crossings(kernel: AbstractKernel, level: float = 0.0) -> Float[Array, "*D"]:
    """How often a path of the GP crosses `level`, on average, in a unit interval along each dimension.

    E[N_u] = (1/π) √(−k''(0)/k(0)) exp(−u²/(2 k(0))), both directions counted: twice the upcrossings that the paper's
    formula gives, and what its (πℓ)⁻¹ for the squared exponential counts. Infinite for Matérn-1/2.
    Paper: expected zero crossings
    """
    value, curvature = kernel.at_zero()
    return jnp.sqrt(curvature / value) / jnp.pi * jnp.exp(-(level**2) / (2 * value))


def with_slope(c: Correlation, r2: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """c(r²) and its derivative by r²."""
    return jax.jvp(c, (r2,), (jnp.ones_like(r2),))


def squared_distances(
    a: Float[Array, "A D"], b: Float[Array, "B D"], lengthscale: Float[Array, "*D"]
) -> Float[Array, "A B"]:
    """|(a_i − b_j) / lengthscale|² for all i and j.

    In few dimensions from the differences. In many by |a|² + |b|² − 2ab, one matrix product; both are first moved by
    the mean of a, because the expansion loses digits far from the origin. Its value, not its derivative, is mended
    where rounding makes it negative, and between a point and itself (when b is a) where it must be 0.
    """
    if lengthscale.ndim:
        a, b = (a / lengthscale,) * 2 if a is b else (a / lengthscale, b / lengthscale)
        lengthscale = jnp.ones((), lengthscale.dtype)
    return _distances(a, b) / lengthscale**2


def _distances(a: Float[Array, "A D"], b: Float[Array, "B D"]) -> Float[Array, "A B"]:
    if a.shape[1] <= 3:
        return jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)
    centre = jax.lax.stop_gradient(jnp.mean(a, axis=0))
    left, right = a - centre, b - centre
    expansion = jnp.sum(left**2, axis=1)[:, None] + jnp.sum(right**2, axis=1)[None, :] - 2 * matmul(left, right.T)
    mended = jnp.maximum(expansion, 0)
    if a is b:
        mended = jnp.where(jnp.eye(len(a), dtype=bool), 0, mended)
    return expansion + jax.lax.stop_gradient(mended - expansion)


def _of_root(c: Callable[[Array], Array], s2: Float[Array, "*shape"], slope_at_zero: float) -> Float[Array, "*shape"]:
    """c(√s²), and 1 + slope · s² at coincident points, where the root has no derivative.

    Matérn-1/2 has no finite slope there. With 0 its gradients are right, as those of s² to every input and lengthscale
    are 0 as well.
    """
    apart = s2 > 0
    return jnp.where(apart, c(jnp.sqrt(jnp.where(apart, s2, 1))), 1 + slope_at_zero * s2)
