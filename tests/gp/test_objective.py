"""The ELBO: against eq. elbo by loops, as an estimate from minibatches and samples, and of deep models in a limit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import tiny
from scipy.special import log_softmax

from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from tickgp.gp.objective import elbo
from tickgp.gp.params import Positive

pytestmark = pytest.mark.usefixtures("float64")

JITTER = 1e-12


def likelihood(name):
    """Built in the test, so that its parameters are float64."""
    return {"gaussian": lambda: Gaussian(0.5, 2), "bernoulli": Bernoulli, "robustmax": lambda: RobustMax(3)}[name]()


def problem(model_name, model_likelihood, **settings):
    """A model away from its start, images, targets."""
    model = tiny.perturbed(tiny.build(model_name, model_likelihood, jitter=JITTER, **settings))
    return model, tiny.images(), tiny.targets(model_likelihood)


def value(model, x, y, num_data, key, **samples):
    return float(tiny.elbo(model, jnp.asarray(x), jnp.asarray(y), num_data, key=key, **samples))


@eqx.filter_jit
def values(model, x, y, num_data, keys, num_samples=1, likelihood_samples=1):
    """The ELBO for each of many keys."""
    samples = {"num_samples": num_samples, "likelihood_samples": likelihood_samples}
    return jax.vmap(lambda key: elbo(model, x, y, num_data, key=key, **samples))(keys)


def deep_values(model, x, y, key):
    """800 ELBOs of the first image, each from four draws of the hidden layer."""
    return values(model, jnp.asarray(x[:1]), jnp.asarray(y[:1]), 1, jax.random.split(key, 800), num_samples=4)


def close_in_mean(estimates, expected, error=0.0):
    """Is the mean within four standard errors of `expected`, which may have an error of its own?"""
    return abs(np.mean(estimates) - expected) < 4 * np.hypot(np.std(estimates) / np.sqrt(len(estimates)), error)


@pytest.mark.parametrize(
    ("model_name", "name"),
    [("tick", "gaussian"), ("conv", "gaussian"), ("se", "gaussian"), ("tick", "bernoulli"), ("tick", "robustmax")],
)
def test_single_layer_is_the_equation(model_name, name, key):
    model, x, y = problem(model_name, likelihood(name))
    means, variances, kl = tiny.outputs(model.layers[0], x)
    expected = reference.minibatch_elbo(tiny.expectations(model.likelihood, means, variances, y), [kl], num_data=50)
    # Kernel sums are exact to rounding; RobustMax's quadrature is not.
    np.testing.assert_allclose(value(model, x, y, 50, key), expected, rtol=1e-4 if name == "robustmax" else 1e-6)


def test_stride_colour_and_no_weights(key):
    x = tiny.images(shape=(5, 6, 2))
    model = tiny.builders.tick(
        x, Bernoulli(), patch_size=(2, 3), stride=(2, 1), weights=False, num_inducing=5, jitter=JITTER, key=key
    )
    model, y = tiny.perturbed(model), tiny.labels(classes=2)
    means, variances, kl = tiny.outputs(model.layers[0], x)
    expected = reference.elbo(tiny.expectations(model.likelihood, means, variances, y), [kl])
    np.testing.assert_allclose(value(model, x, y, tiny.N, key), expected, rtol=1e-6)


def test_mean_over_the_batches_of_a_partition_is_the_whole(key):
    model, x, y = problem("tick", Bernoulli())
    batches = [value(model, x[i : i + 2], y[i : i + 2], tiny.N, key) for i in (0, 2, 4)]
    assert np.ptp(batches) > 1e-3
    np.testing.assert_allclose(np.mean(batches), value(model, x, y, tiny.N, key), rtol=1e-10)


def test_random_batches_and_keys_are_unbiased(key):
    """Softmax has no closed form: its Monte Carlo over batches and draws against `reference`'s over draws."""
    model, x, y = problem("tick", Softmax(3))
    means, variances, kl = tiny.outputs(model.layers[0], x)
    rows = [reference.softmax_expected_log_prob(means[n], variances[n], y[n], S=20_000) for n in range(tiny.N)]
    expected, error = reference.elbo([mean for mean, _ in rows], [kl]), np.linalg.norm([e for _, e in rows])

    def one_batch(key):
        key_batch, key = jax.random.split(key)
        pick = jax.random.choice(key_batch, tiny.N, (2,), replace=False)
        return elbo(model, jnp.asarray(x)[pick], jnp.asarray(y)[pick], tiny.N, key=key)

    assert close_in_mean(jax.jit(jax.vmap(one_batch))(jax.random.split(key, 4000)), expected, error)


