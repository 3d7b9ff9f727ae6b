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


@pytest.mark.parametrize("images", [1, 10, 100])
def test_kff_of_a_batch_stays_below_the_limit(images, model, monkeypatch):
    """The largest arrays have P² numbers for each image, of 4 bytes: there may be a few such numbers for each pair."""
    limit = images * P**2 * 4
    monkeypatch.setattr(memory, "LARGEST_ARRAY", limit)
    batch = memory.fitting_batch(model, X)
    assert max(1, images // 4) <= batch <= images


def test_predictions_do_not_depend_on_the_limit(model, monkeypatch):
    key = jax.random.key(1)
    whole = tickgp.predict(model, X, key=key, num_samples=4)
    monkeypatch.setattr(memory, "LARGEST_ARRAY", 20 * P**2 * 4)
    assert memory.fitting_batch(model, X) < 128
    np.testing.assert_allclose(
        tickgp.predict(model, X, key=key, num_samples=4).probabilities, whole.probabilities, atol=1e-5
    )
