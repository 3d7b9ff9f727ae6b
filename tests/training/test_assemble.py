"""Every setting reaches the model, the optimiser or the learning rate; some have defaults that depend on the model."""

import inspect
from dataclasses import fields

import equinox as eqx
import jax
import numpy as np
import pytest

from tickgp.gp.kernels import Matern52
from tickgp.gp.likelihoods import Bernoulli, RobustMax, Softmax
from tickgp.gp.params import Normal
from tickgp.gp.variational import FullRank, MeanField
from tickgp.training.assemble import build_model, schedule, train_settings
from tickgp.training.config import ModelConfig, TrainingConfig, applies
from tickgp.training.loop import fit, train

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


@pytest.mark.parametrize("name", ["conv", "deep-tick"])
def test_weights_of_patches_have_a_prior_unless_it_is_not_wanted(name):
    weights = lambda **settings: build(name, **settings)[-1].gp.kernel.covariance.weights
    assert weights().prior == Normal(mean=1.0, deviation=1.0)
    assert weights(weight_prior=False).prior is None
    assert weights(weights=False) is None


def test_a_fixed_lengthscale_stays_where_it_is():
    """And a learned one does not, on the same images with the same start."""
    labels = np.arange(len(IMAGES)) % 3
    for learned in (True, False):
        config = ModelConfig("tick", num_inducing=5, location_lengthscale=2.0, learn_location=learned)
        model = build_model(config, IMAGES, 3, key=jax.random.key(0))
        model = fit(model, IMAGES, labels, steps=3, batch_size=10, key=jax.random.key(1))
        found = float(model.layers[0].gp.kernel.covariance.response.location.lengthscale.value)
        assert (abs(found - 2.0) > 1e-3) == learned


@pytest.mark.parametrize(
    ("settings", "width"),
    [({"name": "tick"}, 10), ({"name": "deep-tick", "hidden_stride": 2, "channels": 2, "patch_size": 3}, 4)],
    ids=["one layer", "two"],
)
def test_the_location_lengthscale_starts_at_half_of_what_the_last_layer_sees(settings, width):
    """Unless it is said; width here is the lesser of both sides."""
    for said, start in ((None, width / 2), (3.0, 3.0)):
        config = ModelConfig(num_inducing=5, location_lengthscale=said, **settings)
        last = build_model(config, IMAGES[:, :, :10], 3, key=jax.random.key(0)).layers[-1].gp.kernel.covariance
        assert min(last.grid.image_shape[:2]) == width
        assert float(last.response.location.lengthscale.value) == pytest.approx(start)


SMALL = IMAGES[:6, :8, :8]
OTHER = {
    "depth": 3,
    "patch_size": 2,
    "stride": 2,
    "hidden_stride": 2,
    "channels": 3,
    "width": 3,
    "num_inducing": 4,
    "initialiser": "greedy",
    "places": "uniform",
    "kernel": "matern32",
    "location": "matern52",
    "location_lengthscale": 2.0,
    "learn_location": False,
    "weights": False,
    "weight_prior": False,
    "variance": 2.0,
    "lengthscale": 2.5,
    "hidden_variance": 0.3,
    "hidden_lengthscale": 1.5,
    "hidden_q_mu": 0.1,
    "hidden_mean_field": False,
    "mean_field": True,
    "sampling": "full",
    "likelihood": "robustmax",
    "jitter": 1e-3,
    "standardise": True,
}
"""Another value than the default, for every setting that shows in the model."""


def small(name, **settings):
    """With two outputs of its hidden layer unless told otherwise."""
    narrow = {"channels": 2} if name == "deep-tick" else {"width": 2}
    config = ModelConfig(name, **{"num_inducing": 3, **narrow, **settings})
    return build_model(config, SMALL, 2, key=jax.random.key(0))


@pytest.fixture(scope="module")
def defaults():
    return {name: small(name) for name in ("deep-tick", "deep-se")}


def test_no_setting_is_forgotten_here():
    """The precision is not the model's to choose: whoever builds it sets that of jax."""
    assert OTHER.keys() == {setting.name for setting in fields(ModelConfig)} - {"name", "float64"}


@pytest.mark.parametrize(
    ("name", "setting"), [(name, s) for name in ("deep-tick", "deep-se") for s in OTHER if applies(s, name)]
)
def test_a_setting_reaches_the_model(name, setting, defaults):
    assert not eqx.tree_equal(small(name, **{setting: OTHER[setting]}), defaults[name])


def test_without_other_settings_the_model_is_the_same(defaults):
    assert eqx.tree_equal(small("deep-tick"), defaults["deep-tick"])


@pytest.mark.parametrize(("name", "kind"), [("softmax", Softmax), ("robustmax", RobustMax), ("bernoulli", Bernoulli)])
def test_likelihoods(name, kind):
    assert type(small("deep-se", likelihood=name).likelihood) is kind


def test_bernoulli_is_for_two_classes():
    with pytest.raises(ValueError, match="bernoulli is for 2 classes and there are 3"):
        build("conv", likelihood="bernoulli")


TRAINING = {
    "steps": ("max_steps", 7),
    "batch_size": ("batch_size", 5),
    "natural_gradients": ("natural_gradients", False),
    "hidden_mean_rate": ("hidden_mean_rate", 3.0),
    "num_samples": ("num_samples", 4),
    "likelihood_samples": ("likelihood_samples", 9),
    "report_every": ("report_every", 11),
}
"""What `train` is told, and the setting that it is; besides the learning rate."""


def test_train_is_told_nothing_else():
    told = train_settings(TrainingConfig()).keys()
    assert told == {*TRAINING, "learning_rate"}
    assert told <= inspect.signature(train).parameters.keys()


@pytest.mark.parametrize("argument", TRAINING)
def test_a_setting_reaches_the_training(argument):
    setting, value = TRAINING[argument]
    assert getattr(TrainingConfig(), setting) != value
    assert train_settings(TrainingConfig(**{setting: value}))[argument] == value


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({}, {0: 0.03, 500: 0.0225, 2000: 0.0}),
        ({"max_steps": 100, "learning_rate": 0.5}, {0: 0.5, 75: 0.125, 100: 0.0}),
        ({"decay": "inverse"}, {0: 0.03, 5000: 0.015, 45_000: 0.003}),
        ({"decay": "inverse", "learning_rate": 0.01, "decay_steps": 100.0}, {0: 0.01, 100: 0.005, 900: 0.001}),
        ({"decay": "step"}, {4999: 0.03, 5000: 0.0075, 10_000: 0.001875}),
        (
            {"decay": "step", "learning_rate": 0.01, "decay_steps": 50_000.0},
            {0: 0.01, 49_999: 0.01, 50_000: 0.0025, 99_999: 0.0025, 100_000: 0.000625},
        ),
        ({"decay": "step", "decay_factor": 10.0}, {5000: 0.003}),
        ({"decay": "constant", "learning_rate": 0.02}, {0: 0.02, 10**6: 0.02}),
    ],
)
def test_learning_rates_in_closed_form(settings, rates):
    config = TrainingConfig(**settings)
    for rate in (schedule(config), train_settings(config)["learning_rate"]):
        assert [rate(t) for t in rates] == pytest.approx(list(rates.values()), rel=1e-12)
