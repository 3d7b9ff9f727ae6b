"""The distance from training: Mahalanobis' of features that are worked out by loops, and what it is for."""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from gp import tiny
from scipy.linalg import solve_triangular
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import ledoit_wolf
from sklearn.decomposition import PCA

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


def labels_of(images):
    """Of three classes."""
    return np.arange(len(images)) % 3


def made_of(model, images):
    return Familiarity.of(model, images, labels_of(images), 3)


@pytest.mark.parametrize("name", ["se", "conv", "tick"])
def test_distance_is_that_of_mahalanobis_from_all_images_and_from_those_of_the_class(name, monkeypatch, float64):
    """Of three components, whose variances are far enough apart to be told from the others."""
    monkeypatch.setattr(familiarity, "MOST_COMPONENTS", R := 3)
    model = tiny.perturbed(tiny.build(name, Softmax(3)))
    training, new, classes = tiny.images(40, seed=1), tiny.images(5, seed=2), np.array([2, 0, 1, 1, 0])
    labels, a = labels_of(training), features_by_loops(model.layers[-1], training)
    components = PCA(R).fit(a)
    b = {k: components.transform(a[labels == k]) for k in range(3)}
    inside = np.concatenate([b[k] - b[k].mean(axis=0) for k in range(3)])
    scale = np.sqrt(np.diag(components.components_ @ ledoit_wolf(a)[0] @ components.components_.T))
    shrunk = lambda x: ledoit_wolf(x / scale, assume_centered=True)[0] * np.outer(scale, scale)
    common = shrunk(inside) * len(a) / (len(a) - 3)
    expected = []
    for image, k in zip(features_by_loops(model.layers[-1], new), classes, strict=True):
        whole = mahalanobis(image, a.mean(axis=0), np.linalg.inv(ledoit_wolf(a)[0]))
        n = len(b[k])
        C_k = (n * shrunk(b[k] - b[k].mean(axis=0)) * n / (n - 1) + common) / (n + 1)
        own = mahalanobis(components.transform(image[None])[0], b[k].mean(axis=0), np.linalg.inv(C_k))
        expected.append(np.sqrt(whole**2 / tiny.M / 2 + own**2 / R / 2))
    np.testing.assert_allclose(made_of(model, training).distance(model, new, classes), expected, rtol=1e-5)


def test_what_lies_among_all_images_but_not_among_those_of_its_class_is_far():
    """Between two classes that are long in one direction each: faint strokes between thin ones and thick ones."""
    rng, n = np.random.default_rng(0), 500
    labels = np.arange(2 * n) % 2
    a = rng.normal(size=(2 * n, 2)) * np.where(labels == 0, 1, 10)[:, None]
    cloud = familiarity.Cloud.of(a, labels, 2)
    at = partial(cloud.distance, np.array([[6.0, 6.0]]))
    assert at(np.array([0])) > 3 > 1.2 > at(np.array([1]))
    assert np.mean(cloud.distance(a, labels) ** 2) == pytest.approx(1, rel=0.05)


def test_a_class_with_few_training_images_or_none_takes_the_covariance_of_the_others():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(300, 4))
    rare = np.where(np.arange(300) == 0, 1, 0)
    cloud = familiarity.Cloud.of(a, rare, 3)
    near, far = ([cloud.distance(x, np.array([k])).item() for k in range(3)] for x in (a[:1], a[:1] + 8))
    assert np.isfinite([*near, *far]).all()
    np.testing.assert_allclose(far, far[0], rtol=0.3)
    assert max(near) < min(far)


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


@pytest.mark.parametrize(("num_classes", "each"), [(3, 1), (10, 1), (10, 3)])
def test_with_few_images_of_each_class_new_ones_are_not_far(num_classes, each):
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(num_classes), each)
    cloud = familiarity.Cloud.of(rng.normal(size=(len(labels), 5)), labels, num_classes)
    new = cloud.distance(rng.normal(size=(1000, 5)), rng.integers(num_classes, size=1000))
    assert np.mean(new**2) < 5


def test_the_layer_in_which_an_image_is_furthest_counts():
    model, training, new = tiny.build("deep_tick", Softmax(3)), tiny.images(30, seed=1), tiny.images(20, seed=2)
    made, classes = made_of(model, training), labels_of(new)
    layers = zip(made.clouds, features(model, new), strict=True)
    each = [cloud.distance(np.asarray(a), classes) for cloud, a in layers]
    furthest = np.argmax(each, axis=0)
    assert set(furthest) == {0, 1}
    np.testing.assert_allclose(made.distance(model, new, classes), np.choose(furthest, each), rtol=1e-4)


def test_training_images_are_at_a_distance_of_about_1():
    model, training = tiny.build("tick", Softmax(3)), tiny.images(400, seed=1)
    d = made_of(model, training).distance(model, training, labels_of(training))
    assert np.mean(d**2) == pytest.approx(1, rel=0.1)


def test_fewer_images_than_features_are_enough():
    model, training = tiny.build("tick", Softmax(3)), tiny.images(4, seed=1)
    made, classes = made_of(model, training), labels_of(training)
    near, far = (made.distance(model, x, classes) for x in (training, 5 * tiny.images(4, seed=2)))
    assert np.isfinite(far).all()
    assert near.max() < far.min()


def test_features_that_are_not_finite_are_said():
    model = tiny.build("tick", Softmax(3))
    broken = eqx.tree_at(lambda m: m.layers[0].gp.inducing[0].Z.raw, model, replace_fn=lambda Z: Z.at[0, 0].set(np.nan))
    with pytest.raises(ArithmeticError, match="no finite features for 4 of 4 training images; try a smaller learning"):
        made_of(broken, tiny.images(4))


def test_training_images_that_are_all_alike():
    model, training = tiny.build("tick", Softmax(3)), np.repeat(tiny.images(1), 5, axis=0)
    made, other = made_of(model, training), tiny.images(3, seed=2)
    near, far = (made.distance(model, x, labels_of(x)) for x in (training, other))
    assert near.max() < 0.1 < far.min()


def test_neighbours_do_not_matter():
    model = tiny.build("deep_tick", Softmax(3))
    made, new = made_of(model, tiny.images(30, seed=1)), tiny.images(7, seed=2)
    classes = labels_of(new)
    alone = made.distance(model, new[2:3], classes[2:3])
    np.testing.assert_allclose(made.distance(model, new, classes)[2:3], alone, rtol=1e-5)


def test_of_many_images_a_random_part_is_taken(monkeypatch):
    model, training = tiny.build("conv", Softmax(3)), np.sort(tiny.images(200, seed=1), axis=0)
    whole = made_of(model, training).clouds[0].mean
    monkeypatch.setattr(familiarity, "MOST_IMAGES", 100)
    part = made_of(model, training).clouds[0].mean
    first = made_of(model, training[:100]).clouds[0].mean
    assert 0 < np.linalg.norm(part - whole) < 0.3 * np.linalg.norm(first - whole)


@pytest.mark.parametrize("name", ["se", "tick", "deep_tick"])
def test_one_to_be_filled_has_the_same_shape(name):
    model = tiny.build(name, Softmax(3))
    like, made = Familiarity.like(model, tiny.SHAPE, 3), made_of(model, tiny.images(20))
    assert eqx.tree_equal(*(eqx.filter_eval_shape(lambda tree: tree, tree) for tree in (like, made)))
