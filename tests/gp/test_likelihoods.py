"""Likelihoods: E[log p(y | f)] against dense integration, large Monte Carlo and closed forms, and p(y | f) itself."""

from dataclasses import fields

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from scipy.special import ndtr

from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from tickgp.gp.variational import Marginals

MEAN = np.array([[0.3, -1.0, 0.8], [2.0, 0.0, -2.0], [-0.5, 0.4, 0.1]])
VARIANCE = np.array([[1.0, 0.5, 2.0], [0.1, 1.5, 3.0], [4.0, 0.2, 1.0]])
LABELS = np.array([0, 2, 1])


def outputs(mean, variance, mixing=None):
    """q(f) of N inputs with one site, from numpy arrays (N, L) of the latents' moments."""
    mean, variance = jnp.asarray(mean, float), jnp.asarray(variance, float)
    W = None if mixing is None else jnp.asarray(mixing, float)
    F = mean.shape[1] if W is None else len(W)
    return Marginals(mean[:, None], variance[:, None], W, jnp.zeros((len(mean), F)))


@eqx.filter_jit
def expected_log_prob(likelihood, f, labels, key):
    return likelihood.expected_log_prob(f, labels, key=key)


@eqx.filter_jit
def gradients(likelihood, mean, variance, labels, key):
    """Σ_n E[log p(y_n | f_n)] and its gradients to the mean and the variance."""
    total = lambda mean, variance: jnp.sum(likelihood.expected_log_prob(outputs(mean, variance), labels, key=key))
    return jax.value_and_grad(total, argnums=(0, 1))(mean, variance)


def softmax_estimates(f, labels, num_samples, num_keys=4000):
    """One Monte Carlo estimate for each of many keys: (num_keys, N)."""
    estimate = lambda key: Softmax(f.mean.shape[1]).expected_log_prob(
        f, jnp.asarray(labels), key=key, num_samples=num_samples
    )
    return np.asarray(jax.jit(jax.vmap(estimate))(jax.random.split(jax.random.key(1), num_keys)))


@pytest.mark.parametrize("num_samples", [1, 5])
def test_softmax_estimate_is_unbiased(num_samples):
    estimates = softmax_estimates(outputs(MEAN, VARIANCE), LABELS, num_samples)
    for n in range(3):
        expected, error = reference.softmax_expected_log_prob(MEAN[n], VARIANCE[n], LABELS[n], S=20_000)
        error = np.hypot(error, estimates[:, n].std() / np.sqrt(len(estimates)))
        assert abs(estimates[:, n].mean() - expected) < 4 * error


def test_softmax_variance_falls_as_one_over_the_samples():
    one, many = (softmax_estimates(outputs(MEAN, VARIANCE), LABELS, S).var(axis=0) for S in (1, 16))
    np.testing.assert_allclose(one / many, 16, rtol=0.2)


def test_softmax_without_variance_is_the_log_probability(float64, key):
    value = expected_log_prob(Softmax(3), outputs(MEAN, 0 * MEAN), jnp.asarray(LABELS), key)
    expected = [reference.softmax_log_prob(f, y) for f, y in zip(MEAN, LABELS, strict=True)]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("mixing", [None, [[1.0, 0.5, 0.0], [-0.8, 0.3, 2.0]]])
