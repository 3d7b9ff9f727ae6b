"""Hard cases in float32: the ELBO and all its gradients stay finite; and no precision is lost or mixed on the way."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from sklearn.datasets import load_digits

from tickgp.gp import variational
from tickgp.gp.covariances import Pointwise
from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from tickgp.gp.linalg import add_diagonal
from tickgp.gp.objective import elbo
from tickgp.gp.params import Positive, trainable
from tickgp.gp.predict import predict

SINGLE = ("tick", "conv", "se")


@eqx.filter_jit
def value_and_gradient(model, x, y, key):
    moving, fixed = eqx.partition(model, trainable(model))
    return eqx.filter_value_and_grad(lambda moving: elbo(eqx.combine(moving, fixed), x, y, 100, key=key))(moving)


def build(name, likelihood=None, **settings):
    """A single-layer model, or a deep one by the name of its sampling."""
    if name in SINGLE:
        return tiny.build(name, likelihood or Softmax(3), **settings)
    return tiny.build("deep_tick", likelihood or Softmax(3), sampling=name, **settings)


def not_finite(model, x, y, key):
    """What of the ELBO and its gradients is not finite, by name."""
    value, slopes = value_and_gradient(model, jnp.asarray(x, float), jnp.asarray(y), key)
    leaves = [("elbo", value), *jax.tree_util.tree_leaves_with_path(slopes)]
    return [jax.tree_util.keystr(path) if path != "elbo" else path for path, a in leaves if not jnp.isfinite(a).all()]


def patch_kernel(layer):
    prior = layer.gp.kernel.covariance
    return prior.kernel if isinstance(prior, Pointwise) else prior.response.patch


def with_values(model, pick, value):
    """`model` with `value` in the positive parameter that `pick` finds in a layer, in all that have one."""
    found = lambda m: [p.raw for p in map(pick, m.layers) if p is not None]
    return eqx.tree_at(found, model, [Positive(value).raw] * len(found(model))) if found(model) else model


def lengthscale(value):
    return lambda model: with_values(model, lambda layer: patch_kernel(layer).lengthscale, value)


def variance(value):
    return lambda model: with_values(model, lambda layer: patch_kernel(layer).variance, value)


def location_lengthscale(value):
    def pick(layer):
        location = getattr(getattr(layer.gp.kernel.covariance, "response", None), "location", None)
        return None if location is None else location.lengthscale

    return lambda model: with_values(model, pick, value)


def same_inducing(model):
    """All inducing variables alike, places as well: Kuu is singular but for the jitter."""
    inducing = lambda m: jax.tree.leaves([layer.gp.inducing for layer in m.layers])
    return eqx.tree_at(inducing, model, [jnp.broadcast_to(a[:1], a.shape) for a in inducing(model)])


def blank_inducing(model):
    inducing = lambda m: [layer.gp.inducing[0].Z.raw for layer in m.layers]
    return eqx.tree_at(inducing, model, [jnp.zeros_like(a) for a in inducing(model)])


X = tiny.images(4)
Y = tiny.labels(4)
IMAGES = {
    "random": X,
    "blank": np.zeros_like(X),
    "ones": np.ones_like(X),
    "duplicate patches": np.broadcast_to(np.indices(tiny.SHAPE[:2]).sum(axis=0)[None, :, :, None] % 2, X.shape),
}
PARAMETERS = {
    "as built": lambda model: model,
    "lengthscale 1e-3": lengthscale(1e-3),
    "lengthscale 1e4": lengthscale(1e4),
    "variance 1e-3": variance(1e-3),
    "variance 1e4": variance(1e4),
    "location lengthscale 1e-2": location_lengthscale(1e-2),
    "location lengthscale 1e4": location_lengthscale(1e4),
    "same inducing": same_inducing,
    "blank inducing": blank_inducing,
}


@pytest.mark.parametrize(
    "name", [*SINGLE, "marginal", *(pytest.param(name, marks=pytest.mark.slow) for name in ("full", "correlated"))]
)
def test_elbo_and_gradients_are_finite(name, key):
    """Every kind of image with every extreme of the parameters; all share the shapes, and so one compilation."""
    model = build(name)
    cases = {(i, p): (change(model), x) for i, x in IMAGES.items() for p, change in PARAMETERS.items()}
    bad = {case: not_finite(changed, x, Y, key) for case, (changed, x) in cases.items()}
    bad["one class"] = not_finite(model, X, np.zeros(4, int), key)
    assert not {case: names for case, names in bad.items() if names}


def test_a_batch_of_one_image(key):
    assert not not_finite(build("tick"), X[:1], Y[:1], key)


@pytest.mark.slow
def test_many_inducing_patches_that_are_nearly_the_same(key):
    """M = 300 within 1e-3 of one patch, and a long lengthscale: Kuu is all ones to the last digits.

    In single precision rounding alone is about M · 6e-8 = 2e-5, above the usual jitter, which training would raise.
    """
    x = X[:1] + 1e-3 * np.random.default_rng(8).normal(size=(301, *tiny.SHAPE))
    model = tiny.builders.tick(
        x, Softmax(3), patch_size=(6, 5), num_inducing=300, lengthscale=100.0, key=key, jitter=1e-4
    )
    assert not not_finite(model, X, Y, key)


def explained(key):
    """A model and its images, of whose first layer's outputs the inducing patches say nearly all."""
    x = load_digits().images[:100, :, :, None] / 16
    settings = {"patch_size": 3, "num_inducing": 200, "channels": 2, "hidden_lengthscale": 10.0, "sampling": "full"}
    return tiny.builders.deep_tick(x, Softmax(3), key=key, **settings), x


