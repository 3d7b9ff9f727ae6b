"""Hard cases in float32: the ELBO and all its gradients stay finite; and no precision is lost or mixed on the way."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from tickgp.gp.covariances import Pointwise
from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
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


@pytest.mark.parametrize("name", [*SINGLE, *tiny.SAMPLINGS])
def test_elbo_and_gradients_are_finite(name, key):
    """Every kind of image with every extreme of the parameters; all share the shapes, and so one compilation."""
    model = build(name)
    cases = {(i, p): (change(model), x) for i, x in IMAGES.items() for p, change in PARAMETERS.items()}
    bad = {case: not_finite(changed, x, Y, key) for case, (changed, x) in cases.items()}
    bad["one class"] = not_finite(model, X, np.zeros(4, int), key)
    assert not {case: names for case, names in bad.items() if names}


@pytest.mark.parametrize("name", ["tick", "correlated"])
def test_a_batch_of_one_image(name, key):
    assert not not_finite(build(name), X[:1], Y[:1], key)


@pytest.mark.parametrize("name", ["tick", "se"])
def test_many_inducing_variables_that_are_nearly_the_same(name, key):
    """M = 300 within 1e-3 of one patch or image, and a long lengthscale: Kuu is all ones to the last digits."""
    rng = np.random.default_rng(8)
    x = X[:1] + 1e-3 * rng.normal(size=(301, *tiny.SHAPE))
    settings = {"patch_size": (6, 5)} if name == "tick" else {}
    model = getattr(tiny.builders, name)(x, Softmax(3), num_inducing=300, lengthscale=100.0, key=key, **settings)
    assert not not_finite(model, X, Y, key)


def test_full_sampling_when_the_inducing_patches_say_nearly_all(key):
    """The covariance of the hidden outputs is then a difference of nearly equal numbers."""
    model = tiny.builders.deep_tick(
        tiny.images(20, (8, 8, 1)),
        Softmax(3),
        patch_size=3,
        num_inducing=50,
        channels=2,
        hidden_lengthscale=10.0,
        sampling="full",
        key=key,
    )
    assert not not_finite(model, tiny.images(4, (8, 8, 1)), Y, key)


@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_float32_is_near_float64(parameters, images, key):
    """The same model in both, with a likelihood that needs no draws. Rounding costs a few digits, not the result."""
    model, x = PARAMETERS[parameters](build("tick", Bernoulli())), jnp.asarray(IMAGES[images], float)
    single, _ = value_and_gradient(model, x, jnp.asarray(Y % 2), key)
    with jax.enable_x64(True):
        model, x = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), (model, x))
        double, _ = value_and_gradient(model, x, jnp.asarray(Y % 2), key)
    np.testing.assert_allclose(single, double, rtol=1e-2)


def dtypes(model, y, key):
    """The types of the ELBO and of every gradient; nothing is computed."""
    y = jnp.asarray(y, float if isinstance(model.likelihood, Gaussian) else int)
    return {
        a.dtype
        for a in jax.tree.leaves(eqx.filter_eval_shape(value_and_gradient, model, jnp.asarray(X, float), y, key))
    }


LIKELIHOODS = {
    "softmax": Softmax,
    "robustmax": RobustMax,
    "bernoulli": lambda _: Bernoulli(),
    "gaussian": lambda k: Gaussian(1.0, k),
}


@pytest.mark.parametrize("name", [*SINGLE, *tiny.SAMPLINGS])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_one_precision_throughout(name, likelihood, key):
    for enabled, dtype in ((True, jnp.float64), (False, jnp.float32)):
        with jax.enable_x64(enabled):
            model = build(name, LIKELIHOODS[likelihood](3))
            assert {a.dtype for a in jax.tree.leaves(model)} == {dtype}
            assert dtypes(model, tiny.targets(model.likelihood, 4), key) == {dtype}


@pytest.mark.parametrize("likelihood", [Bernoulli, lambda: RobustMax(3), lambda: Softmax(3)])
def test_float32_after_float64_in_one_process(likelihood, key):
    """Compiled in one precision first, then in the other: no constant of the first may reach the second."""
    for enabled, dtype in ((True, jnp.float64), (False, jnp.float32)):
        with jax.enable_x64(enabled):
            model = build("se", likelihood())
            value = tiny.elbo(model, jnp.asarray(X, float), jnp.asarray(Y % 2), 4, key=key)
            prediction = predict(model, X, key=key, num_samples=2, batch_size=4)
        assert value.dtype == prediction.probabilities.dtype == prediction.expected_entropy.dtype == dtype
