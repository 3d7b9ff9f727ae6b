"""Gradients of the ELBO against central differences, for every trainable array of every kind of model.

Not with Softmax, whose estimate has derivatives of its own (see test_likelihoods).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from tickgp.gp.kernels import Matern52
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from tickgp.gp.models import DeepGP
from tickgp.gp.multioutput import LinearCoregionalization, Separate
from tickgp.gp.objective import elbo
from tickgp.gp.params import Real, freeze, trainable
from tickgp.gp.variational import SparseGP

pytestmark = pytest.mark.usefixtures("float64")

STEP = 1e-5


def coregionalized():
    """Three outputs mixed from two latents, each with its own kernel and inducing patches."""
    sources = [tiny.build("tick", Softmax(2), location=k, seed=i) for i, k in enumerate((None, Matern52(1.0, 2.0)))]
    gps = [model.layers[0].gp for model in sources]
    kernel = LinearCoregionalization(Separate(tuple(gp.kernel.covariance for gp in gps)), Real(np.ones((3, 2))))
    gp = SparseGP(kernel, tuple(gp.inducing[0] for gp in gps), gps[0].q)
    return DeepGP((Layer(gp, tiny.builders.Zero(3), (3,)),), Gaussian(0.5, 3))


MODELS = {
    "tick": lambda: tiny.build("tick", RobustMax(3)),
    "conv": lambda: tiny.build("conv", Bernoulli(), mean_field=True),
    "se": lambda: tiny.build("se", Gaussian(0.5, 2)),
    "deep_se": lambda: tiny.build("deep_se", RobustMax(3)),
    "coregionalized": coregionalized,
    "marginal": lambda: tiny.build("deep_tick", Gaussian(0.5, 2), sampling="marginal"),
    "full": lambda: tiny.build("deep_tick", RobustMax(3), sampling="full"),
    "correlated": lambda: tiny.build("deep_tick", RobustMax(3), sampling="correlated"),
}


@eqx.filter_jit
def value_and_gradient(moving, fixed, x, y, key):
    return eqx.filter_value_and_grad(lambda moving: elbo(eqx.combine(moving, fixed), x, y, 20, key=key))(moving)


def directions(shape, rng):
    """A random direction, and two single entries."""
    entries = [np.eye(1, int(np.prod(shape)), int(rng.integers(np.prod(shape)))).reshape(shape) for _ in range(2)]
    return [rng.normal(size=shape), *entries] if shape else [np.ones(())]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "full" else []) for name in MODELS]
)
def test_gradients_are_central_differences(name, key):
    model = tiny.perturbed(MODELS[name]())
    data = jnp.asarray(tiny.images(3)), jnp.asarray(tiny.targets(model.likelihood, 3)), key
    moving, fixed = eqx.partition(model, trainable(model))
    leaves, tree = jax.tree.flatten(moving)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(moving)]
    slopes = jax.tree.leaves(value_and_gradient(moving, fixed, *data)[1])
    assert len(slopes) == len(leaves) > 4
    rng = np.random.default_rng(7)

    def along(i, step):
        moved = [*leaves[:i], jnp.asarray(np.asarray(leaves[i]) + step), *leaves[i + 1 :]]
        return float(value_and_gradient(jax.tree.unflatten(tree, moved), fixed, *data)[0])

    for i, (path, leaf, slope) in enumerate(zip(paths, leaves, slopes, strict=True)):
        assert slope.dtype == jnp.float64
        for direction in directions(leaf.shape, rng):
            difference = (along(i, STEP * direction) - along(i, -STEP * direction)) / (2 * STEP)
            expected = np.sum(np.asarray(slope) * direction)
            np.testing.assert_allclose(difference, expected, rtol=1e-5, atol=1e-5, err_msg=path)


def test_frozen_parameters_have_no_gradient_and_do_not_move(key):
    """The location variance as built, the inducing patches by request, and the jitter, which is no parameter."""
    model = freeze(tiny.build("tick", Softmax(3)), lambda m: m.layers[0].gp.inducing[0].Z)
    moving, fixed = eqx.partition(model, trainable(model))
    _, slopes = value_and_gradient(moving, fixed, jnp.asarray(tiny.images(3)), jnp.asarray(tiny.labels(3)), key)
    location = lambda m: m.layers[0].gp.kernel.covariance.response.location
    frozen = {
        "location variance": lambda m: location(m).variance.raw,
        "inducing patches": lambda m: m.layers[0].gp.inducing[0].Z.raw,
        "jitter": lambda m: m.jitter,
    }
    stepped = eqx.apply_updates(model, slopes)
    for where in frozen.values():
        assert where(slopes) is None
        np.testing.assert_array_equal(where(stepped), where(model))
    assert (location(stepped).lengthscale.raw != location(model).lengthscale.raw).all()
    assert (stepped.layers[0].gp.inducing[0].places.raw != model.layers[0].gp.inducing[0].places.raw).any()
