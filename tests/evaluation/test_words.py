import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from gp import tiny

from tickgp.evaluation.reach import agreement, crossings_across, half_way
from tickgp.evaluation.words import describe as facts
from tickgp.gp.images import Standardise
from tickgp.gp.kernels import Matern12, Matern32, SquaredExponential
from tickgp.gp.likelihoods import Bernoulli, RobustMax, Softmax
from tickgp.gp.params import Real, trainable
from tickgp.gp.patches import PatchGrid


@pytest.fixture(scope="module")
def tick():
    location = SquaredExponential(1.0, 2.0)
    return tiny.build("tick", Softmax(3), location=location, variance=4.0, lengthscale=1.5)


def test_rows_are_features_and_no_pixels():
    model = tiny.build("se", Softmax(3))
    assert "Pixel values range from 0 to 1." in facts(model)["Model"]
    said = facts(model, rows=True)["Model"]
    assert "They are features, each scaled to mean 0 and standard deviation 1." in said
    assert "Pixel" not in said


def test_places_of_a_squared_exponential(tick):
    """exp(−d²/2ℓ²) with ℓ = 2 at 1 pixel and at the d = 2 pixels between the outer patches; d/(πℓ) changes of sign."""
    text = facts(tick)["Places"]
    near, far = (f"{math.exp(-d / 8):.2f}" for d in (1, 4))
    said = (
        f"a correlation of {near} when they are 1 pixel apart, and of {far} at opposite sides of the image (2 pixels)"
    )
    assert said in text
    across, down = (f"{d / (math.pi * 2):.2g}" for d in (2, 3))
    assert f"change sign {across} times from the leftmost patch to the rightmost, and {down} times from the top" in text


@pytest.mark.parametrize(("half", "said"), [(0.8, True), (1.02, False), (1.5, True), (1.97, False), (2.03, False)])
def test_half_way_is_told_where_it_adds_to_what_is_told_of_both_ends(half, said):
    location = SquaredExponential(1.0, half / math.sqrt(2 * math.log(2)))
    text = facts(tiny.build("tick", Softmax(3), location=location))["Places"]
    assert (f", of 0.5 at {half} pixels, and of" in text) == said
    assert ("of 0.5 at" in text) == said


def test_likeness_of_a_squared_exponential(tick):
    """Nine pixels that differ by c are 3c apart: exp(−9c²/2ℓ²) = ½. Two standard deviations are 2√4."""
    text = facts(tick)["Likeness"]
    assert f"correlation of 0.5 when the patches differ by {1.5 * math.sqrt(2 * math.log(2)) / 3:.2g} in every" in text
    assert "the prior with the learned kernel puts 95 % of responses within ±4." in text


def test_patches_memory_and_size(tick):
    said = facts(tick)
    assert "12 patches of 3×3 pixels, in steps of 1 pixel;" in said["Patches"]
    assert "each of its 3 scores" in said["Patches"]
    assert "6 inducing patches, each with a place" in said["Memory"]
    assert "images of 6×5 pixels with one channel (grey)" in said["Model"]
    # Z 6·9, places 6·2, weights 12, kernel: 2 and 2, q: 3 classes with 6 means and 21 of the factor
    assert f"It has {54 + 12 + 12 + 4 + 3 * (6 + 21)} trainable parameters." in said["Model"]
    assert sum(int(np.size(leaf)) for leaf in eqx.filter(tick, trainable(tick)).layers[0].gp.q.q_mu.raw) == 18


def test_conv_is_invariant():
    said = facts(tiny.build("conv", Softmax(3)))
    assert "translation invariant: a patch means the same wherever it is" in said["Places"]
    assert said["Memory"].endswith("6 inducing patches.")


def test_weights(tick):
    assert facts(tick)["Weights"] == "All patches have the same weight, 1.00."
    w = jnp.arange(12.0) / 10
    moved = eqx.tree_at(lambda m: m.layers[-1].gp.kernel.covariance.weights, tick, Real(w))
    assert "range from 0.00 to 1.10" in facts(moved)["Weights"]
    assert "row 3, column 2" in facts(moved)["Weights"]
    for scale, words in ((0.003, "about the same weight, 0.81."), (0.0, "the same weight, 0.81.")):
        near = eqx.tree_at(lambda m: m.layers[-1].gp.kernel.covariance.weights, tick, Real(0.808 + scale * w))
        assert facts(near)["Weights"] == f"All patches have {words}"
    small = eqx.tree_at(lambda m: m.layers[-1].gp.kernel.covariance.weights, tick, Real(1e-3 * (w + 1)))
    assert "range from 1.0e-03 to 2.1e-03" in facts(small)["Weights"]
    assert facts(tiny.build("tick", Softmax(3), weights=False))["Weights"] == "All patches have the same weight."


def test_rough_paths_change_sign_without_end():
    model = tiny.build("tick", Softmax(3), location=Matern12(1.0, 3.0))
    assert "any number of times" in facts(model)["Places"]


@pytest.mark.parametrize("name", ["deep_se", "deep_conv", "deep_tick"])
def test_deep_models_speak_of_each_layer(name):
    said = facts(tiny.build(name, Softmax(3)))
    assert "A deep Gaussian process of 2 layers" in said["Model"]
    assert "Layer 1 of 2, memory" in said
    assert "Layer 2 of 2, likeness" in said
    if name != "deep_se":
        hidden = said["Layer 1 of 2, patches"]
        assert "into images of 4×3 pixels with 2 channels" in hidden
        assert "added to the pixel at the middle of the patch" in hidden
        assert ("depends on its place" in said["Layer 2 of 2, places"]) == (name == "deep_tick")


def test_se_sees_whole_images():
    said = facts(tiny.build("se", Softmax(3)))
    assert "inputs of 30 numbers each" in said["Model"]
    assert "gives 3 numbers" in said["Input"]
    assert "Patches" not in said


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        (Softmax(3), "A softmax turns the scores of the 3 classes into probabilities"),
        (RobustMax(3, 0.02), "a share of 0.02 of the labels"),
        (Bernoulli(), "the more likely the second class"),
    ],
)
def test_likelihoods(likelihood, words):
    assert words in facts(tiny.build("conv", likelihood))["Labels"]


def test_standardised_pixels_are_mentioned(tick):
    model = eqx.tree_at(lambda m: m.standardise, tick, Standardise(tiny.images()), is_leaf=lambda x: x is None)
    assert "standardised" in facts(model)["Model"]
    assert "standard deviations in every pixel" in facts(model)["Likeness"]
    assert "deviations" not in facts(tick)["Likeness"]
    assert "standardised" not in facts(tick)["Model"]


def test_agreement_and_half_way():
    kernel = Matern32(3.0, 2.0)
    s = math.sqrt(3) * 1.5 / 2
    assert agreement(kernel, np.array([[0.0, 1.5], [0.0, 0.0]])) == pytest.approx([(1 + s) * math.exp(-s), 1], rel=1e-5)
    half = half_way(kernel, (0.0, 1.0))
    s = math.sqrt(3) * half / 2
    assert (1 + s) * math.exp(-s) == pytest.approx(0.5, abs=1e-4)
    assert half_way(SquaredExponential(1.0, 1e9), (1.0,)) is None


def test_crossings_along_each_side():
    kernel = SquaredExponential(1.0, np.array([2.0, 4.0]))
    assert crossings_across(kernel, PatchGrid((11, 20, 1), (3, 3), (2, 1))) == pytest.approx(
        (8 / (2 * math.pi), 17 / (4 * math.pi)), rel=1e-5
    )
