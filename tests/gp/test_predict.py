"""Predictions: against numpy draws and closed forms, their entropies, and that an image's neighbours do not matter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import tiny
from scipy.special import ndtr, softmax

from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from tickgp.gp.params import Positive
from tickgp.gp.predict import Prediction, predict, predict_moments

MANY = 20_000
DRAWS = {"num_samples": 1250, "likelihood_samples": 16}
"""MANY in all."""
DEEP = {"num_samples": 1000, "batch_size": 4}


@pytest.fixture(scope="module", params=("tick", *tiny.SAMPLINGS))
def model(request):
    """A single layer, and a deep one for each way to draw hidden layers."""
    return tiny.perturbed(tiny.build("tick", Bernoulli())) if request.param == "tick" else deep(request.param)


def deep(sampling):
    """A deep model whose prediction moves with what the hidden layer draws."""
    return set_last(tiny.perturbed(tiny.build("deep_tick", Bernoulli(), sampling=sampling)), q_mu=1.0, q_sqrt=0.5)


def probit_entropy(mean, variance):
    """E[H[Φ(f)]] under f ~ N(mean, variance), by dense integration."""
    return reference.gaussian_expectation(lambda f: reference.entropy([ndtr(f), ndtr(-f)]), mean, variance, points=2001)


def probit_variance(mean, variance):
    """Var[Φ(f)] under f ~ N(mean, variance), by dense integration; the mean over images."""
    rows = list(zip(mean, variance, strict=True))
    first, second = (
        np.array([reference.gaussian_expectation(lambda f, n=n: ndtr(f) ** n, *row, points=2001) for row in rows])
        for n in (1, 2)
    )
    return np.mean(second - first**2)


def set_last(model, *, q_mu=0.0, q_sqrt=1.0, variance=5.0):
    """`model` with other values in its last layer; q_sqrt is a factor on the old."""
    gp = lambda m: m.layers[-1].gp
    parts = lambda m: (gp(m).q.q_mu.raw, gp(m).q.q_sqrt.raw, gp(m).kernel.covariance.response.patch.variance)
    old_mu, old_sqrt, _ = parts(model)
    new_mu = jnp.broadcast_to(jnp.asarray(q_mu, old_mu.dtype), old_mu.shape)
    return eqx.tree_at(parts, model, (new_mu, q_sqrt * old_sqrt, Positive(variance)))


def test_softmax_is_the_mean_over_draws(float64, key):
    model, x = tiny.perturbed(tiny.build("tick", Softmax(3), jitter=1e-12)), tiny.images(4)
    prediction = predict(model, x, key=key, **DRAWS, batch_size=4)
    mean, variance, _ = tiny.outputs(model.layers[0], x)
    draws = np.random.default_rng(0).normal(mean, np.sqrt(variance), (5000, *mean.shape))
    p = softmax(draws, axis=-1)
    errors = p.std(axis=0) * np.sqrt(1 / MANY + 1 / 5000)
    assert (np.abs(prediction.probabilities - p.mean(axis=0)) < 4.5 * errors).all()
    np.testing.assert_allclose(prediction.expected_entropy, reference.expected_entropy(p), atol=0.02)
    np.testing.assert_allclose(prediction.mutual_information, reference.mutual_information(p), atol=0.02)
    np.testing.assert_allclose(prediction.variance, variance.mean(axis=1), rtol=1e-8)


def test_bernoulli_is_the_closed_form(float64, key):
    """E[Φ(f)] = Φ(mean / √(1 + variance))."""
    model, x = tiny.perturbed(tiny.build("se", Bernoulli(), jitter=1e-12)), tiny.images(4)
    prediction = predict(model, x, key=key, **DRAWS, batch_size=4)
    mean, variance, _ = (a[:, 0] if np.ndim(a) else a for a in tiny.outputs(model.layers[0], x))
    expected = ndtr(mean / np.sqrt(1 + variance))
    np.testing.assert_allclose(prediction.probabilities[:, 1], expected, atol=4 * 0.5 / np.sqrt(MANY))
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(prediction.probabilities.sum(axis=1), 1, rtol=1e-10)
    entropies = [probit_entropy(*row) for row in zip(mean, variance, strict=True)]
    np.testing.assert_allclose(prediction.expected_entropy, entropies, atol=4 * 0.35 / np.sqrt(MANY))


@pytest.mark.parametrize("draws", [(100, 1), (25, 4), (100, 16)])
def test_the_error_is_that_of_as_many_draws_of_the_last_layer(draws, float64):
    """With one layer: √(Var[Φ(f)] / S), S the product of both numbers."""
    model, x = tiny.perturbed(tiny.build("se", Bernoulli(), jitter=1e-12)), tiny.images(4)
    mean, variance, _ = (a[:, 0] if np.ndim(a) else a for a in tiny.outputs(model.layers[0], x))
    numbers = dict(zip(("num_samples", "likelihood_samples"), draws, strict=True))
    several = [predict(model, x, key=jax.random.key(i), **numbers, batch_size=4).probabilities for i in range(200)]
    errors = np.array(several)[:, :, 1] - ndtr(mean / np.sqrt(1 + variance))
    expected = np.sqrt(probit_variance(mean, variance) / np.prod(draws))
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(
    "sampling", [pytest.param(name, marks=[pytest.mark.slow] * (name != "marginal")) for name in tiny.SAMPLINGS]
)
def test_deep_is_the_mean_over_hidden_draws(sampling, key):
    """With common noise each image on its own still has the distribution that numpy's independent draws have."""
    model, x = deep(sampling), tiny.images(8)
    prediction = predict(model, x[:1], key=key, **DEEP)
    hidden = tiny.hidden_draws(model.layers[0], x[0], sampling, 500)
    rows = [tiny.outputs(model.layers[1], image[None]) for image in hidden]
    mean, variance = (np.array([row[i][0, 0] for row in rows]) for i in (0, 1))
    p, spread = ndtr(mean / np.sqrt(1 + variance)), ndtr(np.random.default_rng(6).normal(mean, np.sqrt(variance))).std()
    assert p.std() > 0.04  # the hidden layer matters
    np.testing.assert_allclose(
        prediction.probabilities[0, 1], p.mean(), atol=4 * np.hypot(p.std() / np.sqrt(500), spread / np.sqrt(1000))
    )
    np.testing.assert_allclose(
        prediction.variance[0], variance.mean(), atol=4 * variance.std() * np.sqrt(1 / 500 + 1 / 1000)
    )


