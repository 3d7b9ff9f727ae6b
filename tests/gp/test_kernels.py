import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference

from tickgp.gp.kernels import (
    Matern12,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
    expected_crossings,
    squared_distances,
    with_slope,
)

LIBRARY = SimpleNamespace(
    se=SquaredExponential,
    matern12=Matern12,
    matern32=Matern32,
    matern52=Matern52,
    sum=lambda *kernels: Sum(kernels),
    product=lambda *kernels: Product(kernels),
)
LOOPS = SimpleNamespace(
    se=reference.se,
    matern12=reference.matern12,
    matern32=reference.matern32,
    matern52=reference.matern52,
    sum=reference.sum_kernel,
    product=reference.product_kernel,
)
SINGLE = {
    "se": lambda k, v, ell: k.se(v, ell),
    "matern12": lambda k, v, ell: k.matern12(v, ell),
    "matern32": lambda k, v, ell: k.matern32(v, ell),
    "matern52": lambda k, v, ell: k.matern52(v, ell),
}
SMOOTH_COMPOSED = {
    "sum": lambda k, v, ell: k.sum(k.se(v, ell), k.matern32(0.4, 2.0), k.matern52(0.3, 0.9)),
    "product": lambda k, v, ell: k.product(k.matern52(v, ell), k.matern32(0.7, 1.5), k.se(1.1, 0.8)),
    "product of sums": lambda k, v, ell: k.product(
        k.sum(k.se(v, ell), k.matern52(0.5, 1.5)), k.sum(k.matern32(1.2, ell), k.se(0.6, 2.0))
    ),
}
ROUGH_COMPOSED = {
    "rough sum": lambda k, v, ell: k.sum(k.se(v, ell), k.product(k.matern12(0.8, ell), k.matern32(0.7, 3.0)))
}
KERNELS = {**SINGLE, **SMOOTH_COMPOSED, **ROUGH_COMPOSED}
"""The same kernel by the library and by loops: of a namespace, a variance and a lengthscale."""

FEW, MANY = 2, 7
"""Input dimensions: distances from differences, and by expansion."""

every_kernel = pytest.mark.parametrize("name", KERNELS)
single_kernel = pytest.mark.parametrize("name", SINGLE)
both_paths = pytest.mark.parametrize("D", [FEW, MANY])


