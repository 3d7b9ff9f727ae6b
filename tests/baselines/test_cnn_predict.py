"""Predictions of the CNN: against plain averages in numpy, and that an image's neighbours do not matter."""

import jax
import numpy as np
import pytest
from scipy.special import softmax

from tickgp.baselines.cnn import CNN, UNITS, dropout_scales
from tickgp.baselines.predict import predict_cnn, predict_logits

SHAPE = (6, 6, 1)
X = np.random.default_rng(0).integers(0, 256, (7, *SHAPE), np.uint8)


@pytest.fixture(scope="module")
def model() -> CNN:
    # Weights as small as those of a trained network, so that no probability is 0 or 1.
    return jax.tree.map(lambda a: a / 2, CNN(SHAPE, 3, num_convolutions=1, key=jax.random.key(0)))


def entropy(p):
    return -(p * np.log(p)).sum(axis=-1)


def assert_average(prediction, logits):
    """`prediction` is the average over the first axis of `logits`, and its entropy splits as it should."""
    p = softmax(np.asarray(logits, float), axis=-1)
    np.testing.assert_allclose(prediction.probabilities, p.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(prediction.expected_entropy, entropy(p).mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(
        prediction.mutual_information, entropy(p.mean(axis=0)) - entropy(p).mean(axis=0), atol=1e-5
    )
    np.testing.assert_allclose(prediction.variance, np.var(logits, axis=0).mean(axis=1), rtol=1e-4, atol=1e-6)


def test_logits_are_the_networks_at_pixels_between_0_and_1(model):
    expected = jax.jit(lambda m, x: m(x))(model, (X / 255).astype(np.float32))
    np.testing.assert_allclose(predict_logits(model, X, batch_size=4), expected, rtol=1e-5, atol=1e-5)


def test_dropout_drops_the_same_units_of_all_images(model, key):
    """Averages over draws that are applied here to the units, one by one."""
    units = np.asarray(jax.jit(CNN.units)(model, (X / 255).astype(np.float32)), float)
    scales = np.asarray(dropout_scales(key, 0.5, (5, UNITS)), float)
    weights, biases = np.asarray(model.output.weights, float), np.asarray(model.output.biases, float)
    prediction = predict_cnn(model, X, dropout=0.5, num_samples=5, batch_size=4, key=key)
    assert_average(prediction, [(units * s) @ weights + biases for s in scales])
    assert (prediction.mutual_information > 1e-3).all()


def test_equal_images_get_equal_predictions(model, key):
    prediction = predict_cnn(model, np.repeat(X[:1], 7, axis=0), dropout=0.5, num_samples=5, batch_size=4, key=key)
    p = np.asarray(prediction.probabilities)
    np.testing.assert_allclose(p, np.broadcast_to(p[:1], p.shape), atol=1e-7)


def test_neighbours_and_batches_do_not_matter(model, key):
    predict = lambda x, size: predict_cnn(model, x, dropout=0.5, num_samples=5, batch_size=size, key=key)
    whole = predict(X, 4)
    for part, images, size in [(slice(None), X, 7), (slice(2, 5), X[2:5], 4), (slice(None, None, -1), X[::-1], 4)]:
        other = predict(images, size)
        np.testing.assert_allclose(other.probabilities, whole.probabilities[part], atol=1e-6)
        np.testing.assert_allclose(other.expected_entropy, whole.expected_entropy[part], atol=1e-6)


def test_without_dropout_the_network_is_deterministic(model, key):
    prediction = predict_cnn(model, X, dropout=0.0, num_samples=1, batch_size=4, key=key)
    assert_average(prediction, [predict_logits(model, X, batch_size=4)])
    np.testing.assert_allclose(prediction.mutual_information, 0, atol=1e-6)
    again = predict_cnn(model, X, dropout=0.0, num_samples=5, batch_size=4, key=jax.random.key(9))
    np.testing.assert_array_equal(again.probabilities, prediction.probabilities)


def test_wrong_arguments_are_refused(model, key):
    with pytest.raises(ValueError, match="0 samples were asked for"):
        predict_cnn(model, X, dropout=0.5, num_samples=0, key=key)
    with pytest.raises(ValueError, match=r"dropout rate of -0\.1 was given"):
        predict_cnn(model, X, dropout=-0.1, key=key)
    with pytest.raises(ValueError, match="batches of 0 images"):
        predict_logits(model, X, batch_size=0)