def test_entropies_of_a_prediction():
    """The identities, from probabilities by hand: (S, N, K) with S = 2."""
    p = np.array([[[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]], [[0.1, 0.3, 0.6], [1.0, 0.0, 0.0]]])
    prediction = Prediction(jnp.asarray(p.mean(axis=0)), jnp.asarray(reference.expected_entropy(p)), jnp.zeros(2))
    np.testing.assert_allclose(prediction.entropy, reference.predictive_entropy(p), rtol=1e-6)
    np.testing.assert_allclose(prediction.mutual_information, reference.mutual_information(p), rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(prediction.labels, [0, 0])


def test_robustmax_expects_the_same_entropy_of_every_image(float64, key):
    """Each draw says 1 − ε for one class and ε/2 for the others: E H[p] is a constant, and the sums are 1."""
    prediction = predict(tiny.build("conv", RobustMax(3, 0.1)), tiny.images(4), key=key, num_samples=50, batch_size=4)
    np.testing.assert_allclose(prediction.expected_entropy, reference.entropy([0.9, 0.05, 0.05]), rtol=1e-10)
    np.testing.assert_allclose(prediction.probabilities.sum(axis=1), 1, rtol=1e-10)
    counts = (np.asarray(prediction.probabilities) - 0.05) / 0.85 * 50 * 64
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-8)


def test_without_posterior_variance_there_is_no_mutual_information(float64, key):
    model = tiny.build("tick", Softmax(3), jitter=1e-12)
    model = set_last(model, variance=1.1e-6, q_mu=[[2000.0], [-1000.0], [0.0]], q_sqrt=1e-3)
    x = tiny.images(4)
    prediction = predict(model, x, key=key, num_samples=50, batch_size=4)
    mean, _, _ = tiny.outputs(model.layers[0], x)
    assert np.abs(mean).max() > 0.3
    np.testing.assert_allclose(prediction.probabilities, softmax(mean, axis=1), atol=1e-3)
    assert prediction.mutual_information.max() < 1e-5


def test_a_prior_of_huge_variance_knows_nothing(float64, key):
    """Every draw is sure of a class, each class as often: entropy log K, all of it mutual information."""
    model = set_last(tiny.build("tick", Softmax(3)), variance=1e8)
    prediction = predict(model, tiny.images(4), key=key, **DRAWS, batch_size=4)
    np.testing.assert_allclose(prediction.probabilities, 1 / 3, atol=4 * np.sqrt(2 / 9 / MANY))
    np.testing.assert_allclose(prediction.mutual_information, np.log(3), atol=0.01)


def test_neighbours_do_not_matter(model, key):
    x = tiny.images(8)
    whole = predict(model, x, key=key, **DEEP)
    order = np.array([5, 2, 7, 0, 1, 6, 4, 3])
    for pick in (np.arange(3), np.array([6]), order):
        part = predict(model, x[pick], key=key, **DEEP)
        np.testing.assert_allclose(part.probabilities, whole.probabilities[pick], atol=2e-7)
        np.testing.assert_allclose(part.variance, whole.variance[pick], rtol=1e-5)
        np.testing.assert_allclose(part.expected_entropy, whole.expected_entropy[pick], atol=2e-7)
    other = predict(model, x, key=key, **{**DEEP, "batch_size": 3})
    np.testing.assert_allclose(other.probabilities, whole.probabilities, atol=2e-7)


def test_bytes_are_pixels_of_255(key):
    model = tiny.perturbed(tiny.build("tick", Bernoulli()))
    x = np.random.default_rng(4).integers(0, 256, (4, *tiny.SHAPE), dtype=np.uint8)
    as_bytes, as_pixels = (predict(model, images, key=key, **DEEP) for images in (x, x / 255))
    np.testing.assert_allclose(as_bytes.probabilities, as_pixels.probabilities, atol=1e-6)