def points(D):
    """a (4,D) and b (5,D) with duplicates in a, in b and between them."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, D)), rng.normal(size=(5, D))
    a[3], b[1], b[2], b[4] = a[0], a[2], a[0], b[0]
    return a, b


@functools.partial(jax.jit, static_argnames=["name"])
def gram_and_gradients(name, weights, v, ell, a, b):
    """K = k(a, b), and the gradients of Σ_ij weights_ij K_ij to variance, lengthscale and both inputs."""

    def total(v, ell, a, b):
        K = KERNELS[name](LIBRARY, v, ell)(a, b)
        return jnp.sum(weights * K), K

    gradients, K = jax.grad(total, argnums=(0, 1, 2, 3), has_aux=True)(v, ell, a, b)
    return K, gradients


def finite_differences(name, weights, inputs, step=1e-5):
    """The same by central differences of the loops."""
    total = lambda v, ell, a, b: np.sum(weights * reference.gram(KERNELS[name](LOOPS, v, ell), a, b))
    out = []
    for i, value in enumerate(inputs):
        slopes = np.zeros(np.shape(value))
        for place in np.ndindex(np.shape(value)):
            moved = [np.array(value, float), np.array(value, float)]
            moved[0][place] += step
            moved[1][place] -= step
            up, down = (total(*inputs[:i], m, *inputs[i + 1 :]) for m in moved)
            slopes[place] = (up - down) / (2 * step)
        out.append(slopes)
    return out


@pytest.mark.usefixtures("float64")
@single_kernel
@both_paths
def test_gram_with_one_lengthscale_equals_the_loops(name, D):
    a, b = points(D)
    expected = reference.gram(KERNELS[name](LOOPS, 1.7, 1.3), a, b)
    result = KERNELS[name](LIBRARY, 1.7, 1.3)(jnp.asarray(a), jnp.asarray(b))
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.usefixtures("float64")
@every_kernel
def test_diag_is_the_variance_at_each_point(name):
    a, _ = points(FEW)
    expected = np.diag(reference.gram(KERNELS[name](LOOPS, 1.7, 1.3), a, a))
    np.testing.assert_allclose(KERNELS[name](LIBRARY, 1.7, 1.3).diag(jnp.asarray(a)), expected, rtol=1e-12)


@pytest.mark.usefixtures("float64")
def test_operators_add_and_multiply_kernels():
    a, b = points(FEW)
    by_operators = (SquaredExponential(1.5, 0.7) + Matern12(0.3, 2.0)) * Matern32(1.1, 3.0)
    k = reference.product_kernel(
        reference.sum_kernel(reference.se(1.5, 0.7), reference.matern12(0.3, 2.0)), reference.matern32(1.1, 3.0)
    )
    np.testing.assert_allclose(by_operators(jnp.asarray(a), jnp.asarray(b)), reference.gram(k, a, b), rtol=1e-10)


def gradient_cases():
    """Every kernel on both paths."""
    return [(name, D) for D in (FEW, MANY) for name in KERNELS]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "D"), gradient_cases())
def test_gram_and_gradients_equal_the_loops_also_at_duplicates(name, D):
    """With a lengthscale for each dimension; gradients by finite differences."""
    a, b = points(D)
    inputs = [1.7, np.linspace(0.8, 2.0, D), a, b]
    weights = np.random.default_rng(1).normal(size=(len(a), len(b)))
    K, gradients = gram_and_gradients(name, weights, *map(jnp.asarray, inputs))
    np.testing.assert_allclose(K, reference.gram(KERNELS[name](LOOPS, *inputs[:2]), a, b), rtol=1e-7, atol=1e-7)
    for got, expected in zip(gradients, finite_differences(name, weights, inputs), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("float64")
@both_paths
@pytest.mark.parametrize(("kernel", "factor"), [(SquaredExponential, 1), (Matern32, 3), (Matern52, 5 / 3)])
def test_covariance_of_gradients_in_closed_form(kernel, factor, D):
    """cov[∂g(a), ∂g(b)] is factor · variance / lengthscale² at a = b, and the same as by the slopes of c nearby."""
    lengthscales, a = np.linspace(0.5, 2.0, D), jnp.asarray(points(D)[0][0])
    k = kernel(1.3, lengthscales)
    second = jax.jit(jax.jacfwd(jax.grad(lambda a, b: k(a[None], b[None])[0, 0], argnums=1)))
    expected = np.diag(factor * 1.3 / lengthscales**2)
    np.testing.assert_allclose(second(a, a), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(second(a, a + 1e-6), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("kernel", "slope"), [(SquaredExponential, -1 / 2), (Matern12, 0.0), (Matern32, -3 / 2), (Matern52, -5 / 6)]
)
def test_the_slope_of_a_correlation_at_the_origin(kernel, slope):
    """By r². That of Matérn-1/2 is infinite, and 0 is put in its place."""
    value, derivative = with_slope(kernel.correlation, jnp.zeros(3))
    np.testing.assert_allclose(value, 1, rtol=1e-12)
    np.testing.assert_allclose(derivative, slope, rtol=1e-12)


@single_kernel
@both_paths
def test_float32_at_extreme_lengthscales(name, D):
    """Gradients stay finite; distinct points become independent, or alike."""
    a, b = points(D)
    apart = np.array([[not np.array_equal(x, y) for y in b] for x in a])
    inputs = [jnp.asarray(x, jnp.float32) for x in (np.ones(apart.shape), 1.7, 1.0, a, b)]
    for lengthscale, where, limit in [(1e-4, apart, 0.0), (1e4, np.ones_like(apart), 1.7)]:
        inputs[2] = jnp.full(D, lengthscale, jnp.float32)
        K, gradients = gram_and_gradients(name, *inputs)
        assert K.dtype == jnp.float32
        np.testing.assert_allclose(np.asarray(K)[where], limit, rtol=2e-3)
        assert bool(jnp.all((K >= 0) & (K <= 1.7 * (1 + 1e-6))))
        assert all(bool(jnp.all(jnp.isfinite(gradient))) for gradient in gradients)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_float32_expansion_far_from_the_origin(offset):
    """Never negative, and true to rounding of the distances rather than of the squared offset (7e6, so 0.4)."""
    rng = np.random.default_rng(0)
    a, b = (np.float32(offset + rng.normal(size=(n, MANY))) for n in (30, 20))
    b[:10] = a[:10]
    truth = np.sum((a[:, None].astype(float) - b[None].astype(float)) ** 2, axis=-1)
    result = np.asarray(squared_distances(jnp.asarray(a), jnp.asarray(b), jnp.ones(())))
    assert result.dtype == np.float32
    assert result.min() >= 0
    np.testing.assert_allclose(result, truth, rtol=1e-6, atol=1e-5)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("lengthscale", [0.3, 2 / math.pi, 5.0])
def test_zero_crossings_in_closed_form(lengthscale):
    """The paper's (πℓ)⁻¹, and not its 2, for ℓ = 2/π: half a crossing per pixel."""
    factors = {SquaredExponential: 1, Matern32: math.sqrt(3), Matern52: math.sqrt(5 / 3), Matern12: math.inf}
    for kernel, factor in factors.items():
        result = float(expected_crossings(kernel(2.5, lengthscale)))
        assert result == pytest.approx(factor / (math.pi * lengthscale), rel=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("level", [0.0, 0.8, -1.5])
@pytest.mark.parametrize("name", [name for name in [*SINGLE, *SMOOTH_COMPOSED] if name != "matern12"])
def test_level_crossings_equal_rices_formula_by_differences(name, level):
    result = float(expected_crossings(KERNELS[name](LIBRARY, 1.7, 1.3), level))
    expected = reference.level_crossings(KERNELS[name](LOOPS, 1.7, 1.3), level)
    assert result == pytest.approx(expected, rel=1e-3)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("name", "level"), [("se", 0.0), ("matern52", 0.8), ("sum", -1.0)])
