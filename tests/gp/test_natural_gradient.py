"""Natural-gradient steps on q: the optimum in one step where there is a closed form, ascent where there is none."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import problems
import pytest

from tickgp.gp.likelihoods import Bernoulli, Gaussian
from tickgp.gp.natural import natural_step
from tickgp.gp.objective import elbo

pytestmark = pytest.mark.usefixtures("float64")

NOISE, L = 0.3, 2
PRIORS = {"pointwise": problems.pointwise, "tick": problems.convolutional, "mock": problems.mock}
each_prior = pytest.mark.parametrize("prior", PRIORS)


@eqx.filter_jit
def bound_and_gradient(q, model, x, y, key):
    """The ELBO as a function of q alone, and its gradient."""
    bound = lambda q: elbo(eqx.tree_at(lambda m: m.layers[0].gp.q, model, q), x, y, len(x), key=key)
    return eqx.filter_value_and_grad(bound)(q)


step = eqx.filter_jit(natural_step)


def regression(prior, start):
    """A model of two latents with a Gaussian likelihood at a random q, its data, and targets (T,L)."""
    x = problems.images()
    problem = PRIORS[prior](x)
    y = np.random.default_rng(4).normal(size=(len(problem.Kff), L))
    q = problems.full_rank(*problems.random_q(L, seed=start, signs=start % 2 == 1))
    model = problems.single_layer(problem, q, Gaussian(NOISE, len(problem.Kff) // len(x) * L))
    return problem, model, q, jnp.asarray(x), jnp.asarray(y.reshape(len(x), -1)), y


def covariance(q):
    root = np.asarray(q.q_sqrt.value)
    return root @ np.swapaxes(root, 1, 2)


@pytest.mark.parametrize("start", [2, 3])
@each_prior
def test_one_step_of_size_one_lands_on_the_optimum(prior, start, key):
    """From any q, also from one with negative diagonals (odd starts), and for all latents at once."""
    problem, model, q, x, y, targets = regression(prior, start)
    before, gradient = bound_and_gradient(q, model, x, y, key)
    after = step(q, gradient, 1.0)
    q_mu, q_sqrt = problems.optimum(problem, targets, NOISE)
    np.testing.assert_allclose(after.q_mu.value, q_mu, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(covariance(after), q_sqrt @ np.swapaxes(q_sqrt, 1, 2), rtol=1e-7, atol=1e-9)
    value, gradient = bound_and_gradient(after, model, x, y, key)
    np.testing.assert_allclose(gradient.q_mu.raw, 0, atol=1e-7)
    np.testing.assert_allclose(gradient.q_sqrt.raw, 0, atol=1e-7)
    assert value > before


@pytest.mark.parametrize("start", [2, 3])
@each_prior
def test_a_step_of_size_zero_changes_nothing(prior, start, key):
    _, model, q, x, y, _ = regression(prior, start)
    after = step(q, bound_and_gradient(q, model, x, y, key)[1], 0.0)
    np.testing.assert_allclose(after.q_mu.value, q.q_mu.value, rtol=1e-10)
    np.testing.assert_allclose(covariance(after), covariance(q), rtol=1e-10, atol=1e-13)


def test_small_steps_climb_the_bound_of_a_classifier(key):
    """Each step of size 0.3 raises the ELBO, up to where its gradient vanishes."""
    x = problems.images(8)
    q = problems.full_rank(*problems.random_q(1, signs=True))
    model = problems.single_layer(problems.convolutional(x[:1]), q, Bernoulli())
    y = jnp.asarray([0, 1, 1, 0, 1, 0, 0, 1])
    values = []
    for _ in range(40):
        value, gradient = bound_and_gradient(q, model, jnp.asarray(x), y, key)
        values.append(float(value))
        q = step(q, gradient, 0.3)
    assert np.all(np.diff(values) > -1e-12)
    assert values[1] > values[0] + 1e-3
    np.testing.assert_allclose(gradient.q_mu.raw, 0, atol=1e-4)
    np.testing.assert_allclose(gradient.q_sqrt.raw, 0, atol=1e-4)


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_no_gradient_however_wrong_makes_the_covariance_indefinite(size):
    """Where the plain step would, the precision falls at most to half of what it was, and q stays finite."""
    rng = np.random.default_rng(5)
    q = problems.full_rank(*problems.random_q(3, signs=True))
    noise = lambda a: jnp.asarray(100 * rng.normal(size=a.shape))
    gradient = eqx.tree_at(lambda g: (g.q_mu.raw, g.q_sqrt.raw), q, (noise(q.q_mu.raw), noise(q.q_sqrt.raw)))
    after = step(q, gradient, size)
    assert np.isfinite(after.q_mu.value).all()
    before, now = (np.linalg.inv(covariance(p)) for p in (q, after))
    for old, new in zip(before, now, strict=True):
        root = np.linalg.inv(np.linalg.cholesky(old))
        assert np.linalg.eigvalsh(root @ new @ root.T).min() > 0.5 - 1e-6
