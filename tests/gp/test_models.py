"""What a model refuses to be built of, and cases at the edge of what it is made for."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tickgp
from tickgp.gp.covariances import Pointwise
from tickgp.gp.inducing import InducingPoints
from tickgp.gp.kernels import SquaredExponential
from tickgp.gp.multioutput import Separate
from tickgp.gp.params import Real, Triangular
from tickgp.gp.variational import FullRank, SparseGP, sample

X = np.random.default_rng(0).random((4, 6, 5, 1), np.float32)


def test_outputs_must_fit_the_likelihood(key):
    model = tickgp.tick(X, tickgp.Softmax(3), patch_size=3, num_inducing=4, key=key)
    with pytest.raises(ValueError, match=r"the last layer puts out \(3,\) and Bernoulli takes \(1,\)"):
        tickgp.DeepGP(model.layers, tickgp.Bernoulli())


@pytest.mark.parametrize("likelihood", [tickgp.Softmax, tickgp.RobustMax])
def test_one_class_is_refused(likelihood):
    with pytest.raises(ValueError, match="1 classes was asked for; there must be at least 2"):
        likelihood(1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"channels": 0}, "0 channels were asked for"),
        ({"num_inducing": 0}, "0 inducing variables were asked for"),
        ({"lengthscale": 0.0}, r"every entry must be above 1e-06 and at most 1e\+18"),
        ({"patch_size": 4}, "layer 2 of 2: patch 4x4 does not fit in image 3x2"),
    ],
)
def test_wrong_settings_are_refused(settings, words, key):
    settings = {"patch_size": 3, "num_inducing": 4, "channels": 2, "key": key} | settings
    with pytest.raises(ValueError, match=words):
        tickgp.deep_tick(X, tickgp.Softmax(3), **settings)


def test_prediction_needs_at_least_one_sample(key):
    model = tickgp.se(X, tickgp.Softmax(3), num_inducing=4, key=key)
    with pytest.raises(
        ValueError, match="0 times 64 samples in batches of 128 were asked for; each must be at least 1"
    ):
        tickgp.predict(model, X, num_samples=0, key=key)
    with pytest.raises(ValueError, match="have 25 numbers each, and the model is for 30; resize"):
        tickgp.predict(model, X[:, :5], key=jax.random.key(0))


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_weights_that_cancel_leave_finite_gradients(scale, key):
    """On blank images f is then constant: its variance vanishes, or rounds below zero."""
    blank = np.zeros((4, 6, 5, 1), np.float32)
    model = tickgp.tick(X, tickgp.Softmax(3), patch_size=3, num_inducing=4, key=key)
    weights = scale * jnp.linspace(-1, 1, 12)
    where = lambda m: (m.layers[0].gp.kernel.covariance.weights.raw, m.layers[0].gp.q.q_sqrt.raw)
    model = eqx.tree_at(where, model, (weights, 1e-4 * model.layers[0].gp.q.q_sqrt.raw))
    labels = jnp.zeros(4, int)
    value, gradient = jax.jit(jax.value_and_grad(lambda m: tickgp.elbo(m, jnp.asarray(blank), labels, 4, key=key)))(
        model
    )
    assert bool(jnp.isfinite(value))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("jitter", "words"), [(-1.0, "jitter -1.0 was given; it is a share of the variance"), (2.0, "jitter 2.0")]
)
def test_jitter_is_a_share(jitter, words, key):
    with pytest.raises(ValueError, match=words):
        tickgp.se(X, tickgp.Softmax(3), num_inducing=4, jitter=jitter, key=key)


def test_sizes_are_whole_numbers():
    """In a process of its own: here the annotations would refuse them first."""
    code = """
from tickgp.gp.layer_builders import _pair
for size in ((3,), (3, 2.5), 2.5):
    try:
        _pair(size)
    except ValueError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.count("use a whole number, or a pair of them: (height, width)") == 3


def test_a_robustmax_of_no_probability_is_refused():
    with pytest.raises(ValueError, match=r"epsilon 0\.0 was given; it is a probability between 0 and 1"):
        tickgp.RobustMax(3, 0.0)


@pytest.mark.slow
def test_full_samples_of_latents_with_unequal_variances(key):
    """The jitter of one latent, or of one image, must not show in another."""
    kernels = [SquaredExponential(variance, 1.0) for variance in (1e4, 1e-2)]
    q = FullRank(Real(jnp.zeros((2, 4))), Triangular(jnp.tile(jnp.eye(4), (2, 1, 1))))
    Z = InducingPoints(Real(jax.random.normal(key, (4, 2))))
    gp = SparseGP(Separate(tuple(Pointwise(k) for k in kernels)), (Z,), q)
    draws = jax.vmap(lambda k: sample(gp, Z.value, jnp.asarray(1e-5), "full", key=k))(jax.random.split(key, 4000))
    np.testing.assert_allclose(jnp.var(draws, axis=0).mean(axis=0), [1e4, 1e-2], rtol=0.1)


def test_standardised_pixels_have_mean_zero_and_deviation_one(key):
    """Of every channel, over the images the model was built on; a constant channel is only shifted."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(0.3, 0.1, (20, 6, 6)), rng.random((20, 6, 6)), np.full((20, 6, 6), 0.5)], axis=-1)
    model = tickgp.tick(
        x.astype(np.float32), tickgp.Softmax(2), patch_size=3, num_inducing=4, standardise=True, key=key
    )
    pixels = np.asarray(model.pixels(jnp.asarray(x, jnp.float32)))
    np.testing.assert_allclose(pixels.mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(pixels.std(axis=(0, 1, 2)), [1, 1, 0], atol=1e-4)


@pytest.mark.slow
def test_a_standardised_model_is_the_plain_model_of_standardised_images(key):
    x = np.random.default_rng(1).integers(0, 256, (20, 6, 6, 1)).astype(np.uint8)
    scaled = x / 255.0
    scaled = ((scaled - scaled.mean()) / scaled.std()).astype(np.float32)
    settings = {"patch_size": 3, "num_inducing": 4, "key": key}
    a = tickgp.tick(x, tickgp.Softmax(2), standardise=True, **settings).propagate(jnp.asarray(x), key=key)
    b = tickgp.tick(scaled, tickgp.Softmax(2), **settings).propagate(jnp.asarray(scaled), key=key)
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-4)


@pytest.mark.parametrize("sampling", ["marginal", "correlated"])
def test_each_hidden_layer_has_noise_of_its_own(sampling, key):
    """With a lengthscale at which the inducing patches say nothing, what a layer adds to its input is noise."""
    x = np.random.default_rng(1).random((50, 6, 5, 1), np.float32)
    model = tickgp.deep_conv(
        x,
        tickgp.Softmax(2),
        depth=3,
        patch_size=1,
        channels=1,
        num_inducing=4,
        hidden_lengthscale=1e-3,
        sampling=sampling,
        key=key,
    )
    first = model.draw(0, jnp.asarray(x), key=key)
    second = model.draw(1, first, key=key)
    correlation = np.corrcoef(np.ravel(first - x), np.ravel(second - first))[0, 1]
    assert abs(correlation) < 0.1