def test_the_derivative_of_softmax_by_the_variance_is_half_the_second_by_the_latent(float64, key, mixing):
    """At the same draw; two sites, three latents each, and outputs that have an offset."""
    mean, root = jax.random.normal(key, (2, 4, 2, 3))
    W = None if mixing is None else jnp.asarray(mixing)
    labels, offset = jnp.asarray([0, 3, 2, 1]), jnp.asarray(np.arange(4.0)[:, None] / 4)
    estimate = lambda v: jnp.sum(Softmax(3).expected_log_prob(Marginals(mean, v, W, offset), labels, key=key))

    def log_prob(g):
        f = Marginals(g, jnp.zeros_like(g), W, offset).mean
        return jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(f), labels[:, None], axis=1))

    variance = root**2
    noise = jax.random.normal(jax.random.split(key, 1)[0], mean.shape)
    at = mean + jnp.sqrt(variance) * noise
    second = jnp.diagonal(jax.hessian(log_prob)(at).reshape(at.size, at.size)).reshape(at.shape)
    np.testing.assert_allclose(jax.grad(estimate)(variance), second / 2, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("mixing", [None, [[1.0, 0.5], [-0.8, 0.3]]])
def test_softmax_gradients_are_those_of_the_integral(float64, mixing):
    """With two classes log p is log σ of the difference of the outputs, a Gaussian; a label of each class."""
    mean, variance, labels = jnp.asarray(MEAN[:2, :2]), jnp.asarray(VARIANCE[:2, :2]), jnp.asarray([0, 1])
    W = jnp.eye(2) if mixing is None else jnp.asarray(mixing)
    grid = jnp.linspace(-8, 8, 2001)
    weights = jnp.exp(-(grid**2) / 2) / jnp.sum(jnp.exp(-(grid**2) / 2))

    def integral(mean, variance, W):
        w = (W[1] - W[0]) * jnp.where(labels == 1, 1, -1)[:, None]
        d = jnp.sum(w * mean, axis=1)[:, None] + jnp.sqrt(jnp.sum(w**2 * variance, axis=1))[:, None] * grid
        return jnp.sum(jax.nn.log_sigmoid(d) @ weights)

    def estimate(mean, variance, W, key):
        f = outputs(mean, variance, None if mixing is None else W)
        return jnp.sum(Softmax(2).expected_log_prob(f, labels, key=key))

    expected = jax.grad(integral, argnums=(0, 1, 2))(mean, variance, W)
    one = jax.grad(estimate, argnums=(0, 1, 2))
    draws = jax.jit(jax.vmap(lambda key: one(mean, variance, W, key)))(jax.random.split(jax.random.key(3), 20_000))
    for wanted, found in list(zip(expected, draws, strict=True))[: 2 if mixing is None else 3]:
        np.testing.assert_array_less(np.abs(found.mean(axis=0) - wanted), 4 * found.std(axis=0) / np.sqrt(len(found)))
    assert draws[1].max() < 0  # not only on average: natural gradients need it


def test_mixed_outputs_are_sampled_with_their_covariance():
    W, variance = np.array([[1.0, 0.5], [-0.8, 0.3], [0.0, 1.2]]), np.array([[1.5, 0.4]])
    f = outputs([[0.2, -0.7]], variance, W)
    draws = jax.vmap(lambda key: f.sample(key=key)[0])(jax.random.split(jax.random.key(2), 40_000))
    covariance = W @ np.diag(variance[0]) @ W.T
    np.testing.assert_allclose(np.mean(draws, axis=0), W @ [0.2, -0.7], atol=4 * np.sqrt(covariance.max() / 40_000))
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05)
    np.testing.assert_allclose(f.variance[0], np.diag(covariance), rtol=1e-6)


def test_softmax_of_outputs_that_move_together_has_no_uncertainty(key):
    """f = (g, g) ties for every g, so log p = −log 2 exactly; independent outputs of that variance would give less."""
    f = outputs([[0.7]], [[9.0]], [[1.0], [1.0]])
    value = Softmax(2).expected_log_prob(f, jnp.asarray([1]), key=key, num_samples=3)
    np.testing.assert_allclose(value, -np.log(2), rtol=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1])
def test_robustmax_is_its_integral(float64, key, epsilon):
    f = outputs(MEAN, 0.5 + VARIANCE)
    value = expected_log_prob(RobustMax(3, epsilon), f, jnp.asarray(LABELS), key)
    rows = zip(MEAN, 0.5 + VARIANCE, LABELS, strict=True)
    expected = [reference.robustmax_expected_log_prob(*row, epsilon) for row in rows]
    np.testing.assert_allclose(value, expected, rtol=2e-4)


def test_robustmax_is_near_its_integral_when_variances_differ_much(float64):
    """The integrand is then nearly a step, which 30 nodes resolve to a few per cent."""
    mean, variance = np.array([0.3, 0.0]), np.array([4.0, 0.01])
    p = RobustMax(2).probability_largest(jnp.asarray(mean[None]), jnp.asarray(variance[None]), jnp.asarray([0]))
    np.testing.assert_allclose(p[0], reference.probability_largest(mean, variance, 0), atol=0.07)


def test_robustmax_probabilities_of_being_largest_sum_to_one(float64):
    mean, variance = jnp.asarray(MEAN), jnp.asarray(0.5 + VARIANCE)
    largest = jax.vmap(lambda y: RobustMax(3).probability_largest(mean, variance, jnp.full(3, y)))
    np.testing.assert_allclose(jax.jit(largest)(jnp.arange(3)).sum(axis=0), 1, atol=1e-3)


@pytest.mark.parametrize(("shift", "expected"), [(50.0, np.log(1 - 1e-3)), (-50.0, np.log(1e-3 / 2))])
def test_robustmax_far_from_the_others(key, shift, expected):
    """A class that surely is, or surely is not, the largest; and gradients that stay finite there."""
    mean = MEAN + shift * np.eye(3)[LABELS]
    value, slopes = gradients(RobustMax(3), jnp.asarray(mean), jnp.asarray(VARIANCE), jnp.asarray(LABELS), key)
    np.testing.assert_allclose(value, 3 * expected, atol=1e-5)
    assert all(jnp.isfinite(slope).all() for slope in slopes)


def test_robustmax_refuses_mixed_outputs(key):
    with pytest.raises(ValueError, match=r"needs independent outputs.*use Softmax"):
        RobustMax(2).expected_log_prob(outputs([[0.0]], [[1.0]], [[1.0], [1.0]]), jnp.asarray([0]), key=key)