@pytest.mark.slow
def test_joint_samples_where_rounding_leaves_a_covariance_that_is_not_positive(key, monkeypatch):
    model, x = explained(key)
    x = model.pixels(jnp.asarray(x))
    assert np.isfinite(model.draw(0, x, key=key)).all()
    monkeypatch.setattr(
        variational, "cholesky_of_rounded", lambda K, jitter: jnp.linalg.cholesky(add_diagonal(K, jitter))
    )
    assert np.isnan(model.draw(0, x, key=key)).any()


@pytest.mark.slow
def test_full_sampling_when_the_inducing_patches_say_nearly_all(key):
    """The covariance of the hidden outputs is then a difference of nearly equal numbers."""
    model, x = explained(key)
    assert not not_finite(model, x[:4], Y, key)


def test_float32_is_near_float64(key):
    """The same model in both, with a likelihood that needs no draws: rounding costs some digits, not the result."""
    model, y = build("tick", Gaussian(1.0, 2)), np.random.default_rng(9).normal(size=(4, 2))
    for (name, change), x in itertools.product(PARAMETERS.items(), IMAGES.values()):
        single, _ = value_and_gradient(change(model), jnp.asarray(x, float), jnp.asarray(y, float), key)
        with jax.enable_x64(True):
            double = jax.tree.map(lambda a: jnp.asarray(a, float), change(model))
            double, _ = value_and_gradient(double, jnp.asarray(x, float), jnp.asarray(y), key)
        np.testing.assert_allclose(single, double, rtol=1e-2, err_msg=name)


LIKELIHOODS = {
    "softmax": lambda: Softmax(3),
    "robustmax": lambda: RobustMax(3),
    "bernoulli": Bernoulli,
    "gaussian": lambda: Gaussian(1.0, 3),
}


@pytest.mark.parametrize(
    ("name", "likelihood"),
    [*(("tick", name) for name in LIKELIHOODS), *((name, "softmax") for name in ("conv", "se", *tiny.SAMPLINGS))],
)
def test_one_precision_throughout(name, likelihood, key):
    """All arrays of a model, its ELBO and every gradient have one type; shapes and types alone are computed."""
    for enabled, dtype in ((True, np.dtype("float64")), (False, np.dtype("float32"))):
        with jax.enable_x64(enabled):
            model = build(name, LIKELIHOODS[likelihood]())
            y = jnp.asarray(tiny.targets(model.likelihood, 4))
            results = eqx.filter_eval_shape(value_and_gradient, model, jnp.asarray(X), y, key)
        assert {a.dtype for a in jax.tree.leaves((model, results))} == {dtype}


@pytest.mark.parametrize("likelihood", ["robustmax", "bernoulli"])
def test_float32_after_float64_in_one_process(likelihood, key):
    """Compiled in one precision first, then in the other: no constant of the first may reach the second."""
    for enabled, dtype in ((True, np.dtype("float64")), (False, np.dtype("float32"))):
        with jax.enable_x64(enabled):
            model = build("se", LIKELIHOODS[likelihood]())
            value = tiny.elbo(model, jnp.asarray(X), jnp.asarray(Y % 2), 4, key=key)
            prediction = predict(model, X, key=key, num_samples=2, batch_size=4)
        assert value.dtype == prediction.probabilities.dtype == prediction.expected_entropy.dtype == dtype