@pytest.mark.parametrize("samples", [{"num_samples": 8}, {"likelihood_samples": 8}])
def test_samples_keep_the_mean_and_divide_the_variance(samples, key):
    """Against the mean and variance that single draws by numpy have."""
    model, x, y = problem("se", Softmax(3))
    mean, variance, kl = tiny.outputs(model.layers[0], x)
    f = np.random.default_rng(2).normal(mean, np.sqrt(variance), (20_000, *mean.shape))
    draws = log_softmax(f, axis=2)[:, np.arange(tiny.N), y].sum(axis=1) - kl
    estimates = np.asarray(
        values(model, jnp.asarray(x), jnp.asarray(y), tiny.N, jax.random.split(key, 2000), **samples)
    )
    assert close_in_mean(estimates, draws.mean(), draws.std() / np.sqrt(len(draws)))
    np.testing.assert_allclose(draws.var() / estimates.var(), 8, rtol=0.25)


@pytest.mark.parametrize(
    "sampling", [pytest.param(name, marks=[pytest.mark.slow] * (name != "marginal")) for name in tiny.SAMPLINGS]
)
def test_deep_is_unbiased_and_samples_divide_its_variance(sampling, key):
    """Against the closed form of the last layer, averaged over draws of the hidden one that numpy made."""
    model, x, y = problem("deep_tick", likelihood("gaussian"), sampling=sampling)
    images = tiny.hidden_draws(model.layers[0], x[0], sampling, 600)
    rows = [tiny.outputs(model.layers[1], image[None]) for image in images]
    expectations = np.array([tiny.expectations(model.likelihood, m, v, y[:1])[0] for m, v, _ in rows])
    expected = expectations.mean() - rows[0][2] - tiny.whitened_kl(model.layers[0].gp.q)
    estimates = np.asarray(deep_values(model, x, y, key))
    assert close_in_mean(estimates, expected, expectations.std() / np.sqrt(600))
    np.testing.assert_allclose(estimates.std(), expectations.std() / np.sqrt(4), rtol=0.2)


def deterministic(model):
    """`model` with a hidden layer that puts out its mean function, but for about 1e-6."""
    hidden = lambda m: m.layers[0].gp
    kernel = lambda m: hidden(m).kernel.covariance.response.patch
    # The lengthscale is so long that u determines the response to every patch.
    model = eqx.tree_at(lambda m: (kernel(m).variance, kernel(m).lengthscale), model, (Positive(1.1e-6), Positive(1e3)))
    q_mu, q_sqrt = np.full((2, tiny.M), 1e-4), np.tile(1e-3 * np.eye(tiny.M), (2, 1, 1))
    where = lambda m: (hidden(m).q.q_mu.raw, hidden(m).q.q_sqrt.raw)
    return eqx.tree_at(where, model, (jnp.asarray(q_mu), jnp.asarray(q_sqrt)))


@pytest.mark.parametrize("sampling", tiny.SAMPLINGS)
def test_deep_with_deterministic_hidden_layers_is_shallow_on_the_centres(sampling, key):
    """A hidden layer without variance hands the centre pixels on, so only its KL is left of it."""
    model, x, y = problem("deep_tick", likelihood("gaussian"), sampling=sampling)
    model = deterministic(model)
    means, variances, kl = tiny.outputs(model.layers[-1], reference.identity_conv(x[:1], 3, 3, 2))
    kls = [kl, tiny.whitened_kl(model.layers[0].gp.q)]
    expected = reference.elbo(tiny.expectations(model.likelihood, means, variances, y[:1]), kls)
    estimates = deep_values(model, x, y, key)
    np.testing.assert_allclose(estimates, expected, rtol=1e-5)


def test_kl_is_the_sum_over_layers():
    model = tiny.perturbed(tiny.build("deep_conv", Bernoulli(), depth=2))
    kls = [tiny.whitened_kl(layer.gp.q) for layer in model.layers]
    assert min(kls) > 0
    np.testing.assert_allclose(model.kl(), sum(kls), rtol=1e-10)


def test_layers_that_do_not_fit_the_likelihood_are_refused():
    model = tiny.build("conv", Bernoulli())
    with pytest.raises(ValueError, match=r"the last layer puts out \(1,\) and Softmax takes \(3,\)"):
        type(model)(model.layers, Softmax(3))
