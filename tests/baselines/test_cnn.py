"""The network against slow numpy loops and hand counts; its initial values; dropout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import truncnorm

from tickgp.baselines.cnn import CNN, dropout_scales, max_pool

SHAPES = {1: (6, 7, 2), 2: (16, 17, 2), 3: (20, 21, 2)}


def network(num_convolutions: int) -> CNN:
    return CNN(SHAPES[num_convolutions], 3, num_convolutions=num_convolutions, key=jax.random.key(1))


def slow_convolution(image, weights, biases):
    """Σ over the window and the input channels, at every place where the window fits."""
    rows, columns = image.shape[0] - 4, image.shape[1] - 4
    result = np.zeros((rows, columns, len(biases)))
    for i, j in np.ndindex(rows, columns):
        for a, b, c in np.ndindex(*weights.shape[:3]):
            result[i, j] += image[i + a, j + b, c] * weights[a, b, c]
    return result + biases


def slow_pool(image):
    result = np.zeros((image.shape[0] // 2, image.shape[1] // 2, image.shape[2]))
    for i, j in np.ndindex(*result.shape[:2]):
        result[i, j] = np.max([image[2 * i + a, 2 * j + b] for a in (0, 1) for b in (0, 1)], axis=0)
    return result


def slow_logits(model, image):
    for number, layer in enumerate(model.convolutions, start=1):
        if number == 3:
            image = np.pad(image, ((2, 2), (2, 2), (0, 0)))
        image = slow_pool(np.maximum(slow_convolution(image, layer.weights, layer.biases), 0))
    units = np.maximum(image.ravel() @ model.hidden.weights + model.hidden.biases, 0)
    return units @ model.output.weights + model.output.biases


@pytest.mark.parametrize("num_convolutions", [1, 2, 3])
def test_logits_are_those_of_slow_loops(num_convolutions):
    model = network(num_convolutions)
    x = np.random.default_rng(0).random((2, *SHAPES[num_convolutions]), np.float32)
    expected = [slow_logits(jax.tree.map(lambda a: np.asarray(a, float), model), image) for image in x]
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(model, x), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("num_convolutions", "weights"),
    [
        (1, 32 * (25 + 1) + 1024 * (12 * 12 * 32 + 1) + 10 * (1024 + 1)),
        (2, 32 * (25 + 1) + 64 * (25 * 32 + 1) + 1024 * (4 * 4 * 64 + 1) + 10 * (1024 + 1)),
        (3, 32 * (25 + 1) + 64 * (25 * 32 + 1) + 128 * (25 * 64 + 1) + 1024 * (2 * 2 * 128 + 1) + 10 * (1024 + 1)),
    ],
)
def test_number_of_weights_for_mnist(num_convolutions, weights):
    make = lambda key: CNN((28, 28, 1), 10, num_convolutions=num_convolutions, key=key)
    model = jax.eval_shape(make, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == weights


def test_the_smallest_images():
    """A pixel less on either side, and the network does not fit; so the sizes above are the smallest."""
    for num_convolutions, (height, width, channels) in SHAPES.items():
        for shape in ((height - 1, width, channels), (width, height - 1, channels)):
            with pytest.raises(ValueError, match=f"{height - 1} pixels is too short for {num_convolutions} conv"):
                CNN(shape, 3, num_convolutions=num_convolutions, key=jax.random.key(0))


def test_wrong_sizes_are_refused(key):
    for number in (0, 4):
        with pytest.raises(ValueError, match=f"{number} convolutions were asked for; there can be 1 to 3"):
            CNN((28, 28, 1), 10, num_convolutions=number, key=key)
    with pytest.raises(ValueError, match="1 classes were given"):
        CNN((28, 28, 1), 1, key=key)
    with pytest.raises(ValueError, match="images are 6×6×2 and this network takes 6×7×2"):
        network(1).check(np.zeros((3, 6, 6, 2)))


def test_initial_values():
    """Weights: a normal of deviation 0.1 before it is cut at ±0.2, so of 0.088 after; biases: 0.1."""
    model = network(2)
    for layer in (*model.convolutions, model.hidden, model.output):
        np.testing.assert_array_equal(layer.biases, np.float32(0.1))
        w = np.asarray(layer.weights, float).ravel()
        law = truncnorm(-2, 2, scale=0.1)
        assert 0.15 < np.abs(w).max() <= 0.2
        assert abs(w.mean()) < 4 * law.std() / np.sqrt(w.size)
        quantiles = np.linspace(0.1, 0.9, 9)
        np.testing.assert_allclose(law.cdf(np.quantile(w, quantiles)), quantiles, atol=2 / np.sqrt(w.size))
    starts = {float(layer.weights.ravel()[0]) for layer in (*model.convolutions, model.hidden, model.output)}
    assert len(starts) == 4


def test_pooling_gives_its_gradient_to_the_largest():
    x = np.random.default_rng(0).permutation(30).reshape(1, 5, 3, 2).astype(np.float32)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(max_pool(x))))(x)
    expected = np.zeros_like(x)
    for i, c in np.ndindex(2, 2):
        a, b = np.unravel_index(x[0, 2 * i : 2 * i + 2, :2, c].argmax(), (2, 2))
        expected[0, 2 * i + a, b, c] = 1
    np.testing.assert_array_equal(gradient, expected)


def test_dropout_keeps_the_mean(key):
    """Kept with probability 1 − rate and then 1 / (1 − rate): mean 1, variance rate / (1 − rate)."""
    for rate in (0.25, 0.75):
        scales = np.asarray(dropout_scales(key, rate, (100, 1000)))
        np.testing.assert_allclose(np.unique(scales), [0, 1 / (1 - rate)], rtol=1e-6)
        assert abs(scales.mean() - 1) < 4 * np.sqrt(rate / (1 - rate) / scales.size)
    np.testing.assert_array_equal(dropout_scales(key, 0.0, (3, 5)), np.ones((3, 5)))