def test_level_crossings_equal_those_of_simulated_paths(name, level):
    result = float(expected_crossings(KERNELS[name](LIBRARY, 1.7, 1.3), level))
    mean, error = reference.simulated_level_crossings(KERNELS[name](LOOPS, 1.7, 1.3), level, points=200, paths=400)
    assert error < 0.05 * mean
    assert abs(result - mean) < 3 * error


def test_one_rough_part_makes_crossings_infinite():
    assert math.isinf(expected_crossings(SquaredExponential() + Matern12()))
    assert math.isinf(expected_crossings(SquaredExponential() * Matern12()))


@pytest.mark.usefixtures("float64")
def test_crossings_along_each_dimension():
    lengthscales = np.array([0.5, 1.0, 4.0])
    se, matern = SquaredExponential(2.0, lengthscales), Matern32(0.5, 2.0)
    np.testing.assert_allclose(expected_crossings(se), 1 / (np.pi * lengthscales), rtol=1e-12)
    # −k''(0)/k(0) is averaged by variance in a sum and added up in a product.
    np.testing.assert_allclose(
        expected_crossings(se + matern), np.sqrt((2 / lengthscales**2 + 0.5 * 3 / 4) / 2.5) / np.pi, rtol=1e-12
    )
    np.testing.assert_allclose(
        expected_crossings(se * matern), np.sqrt(1 / lengthscales**2 + 3 / 4) / np.pi, rtol=1e-12
    )