BERNOULLI_ERRORS = {1e-4: 1e-9, 1.0: 1e-8, 5.0: 1e-5, 25.0: 1.1e-3, 100.0: 0.025, 400.0: 0.2}
"""Of its expectation, by variance."""


@pytest.mark.parametrize("label", [0, 1])
def test_bernoulli_is_its_integral(float64, key, label):
    """30 nodes are exact to rounding up to a variance of 1, and lose digits as the probit's bend gets narrow in f."""
    rows = [(m, v) for m in (-30.0, -2.0, -0.5, 0.0, 2.0, 30.0) for v in BERNOULLI_ERRORS]
    mean, variance = np.array(rows).T[:, :, None]
    value = expected_log_prob(Bernoulli(), outputs(mean, variance), jnp.full(len(rows), label), key)
    expected = [reference.bernoulli_expected_log_prob(*row, label) for row in rows]
    tolerance = np.array([BERNOULLI_ERRORS[v] for _, v in rows])
    assert (np.abs(value - np.array(expected)) < tolerance).all()


def test_bernoulli_is_finite_in_float32_at_extreme_means(key):
    mean, labels = jnp.asarray([[30.0], [-30.0], [30.0], [-30.0]]), jnp.asarray([1, 1, 0, 0])
    value, slopes = gradients(Bernoulli(), mean, jnp.full((4, 1), 9.0), labels, key)
    # Two surely right and two surely wrong: E[log Φ(−f)] ≈ −(E[f²]/2 + log(30 √(2π))).
    np.testing.assert_allclose(value, -2 * ((900 + 9) / 2 + np.log(30 * np.sqrt(2 * np.pi))), rtol=1e-3)
    np.testing.assert_allclose(slopes[0][:, 0], [0, 30, -30, 0], atol=0.1)
    np.testing.assert_allclose(slopes[1][:, 0], [0, -0.5, -0.5, 0], atol=0.01)


def test_bernoulli_of_a_mixed_output_uses_its_variance(float64, key):
    f = outputs([[0.4, -0.2]], [[1.0, 0.5]], [[0.7, 0.9]])
    value = expected_log_prob(Bernoulli(), f, jnp.asarray([1]), key)
    mean, variance = 0.7 * 0.4 - 0.9 * 0.2, 0.7**2 + 0.9**2 * 0.5
    np.testing.assert_allclose(value[0], reference.bernoulli_expected_log_prob(mean, variance, 1), rtol=1e-8)


def test_gaussian_closed_form(float64, key):
    y = np.array([[0.1, -2.0, 0.5], [1.0, 1.0, 1.0], [0.0, 3.0, -1.0]])
    value = expected_log_prob(Gaussian(0.3, num_outputs=3), outputs(MEAN, VARIANCE), jnp.asarray(y), key)
    one = lambda n, k: reference.gaussian_expected_log_prob(MEAN[n, k], VARIANCE[n, k], y[n, k], 0.3)
    np.testing.assert_allclose(value, [sum(one(n, k) for k in range(3)) for n in range(3)], rtol=1e-10)


@pytest.mark.parametrize("f", [MEAN, 1e4 * MEAN])
@pytest.mark.parametrize("likelihood", [Softmax(3), RobustMax(3, 0.05)])
def test_probabilities_are_the_formula(float64, f, likelihood):
    log_prob = {
        Softmax: reference.softmax_log_prob,
        RobustMax: lambda f, y: reference.robustmax_log_prob(f, y, epsilon=0.05),
    }[type(likelihood)]
    p = likelihood.probabilities(jnp.asarray(f))
    np.testing.assert_allclose(p, [[np.exp(log_prob(row, y)) for y in range(3)] for row in f], rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


def test_bernoulli_probabilities_are_the_probit(float64):
    f = np.array([[-30.0], [-1.3], [0.0], [2.5], [30.0]])
    p = Bernoulli().probabilities(jnp.asarray(f))
    np.testing.assert_allclose(p, np.stack([ndtr(-f[:, 0]), ndtr(f[:, 0])], axis=1), rtol=1e-10)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "outputs", "classes"), [(Softmax(4), 4, 4), (RobustMax(4), 4, 4), (Bernoulli(), 1, 2)]
)
def test_numbers_of_outputs_and_classes(likelihood, outputs, classes):
    assert (likelihood.num_outputs, likelihood.num_classes) == (outputs, classes)


def test_every_number_of_a_likelihood_has_one_name():
    assert Softmax(num_classes=4) == Softmax(4)
    assert RobustMax(num_classes=4, epsilon=0.1) == RobustMax(4, 0.1)
    assert [field.name for field in fields(Softmax)] == ["num_classes"]
    assert [field.name for field in fields(Gaussian)] == ["variance", "num_outputs"]
    assert (Gaussian().num_outputs, Gaussian(0.1, 3).num_outputs) == (1, 3)
