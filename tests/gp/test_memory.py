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


@pytest.mark.parametrize(("images", "expected"), [(200, 128), (128, 128), (100, 64), (40, 32), (1, 16)])
def test_the_patches_of_a_batch_stay_below_the_limit(images, expected, model, monkeypatch):
    """The largest array holds all patches: P windows of 9 numbers, of 4 bytes, for each image.

    From 16 images down it is that of the P² differences between two places, the same for any batch.
    """
    monkeypatch.setattr(memory, "LARGEST_ARRAY", images * P * PATCH**2 * 4)
    assert memory.fitting_batch(model, X) == expected


@pytest.mark.parametrize(("num_inducing", "expected"), [(150, 64), (300, 128)])
def test_arrays_of_any_batch_do_not_make_it_smaller(num_inducing, expected, monkeypatch):
    """q_sqrt of three classes is as large as the patches of 75 images, or of 300: no smaller batch changes that."""
    model = tickgp.tick(X, tickgp.Softmax(3), patch_size=PATCH, num_inducing=num_inducing, key=jax.random.key(0))
    assert 3 * num_inducing**2 == {150: 75, 300: 300}[num_inducing] * P * PATCH**2
    monkeypatch.setattr(memory, "LARGEST_ARRAY", 1000)
    assert memory.fitting_batch(model, X) == expected


def test_predictions_do_not_depend_on_the_limit(model, monkeypatch):
    key = jax.random.key(1)
    whole = tickgp.predict(model, X, key=key, num_samples=4)
    monkeypatch.setattr(memory, "LARGEST_ARRAY", 20 * P * PATCH**2 * 4)
    assert memory.fitting_batch(model, X) == 16
    parts = tickgp.predict(model, X, key=key, num_samples=4)
    np.testing.assert_allclose(parts.probabilities, whole.probabilities, atol=1e-5)