def test_keys_matter_and_repeat(model, key):
    x = tiny.images(4)
    first, again, other = (predict(model, x, key=k, **DEEP).probabilities for k in (key, key, jax.random.key(1)))
    np.testing.assert_array_equal(first, again)
    assert jnp.abs(first - other).max() > 1e-5


def test_regression_is_refused(key):
    with pytest.raises(
        TypeError, match=r"likelihood of classes, and Gaussian has none; .* use tickgp\.predict_moments\("
    ):
        predict(tiny.build("se", Gaussian()), tiny.images(2), key=key)


@pytest.mark.parametrize("name", ["se", "tick"])
def test_moments_of_a_layer_are_the_closed_form(name, float64, key):
    """Eq. qf, whatever the number of samples; in two batches, of which the last is not full."""
    model, x = tiny.perturbed(tiny.build(name, Gaussian(0.1, 2), jitter=1e-12)), tiny.images(5)
    mean, variance, _ = tiny.outputs(model.layers[0], x)
    for num_samples in (1, 30):
        found = predict_moments(model, x, key=key, num_samples=num_samples, batch_size=3)
        np.testing.assert_allclose(found[0], mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found[1], variance, rtol=1e-8)


@pytest.mark.parametrize("sampling", ["marginal", pytest.param("full", marks=pytest.mark.slow)])
def test_deep_moments_are_those_of_draws_of_f(sampling, key):
    """Plain Monte Carlo by numpy: the hidden layer, then f given it."""
    model = set_last(tiny.perturbed(tiny.build("deep_tick", Gaussian(), sampling=sampling)), q_mu=4.0, q_sqrt=0.3)
    x, S = tiny.images(1), 600
    mean, variance = (float(a[0, 0]) for a in predict_moments(model, x, key=key, **DEEP))
    rng, draws, means = np.random.default_rng(6), [], []
    for hidden in tiny.hidden_draws(model.layers[0], x[0], sampling, S):
        m, v, _ = tiny.outputs(model.layers[1], hidden[None])
        means.append(m[0, 0])
        draws.append(rng.normal(m[0, 0], np.sqrt(v[0, 0]), 20))
    draws = np.array(draws)
    between = np.var(means)
    assert between > 0.5 * variance  # else the test would not see it
    errors = np.sqrt(between * (1 / S + 1 / DEEP["num_samples"]))
    np.testing.assert_allclose(mean, np.mean(means), atol=4 * errors)
    np.testing.assert_allclose(variance, draws.var(), rtol=4 * np.sqrt(2 / S + 2 / DEEP["num_samples"]))


def test_moments_do_not_depend_on_neighbours(key):
    model, x = tiny.perturbed(tiny.build("deep_tick", Gaussian(0.1, 2), sampling="correlated")), tiny.images(5)
    settings = {"num_samples": 12, "batch_size": 3, "key": key}
    whole, part = (predict_moments(model, x[pick], **settings) for pick in (np.arange(5), [4, 1]))
    for a, b in zip(part, whole, strict=True):
        np.testing.assert_allclose(a, b[np.array([4, 1])], rtol=2e-5, atol=2e-6)


def test_moments_want_a_sample(key):
    with pytest.raises(ValueError, match="0 samples in batches of 2 were asked for; each must be at least 1"):
        predict_moments(tiny.build("se", Gaussian()), tiny.images(2), key=key, num_samples=0, batch_size=2)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 5, 5, 1)), r"images of shape \(5, 5, 1\) were given to a model for images of shape \(6, 5, 1\)"),
        (np.zeros((2, 6, 5, 3)), r"images of shape \(6, 5, 3\)"),
        (np.zeros((0, 6, 5, 1)), "at least one image"),
        (np.full((2, 6, 5, 1), np.nan), "2 of 2 images hold NaN"),
        (np.full((2, 6, 5, 1), "a"), "give bytes"),
    ],
)
def test_wrong_images_are_refused(images, message, key):
    with pytest.raises(ValueError, match=message):
        predict(tiny.build("conv", Bernoulli()), images, key=key, num_samples=2, batch_size=2)


@pytest.mark.parametrize(("name", "likelihood"), [("conv", Softmax(3)), ("se", Gaussian())])
def test_what_is_not_finite_is_no_prediction(name, likelihood, key):
    """As when Kuu has no Cholesky factor: of NaN the first class would be the most probable."""
    model = tiny.build(name, likelihood)
    model = eqx.tree_at(lambda m: m.layers[0].gp.inducing[0].Z.raw, model, replace_fn=lambda Z: Z.at[0, 0].set(jnp.nan))
    ask = predict if isinstance(likelihood, Softmax) else predict_moments
    with pytest.raises(ArithmeticError, match="for 2 of 2 inputs; give it a larger jitter"):
        ask(model, tiny.images(2), key=key, num_samples=2)
