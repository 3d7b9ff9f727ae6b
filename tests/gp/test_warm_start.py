"""A trained model made one layer deeper: what is kept, what is moved, and what the new layer starts from."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import tiny

from tickgp.gp.builders import deep_tick
from tickgp.gp.kernels import AbstractKernel, Matern32, Matern52, SquaredExponential
from tickgp.gp.likelihoods import Softmax
from tickgp.gp.means import IdentityConv
from tickgp.gp.params import Normal, Positive, freeze
from tickgp.gp.variational import MeanField
from tickgp.gp.warm_start import warm_start

pytestmark = pytest.mark.usefixtures("float64")

SHAPE, PATCH, CHANNELS = (9, 8, 1), 3, 2
IMAGES = tiny.images(10, SHAPE)


def trained(name="deep_tick", **settings):
    """A model with every trainable array away from where it started, as after training."""
    key = jax.random.key(0)
    settings = {"patch_size": PATCH, "channels": CHANNELS, "sampling": "full", "jitter": 1e-8, **settings}
    model = getattr(tiny.builders, name)(IMAGES, Softmax(3), num_inducing=tiny.M, key=key, **settings)
    return tiny.perturbed(model)


def identical(a, b):
    """Bit for bit, in tree structure as well."""
    return bool(eqx.tree_equal(a, b, typematch=True))


def expectation(layer, x):
    """Mean of a hidden layer's output (N,rows,columns,G): centre pixels plus Kufᵀ Kuu⁻¹ m, by `reference`."""
    patch = layer.gp.kernel.covariance.response.patch
    k_g = reference.patch_response(reference.se(float(patch.variance.value), float(patch.lengthscale.value)))
    Z, patches = np.asarray(layer.gp.inducing[0].Z.value), reference.patches(x, PATCH, PATCH)
    Kuu = reference.inducing_Kuu(k_g, Z)
    Kuf = reference.mock_Kuf(k_g, Z, None, patches, reference.places(*x.shape[1:3], PATCH, PATCH))
    q_mu, q_sqrt = tiny.moments(layer.gp.q)
    m = [reference.unwhiten(Kuu, *q)[0] for q in zip(q_mu, q_sqrt, strict=True)]
    response = np.stack([np.einsum("mnp,m->np", Kuf, np.linalg.solve(Kuu, u)) for u in m], axis=-1)
    centres = reference.identity_conv(x, PATCH, PATCH, CHANNELS)
    return centres + response.reshape(centres.shape)


@pytest.fixture(scope="module")
def models():
    """A trained model of two layers and the one of three that starts from it."""
    with jax.enable_x64(True):
        old = freeze(trained(), lambda m: m.layers[1].gp.kernel.covariance.response.patch.lengthscale)
        return old, warm_start(old, IMAGES, key=jax.random.key(1))


def test_one_layer_more_before_the_last(models):
    old, new = models
    assert [layer.output_shape for layer in old.layers] == [(7, 6, 2), (3,)]
    assert [layer.output_shape for layer in new.layers] == [(7, 6, 2), (5, 4, 2), (3,)]
    assert (new.sampling, new.jitter, new.likelihood) == (old.sampling, old.jitter, old.likelihood)


def test_the_first_layer_is_kept(models):
    old, new = models
    assert identical(old.layers[0], new.layers[0])


def test_the_last_layer_is_kept_but_for_what_depends_on_the_image_size(models):
    old, new = (model.layers[-1] for model in models)
    before, after = old.gp.kernel.covariance, new.gp.kernel.covariance
    assert identical(before.response, after.response)
    assert identical(old.gp.q, new.gp.q)
    assert identical(old.gp.inducing[0].Z, new.gp.inducing[0].Z)
    assert (after.grid.image_shape, after.grid.patch_shape, after.grid.stride) == ((5, 4, 2), (3, 3), (1, 1))
    # Of 5 x 4 patches a margin of one is gone; f divides by their number.
    kept = before.weights.value.reshape(5, 4)[1:-1, 1:-1].reshape(-1)
    np.testing.assert_allclose(after.weights.value / 6, kept / 20, rtol=1e-12)
    places = old.gp.inducing[0].places.value, new.gp.inducing[0].places.value
    np.testing.assert_allclose(places[1], places[0] - 1, rtol=1e-12)


