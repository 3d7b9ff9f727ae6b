"""What a model refuses to be built of."""

import jax
import numpy as np
import pytest

import tickgp

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
        ({"lengthscale": 0.0}, "must be finite and above 1e-06"),
        ({"patch_size": 4}, "layer 2 of 2: patch 4x4 does not fit in image 3x2"),
    ],
)
def test_wrong_settings_are_refused(settings, words, key):
    settings = {"patch_size": 3, "num_inducing": 4, "channels": 2, "key": key} | settings
    with pytest.raises(ValueError, match=words):
        tickgp.deep_tick(X, tickgp.Softmax(3), **settings)


def test_prediction_needs_at_least_one_sample(key):
    model = tickgp.se(X, tickgp.Softmax(3), num_inducing=4, key=key)
    with pytest.raises(ValueError, match="0 samples in batches of 128"):
        tickgp.predict(model, X, num_samples=0, key=key)
    with pytest.raises(ValueError, match="have 25 numbers each, and the model is for 30; resize"):
        tickgp.predict(model, X[:, :5], key=jax.random.key(0))
