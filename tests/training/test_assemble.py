"""Settings whose defaults depend on the model."""

import jax
import numpy as np
import pytest

from tickgp.gp.kernels import Matern52
from tickgp.gp.variational import FullRank, MeanField
from tickgp.training.assemble import build_model
from tickgp.training.config import ModelConfig
from tickgp.training.loop import fit

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 21, 21, 1), dtype=np.uint8)


def build(name, **settings):
    config = ModelConfig(name, num_inducing=5, **settings)
    return build_model(config, IMAGES, 3, key=jax.random.key(0)).layers


def kernel(layer):
    """Variance and lengthscale of a layer's kernel between patches."""
    patch = layer.gp.kernel.covariance.response.patch
    return pytest.approx((float(patch.variance.value), float(patch.lengthscale.value)), rel=1e-5)


def stride(layer):
    return layer.gp.kernel.covariance.grid.stride


@pytest.mark.parametrize("name", ["conv", "tick"])
def test_a_single_layer(name):
    (layer,) = build(name)
    assert kernel(layer) == (100.0, 1.0)
    assert stride(layer) == (2, 2)
    assert kernel(build(name, variance=3.0, lengthscale=2.0)[0]) == (3.0, 2.0)


def test_the_kernel_is_that_of_all_layers():
    kernels = [layer.gp.kernel.covariance.response.patch for layer in build("deep-tick", kernel="matern52")]
    assert [type(patch) for patch in kernels] == [Matern52, Matern52]


@pytest.mark.parametrize("name", ["deep-conv", "deep-tick"])
def test_several_layers(name):
    hidden, last = build(name)
    assert (kernel(hidden), kernel(last)) == ((0.1, 2.0), (100.0, 4.0))
    assert (stride(hidden), stride(last)) == ((2, 2), (1, 1))
    assert stride(build(name, hidden_stride=1)[0]) == (1, 1)
    assert isinstance(hidden.gp.q, MeanField)
    assert isinstance(last.gp.q, FullRank)


def test_patches_are_centres_of_clusters_and_points_are_images():
    """A centre lies between patches; an inducing point of an SE-GP is an image."""
    pixels = IMAGES.reshape(30, -1) / 255
    points = np.asarray(build("se")[0].gp.inducing[0].Z.value)
    assert np.abs(points[:, None] - pixels).max(axis=2).min(axis=1).max() < 1e-6
    for how, inside in {None: False, "kmeans": False, "random": True}.items():
        Z = np.asarray(build("conv", initialiser=how)[0].gp.inducing[0].Z.value) * 255
        assert (np.abs(Z - np.round(Z)).max() < 1e-3) == inside


def test_a_fixed_lengthscale_stays_where_it_is():
    """And a learned one does not, on the same images with the same start."""
    labels = np.arange(len(IMAGES)) % 3
    for learned in (True, False):
        config = ModelConfig("tick", num_inducing=5, location_lengthscale=2.0, learn_location=learned)
        model = build_model(config, IMAGES, 3, key=jax.random.key(0))
        model = fit(model, IMAGES, labels, steps=3, batch_size=10, key=jax.random.key(1))
        found = float(model.layers[0].gp.kernel.covariance.response.location.lengthscale.value)
        assert (abs(found - 2.0) > 1e-3) == learned
