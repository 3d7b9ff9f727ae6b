"""Batches that fit into memory, and the same predictions whatever the batch."""

import jax
import numpy as np
import pytest

import tickgp
from tickgp.gp import memory

SIDE, PATCH = 12, 3
P = (SIDE - PATCH + 1) ** 2
X = np.random.default_rng(0).random((40, SIDE, SIDE, 1), np.float32)


@pytest.fixture(scope="module")
def model():
    return tickgp.tick(X, tickgp.Softmax(3), patch_size=PATCH, num_inducing=5, key=jax.random.key(0))


def test_the_batch_is_the_usual_one_where_it_fits(model):
    assert memory.fitting_batch(model, X) == 128


@pytest.mark.parametrize(("images", "expected"), [(200, 128), (128, 128), (100, 64), (10, 8), (1, 1), (0.1, 1)])
def test_the_patches_of_a_batch_stay_below_the_limit(images, expected, model, monkeypatch):
    """The largest array holds all patches: P windows of 9 numbers, of 4 bytes, for each image."""
    monkeypatch.setattr(memory, "LARGEST_ARRAY", images * P * PATCH**2 * 4)
    assert memory.fitting_batch(model, X) == expected


def test_predictions_do_not_depend_on_the_limit(model, monkeypatch):
    key = jax.random.key(1)
    whole = tickgp.predict(model, X, key=key, num_samples=4)
    monkeypatch.setattr(memory, "LARGEST_ARRAY", 20 * P * PATCH**2 * 4)
    assert memory.fitting_batch(model, X) == 16
    parts = tickgp.predict(model, X, key=key, num_samples=4)
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-5)
