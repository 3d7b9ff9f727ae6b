"""The distance from training: Mahalanobis' of features that are worked out by loops, and what it is for."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from gp import tiny
from scipy.linalg import solve_triangular
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import ledoit_wolf

from tickgp.evaluation import familiarity
from tickgp.evaluation.familiarity import Familiarity
from tickgp.gp.likelihoods import Softmax


def features_by_loops(layer, x):
    """Lu⁻¹ Kuf, (N, M)."""
    Kuu, Kuf, _ = tiny.covariances(layer, x)
    return whitened(Kuu, Kuf)


def whitened(Kuu, Kuf):
    Lu = np.linalg.cholesky(Kuu + 1e-5 * np.diag(Kuu).mean() * np.eye(len(Kuu)))
    return solve_triangular(Lu, Kuf, lower=True).T


@eqx.filter_jit
def features(model, x):
    return model.features(x)


@pytest.mark.parametrize("name", ["se", "conv", "tick"])
def test_distance_is_that_of_mahalanobis(name, float64):
    model = tiny.perturbed(tiny.build(name, Softmax(3)))
    training, new = tiny.images(40, seed=1), tiny.images(5, seed=2)
    a = features_by_loops(model.layers[-1], training)
    C, _ = ledoit_wolf(a)
    expected = [
        mahalanobis(b, a.mean(axis=0), np.linalg.inv(C)) / np.sqrt(tiny.M)
        for b in features_by_loops(model.layers[-1], new)
    ]
    np.testing.assert_allclose(Familiarity.of(model, training).distance(model, new), expected, rtol=1e-5)


def test_features_of_a_hidden_layer_are_averaged_over_its_patches(float64):
    model, x = tiny.perturbed(tiny.build("deep_conv", Softmax(3))), tiny.images(4)
    layer = model.layers[0]
    kernel, Z = layer.gp.kernel.covariance.response.patch, np.asarray(layer.gp.inducing[0].Z.value)
    k_g = reference.patch_response(reference.se(float(kernel.variance.value), float(kernel.lengthscale.value)))
    places = reference.places(*x.shape[1:3], 3, 3)
    Kuu, Kuf = reference.inducing_Kuu(k_g, Z), reference.mock_Kuf(k_g, Z, None, reference.patches(x, 3, 3), places)
    first = features(model, x)[0]
    np.testing.assert_allclose(first, whitened(Kuu, Kuf.mean(axis=2)), rtol=1e-5, atol=1e-8)


def test_features_of_the_last_layer_are_those_of_the_means_below_it(float64):
    model, x = tiny.perturbed(tiny.build("deep_conv", Softmax(3))), tiny.images(4)
    mean = np.asarray(model.layers[0].expectation(jnp.asarray(x), model.jitter))
    _, last = features(model, x)
    np.testing.assert_allclose(last, features_by_loops(model.layers[1], mean), rtol=1e-5, atol=1e-8)


def test_the_layer_in_which_an_image_is_furthest_counts():
    model, training, new = tiny.build("deep_tick", Softmax(3)), tiny.images(30, seed=1), tiny.images(20, seed=2)
    made = Familiarity.of(model, training)
    layers = zip(made.clouds, features(model, new), strict=True)
    each = [cloud.distance(np.asarray(a)) for cloud, a in layers]
    furthest = np.argmax(each, axis=0)
    assert set(furthest) == {0, 1}
    np.testing.assert_allclose(made.distance(model, new), np.choose(furthest, each), rtol=1e-4)


def test_training_images_are_at_a_distance_of_about_1():
    model, training = tiny.build("tick", Softmax(3)), tiny.images(400, seed=1)
    d = Familiarity.of(model, training).distance(model, training)
    assert np.mean(d**2) == pytest.approx(1, rel=0.1)


def test_fewer_images_than_features_are_enough():
    model, training = tiny.build("tick", Softmax(3)), tiny.images(4, seed=1)
    made = Familiarity.of(model, training)
    near, far = made.distance(model, training), made.distance(model, 5 * tiny.images(4, seed=2))
    assert np.isfinite(far).all()
    assert near.max() < far.min()


def test_features_that_are_not_finite_are_said():
    model = tiny.build("tick", Softmax(3))
    broken = eqx.tree_at(lambda m: m.layers[0].gp.inducing[0].Z.raw, model, replace_fn=lambda Z: Z.at[0, 0].set(np.nan))
    with pytest.raises(ArithmeticError, match="no finite features for 4 of 4 training images; try a smaller learning"):
        Familiarity.of(broken, tiny.images(4))


def test_training_images_that_are_all_alike():
    model, training = tiny.build("tick", Softmax(3)), np.repeat(tiny.images(1), 5, axis=0)
    made = Familiarity.of(model, training)
    assert made.distance(model, training).max() < 0.1 < made.distance(model, tiny.images(3, seed=2)).min()


def test_neighbours_do_not_matter():
    model = tiny.build("deep_tick", Softmax(3))
    made, new = Familiarity.of(model, tiny.images(30, seed=1)), tiny.images(7, seed=2)
    np.testing.assert_allclose(made.distance(model, new)[2:3], made.distance(model, new[2:3]), rtol=1e-5)


def test_of_many_images_a_random_part_is_taken(monkeypatch):
    model, training = tiny.build("conv", Softmax(3)), np.sort(tiny.images(200, seed=1), axis=0)
    whole = Familiarity.of(model, training).clouds[0].mean
    monkeypatch.setattr(familiarity, "MOST_IMAGES", 100)
    part = Familiarity.of(model, training).clouds[0].mean
    first = Familiarity.of(model, training[:100]).clouds[0].mean
    assert 0 < np.linalg.norm(part - whole) < 0.3 * np.linalg.norm(first - whole)


@pytest.mark.parametrize("name", ["se", "tick", "deep_tick"])
def test_one_to_be_filled_has_the_same_shape(name):
    model = tiny.build(name, Softmax(3))
    like, made = Familiarity.like(model, tiny.SHAPE), Familiarity.of(model, tiny.images(20))
    assert eqx.tree_equal(*(eqx.filter_eval_shape(lambda tree: tree, tree) for tree in (like, made)))