@pytest.mark.parametrize("name", ["deep_tick", "deep_conv"])
def test_it_is_the_trained_model_without_the_margin(name, key):
    """The new layer's mean is the identity: f of the old model, had it given no weight to the patches at the rim."""
    old = trained(name)
    new = warm_start(old, IMAGES, key=key, q_mu=0.0)
    inside = np.pad(np.ones((3, 2)), 1).reshape(-1)
    weights = lambda model: model.layers[-1].gp.kernel.covariance.weights.raw
    old = eqx.tree_at(weights, old, weights(old) * inside)

    @eqx.filter_jit
    def both(old, new, x):
        x = old.layers[0].expectation(x, old.jitter)
        f = old.layers[-1].marginals(x, old.jitter)
        g = new.layers[-1].marginals(new.layers[1].expectation(x, new.jitter), new.jitter)
        return (f.mean, f.variance), (g.mean, g.variance)

    (mean, variance), found = both(old, new, jnp.asarray(IMAGES))
    np.testing.assert_allclose(found[0], mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[1], variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("patch", "stride", "last_stride"),
    [((3, 3), (1, 1), 2), ((2, 4), (1, 2), 1), ((4, 3), (2, 2), 2), ((1, 1), (1, 1), 2)],
)
def test_weights_and_places_follow_the_pixels(patch, stride, last_stride, key):
    """Patch by patch: where the corner of a new patch was, and which old patch is nearest, the later of two as near."""
    images = tiny.images(10, (16, 15, 1))
    settings = {"patch_size": PATCH, "channels": CHANNELS, "stride": last_stride, "num_inducing": tiny.M, "key": key}
    weights = lambda model: model.layers[-1].gp.kernel.covariance.weights
    old = freeze(tiny.perturbed(tiny.builders.deep_tick(images, Softmax(3), **settings)), weights)
    new = warm_start(old, images, key=key, patch_size=patch, stride=stride)
    before, after = (model.layers[-1].gp for model in (old, new))
    grid, w = before.kernel.covariance.grid, np.asarray(before.kernel.covariance.weights.value)
    moved, expected = after.kernel.covariance.grid, []
    centre = [(side - 1) // 2 for side in patch]
    for row in range(moved.rows):
        for column in range(moved.columns):
            y, x = row * last_stride * stride[0] + centre[0], column * last_stride * stride[1] + centre[1]
            distance = [
                (r * last_stride - y) ** 2 + (c * last_stride - x) ** 2 for r, c in np.ndindex(grid.rows, grid.columns)
            ]
            nearest = np.flatnonzero(distance == np.min(distance))[-1]
            expected.append(w[nearest] / len(w) * stride[0] * stride[1])
    np.testing.assert_allclose(weights(new).value / len(expected), expected, rtol=1e-12)
    assert not weights(new).trainable
    in_old_pixels = np.asarray(after.inducing[0].places.value) * stride + centre
    np.testing.assert_allclose(in_old_pixels, before.inducing[0].places.value, rtol=1e-12)
    old_length, new_length = (gp.kernel.covariance.response.location.lengthscale.value for gp in (before, after))
    np.testing.assert_allclose(new_length * np.sqrt(np.prod(stride)), old_length, rtol=1e-12)


@pytest.mark.parametrize(
    "location",
    [
        Matern32(1.0, 3.0) + SquaredExponential(0.4, 5.0),
        Matern32(1.0, 3.0) * (SquaredExponential(0.4, np.array([5.0, 2.0])) + Matern52(0.2, 4.0)),
    ],
)
def test_every_part_of_a_location_kernel_is_in_the_new_pixels(location, key):
    """Two places are as much alike as they were, with a stride of 2 in both directions."""
    old = trained(location=location)
    new = warm_start(old, IMAGES, key=key, patch_size=2, stride=2)
    before, after = (model.layers[-1].gp.kernel.covariance.response.location for model in (old, new))
    places = jnp.asarray(np.random.default_rng(0).uniform(0, 6, (5, 2)))
    np.testing.assert_allclose(after(places / 2, places / 2), before(places, places), rtol=1e-6)
    assert not identical(before, after)


class Dot(AbstractKernel):
    """1 + scale a·b: how alike two places are depends on where both stand."""

    scale: Positive

    def __call__(self, a, b):
        return 1 + self.scale.value * a @ b.T

    def diag(self, a):
        return 1 + self.scale.value * jnp.sum(a**2, axis=1)


@pytest.mark.parametrize("combine", [lambda k: k, lambda k: k * Matern32(1.0, 3.0)])
def test_a_location_kernel_that_is_not_stationary_wants_a_stride_of_one(combine, key):
    old = trained(location=combine(Dot(Positive(0.1))))
    with pytest.raises(ValueError, match=r"stride of the new layer is \(2, 1\), .* kernel Dot; use a stride of 1, or"):
        warm_start(old, IMAGES, key=key, patch_size=2, stride=(2, 1))
    new = warm_start(old, IMAGES, key=key)
    before, after = (model.layers[-1].gp.kernel.covariance.response for model in (old, new))
    assert identical(before, after)


def test_the_new_layer_starts_as_the_identity(models):
    new = models[1].layers[1]
    x = tiny.images(4, (7, 6, 2), seed=3)
    assert isinstance(new.mean, IdentityConv)
    out = eqx.filter_jit(lambda layer, x: layer.expectation(x, jnp.asarray(1e-8)))(new, jnp.asarray(x))
    np.testing.assert_allclose(out, reference.identity_conv(x, PATCH, PATCH, CHANNELS), atol=0.01)
    kernel = new.gp.kernel.covariance.response.patch
    np.testing.assert_allclose(kernel.variance.value, 0.01, rtol=1e-6)
    patches = reference.patches(expectation(models[0].layers[0], IMAGES), PATCH, PATCH).reshape(-1, 18)
    distances = np.linalg.norm(patches[:, None] - patches, axis=2)[np.triu_indices(len(patches), 1)]
    np.testing.assert_allclose(kernel.lengthscale.value, np.median(distances) / 2, rtol=0.1)  # it looks at a few pairs
    np.testing.assert_array_equal(new.gp.q.q_sqrt.value, np.tile(1e-3 * np.eye(tiny.M), (CHANNELS, 1, 1)))
    np.testing.assert_allclose(np.std(new.gp.q.q_mu.value), 0.01, rtol=0.5)


def test_its_inducing_patches_are_what_the_layer_below_puts_out(models):
    old, new = models
    patches = reference.patches(expectation(old.layers[0], IMAGES), PATCH, PATCH).reshape(-1, 18)
    Z = np.asarray(new.layers[1].gp.inducing[0].Z.value)
    nearest = np.array([np.abs(patches - z).max(axis=1).min() for z in Z])
    assert (nearest < 1e-5).all()
    assert len(np.unique(Z, axis=0)) == tiny.M
    centres = reference.patches(reference.identity_conv(IMAGES, PATCH, PATCH, CHANNELS), PATCH, PATCH).reshape(-1, 18)
    assert min(np.abs(centres - z).max(axis=1).min() for z in Z) > 1e-3


def test_mean_field_and_conv_are_kept(key):
    old = trained("deep_conv", mean_field=True, weights=False)
    new = warm_start(old, IMAGES, key=key)
    assert all(isinstance(layer.gp.q, MeanField) for layer in new.layers)
    assert new.layers[-1].gp.inducing[0].places is None
    assert new.layers[-1].gp.kernel.covariance.weights is None
    assert identical(old.layers[-1].gp.q, new.layers[-1].gp.q)


def test_the_prior_of_weights_is_kept(key):
    old = trained("deep_conv", weight_prior=Normal(1.0, 0.3))
    assert warm_start(old, IMAGES, key=key).layers[-1].gp.kernel.covariance.weights.prior == Normal(1.0, 0.3)


def test_settings_of_the_new_layer(key):
    new = warm_start(trained(), IMAGES, key=key, num_inducing=4, patch_size=2, variance=0.2, q_mu=0.0).layers[1]
    assert new.gp.inducing[0].Z.value.shape == (4, 2 * 2 * CHANNELS)
    np.testing.assert_allclose(new.gp.kernel.covariance.response.patch.variance.value, 0.2, rtol=1e-6)
    np.testing.assert_array_equal(new.gp.q.q_mu.value, np.zeros((CHANNELS, 4)))


def test_with_strides_by_image_size_it_is_of_the_shape_of_a_new_model(key):
    x = tiny.images(10, (28, 28, 1))
    settings = {"stride": None, "hidden_stride": None, "num_inducing": 5, "channels": 2, "key": key}
    two, three = (deep_tick(x, Softmax(3), depth=depth, **settings) for depth in (2, 3))
    grids = [
        [layer.gp.kernel.covariance.grid for layer in model.layers]
        for model in (warm_start(two, x, stride=None, key=key), three)
    ]
    assert grids[0] == grids[1]
    assert [grid.stride for grid in grids[0]] == [(2, 2), (1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("tick", "of a single layer"), ("se", "of a single layer"), ("deep_se", "hidden layers do not put out images")],
)
def test_other_models_are_refused(name, reason, key):
    model = tiny.build(name, Softmax(3))
    with pytest.raises(ValueError, match=rf"{reason}; it needs a trained deep_conv or deep_tick"):
        warm_start(model, tiny.images(), key=key)


def test_images_that_get_too_small_are_refused(key):
    with pytest.raises(ValueError, match="patch 3x3 does not fit in image 2x1"):
        warm_start(tiny.build("deep_tick", Softmax(3)), tiny.images(), key=key)


def test_the_kernel_is_that_of_the_layer_below_or_has_to_be_said(key):
    old = trained("deep_conv", kernel=Matern52)
    assert [type(patch(layer)) for layer in warm_start(old, IMAGES, key=key).layers] == [Matern52] * 3
    both = trained("deep_conv", kernel=lambda variance, scale: Matern52(variance, scale) + Matern52(variance, scale))
    with pytest.raises(ValueError, match="of no known family; say with kernel= which the new one has"):
        warm_start(both, IMAGES, key=key)
    assert type(patch(warm_start(both, IMAGES, kernel=Matern52, key=key).layers[1])) is Matern52


def patch(layer):
    return layer.gp.kernel.covariances[0].response.patch
