"""Natural-gradient steps on q: towards the optimum where there is a closed form, ascent where there is none."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import problems
import pytest

from tickgp.gp.likelihoods import Bernoulli, Gaussian, Softmax
from tickgp.gp.natural import natural_step
from tickgp.gp.objective import elbo

pytestmark = pytest.mark.usefixtures("float64")

NOISE, L = 0.3, 2
PRIORS = {"pointwise": problems.pointwise, "tick": problems.convolutional, "mock": problems.mock}
each_prior = pytest.mark.parametrize("prior", PRIORS)


@eqx.filter_jit
def bound_and_gradient(q, model, x, y, key, num_data=None):
    """The ELBO as a function of q alone, and its gradient."""
    bound = lambda q: elbo(eqx.tree_at(lambda m: m.layers[0].gp.q, model, q), x, y, num_data or len(x), key=key)
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
def test_small_steps_mix_natural_parameters(prior, start, key):
    """With a Gaussian likelihood an exact step of size h mixes those of q with those of the optimum, 1 − h to h.

    Ours agrees to first order: with half of h the difference of the covariance falls to a quarter, and the mean, whose
    step is made with the new covariance, is closer still. Also from a q with
    negative diagonals (odd starts), and for all latents at once.
    """
    problem, model, q, x, y, targets = regression(prior, start)
    best_mean, best_root = problems.optimum(problem, targets, NOISE)
    gradient = bound_and_gradient(q, model, x, y, key)[1]

    def distances(h):
        after, precision = step(q, gradient, h), np.linalg.inv(covariance(q))
        best = np.linalg.inv(best_root @ np.swapaxes(best_root, 1, 2))
        exact = np.linalg.inv((1 - h) * precision + h * best)
        natural = (1 - h) * (precision @ q.q_mu.value[..., None]) + h * (best @ best_mean[..., None])
        off = np.abs(covariance(after) - exact).max(), np.abs(after.q_mu.value - (exact @ natural)[..., 0]).max()
        moved = np.abs(covariance(after) - covariance(q)).max(), np.abs(after.q_mu.value - q.q_mu.value).max()
        return np.array(off), np.array(moved)

    (off, moved), (less_off, _) = distances(1e-5), distances(5e-6)
    np.testing.assert_allclose(off[0] / less_off[0], 4, rtol=0.01)
    assert np.all(moved > [20, 1000] * off)


@pytest.mark.parametrize("start", [2, 3])
@each_prior
def test_steps_lead_to_the_optimum_of_a_regression(prior, start, key):
    problem, model, q, x, y, targets = regression(prior, start)
    before = bound_and_gradient(q, model, x, y, key)[0]
    for _ in range(100):
        q = step(q, bound_and_gradient(q, model, x, y, key)[1], 0.3)
    q_mu, q_sqrt = problems.optimum(problem, targets, NOISE)
    np.testing.assert_allclose(q.q_mu.value, q_mu, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(covariance(q), q_sqrt @ np.swapaxes(q_sqrt, 1, 2), rtol=1e-6, atol=1e-8)
    assert bound_and_gradient(q, model, x, y, key)[0] > before


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


@pytest.mark.parametrize("size", [0.1, 0.9])
@pytest.mark.parametrize("likelihood", [Bernoulli(), Softmax(2)])
def test_precision_falls_little_where_the_likelihood_falls_with_the_variance(likelihood, size, key):
    """With few images for many; that of Softmax is estimated from a single draw."""
    x = problems.images(8)
    q = problems.full_rank(*problems.random_q(likelihood.num_outputs, signs=True))
    model = problems.single_layer(problems.convolutional(x[:1]), q, likelihood)
    gradient = bound_and_gradient(q, model, jnp.asarray(x), jnp.asarray([0, 1, 1, 0, 1, 0, 0, 1]), key, 10_000)[1]
    assert relative_precisions(q, step(q, gradient, size)).min() > 1 - size


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_no_gradient_however_wrong_makes_the_covariance_indefinite(size):
    rng = np.random.default_rng(5)
    q = problems.full_rank(*problems.random_q(3, signs=True))
    noise = lambda a: jnp.asarray(100 * rng.normal(size=a.shape))
    gradient = eqx.tree_at(lambda g: (g.q_mu.raw, g.q_sqrt.raw), q, (noise(q.q_mu.raw), noise(q.q_sqrt.raw)))
    after = step(q, gradient, size)
    assert np.isfinite(after.q_mu.value).all()
    assert relative_precisions(q, after).min() > 0
    diagonals = [np.diagonal(p.q_sqrt.value, axis1=1, axis2=2) for p in (q, after)]
    assert (diagonals[1] / diagonals[0]).max() == pytest.approx(2)  # where A is far below what can be


def relative_precisions(before, after):
    """The eigenvalues of the new precision in units of the old one, of all latents."""
    new_roots = np.linalg.inv(np.asarray(after.q_sqrt.value)) @ np.asarray(before.q_sqrt.value)
    return np.linalg.svd(new_roots, compute_uv=False) ** 2
