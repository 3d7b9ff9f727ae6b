"""The six builders: shapes and initial values of what they build, and what they refuse."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
import tiny

from tickgp.gp import builders, inducing, layer_builders
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.images import to_pixels
from tickgp.gp.kernels import Matern32, SquaredExponential
from tickgp.gp.likelihoods import Bernoulli, Softmax
from tickgp.gp.means import IdentityConv, Linear, Zero
from tickgp.gp.params import AbstractParameter
from tickgp.gp.variational import FullRank, MeanField

GREY, COLOUR = (9, 8, 1), (8, 9, 3)
LIKELIHOOD = Softmax(4)


def build(name, shape=GREY, **settings):
    settings = {"num_inducing": 7, "key": jax.random.key(0), **settings}
    return getattr(builders, name)(tiny.images(12, shape), LIKELIHOOD, **settings)


def response(layer):
    return layer.gp.kernel.covariance.response


def frozen(model):
    """The frozen parameters of a model, with their paths."""
    is_parameter = lambda node: isinstance(node, AbstractParameter)
    leaves = jax.tree_util.tree_leaves_with_path(model, is_leaf=is_parameter)
    return [jax.tree_util.keystr(path) for path, leaf in leaves if is_parameter(leaf) and not leaf.trainable]


def size(length, patch, stride):
    return (length - patch) // stride + 1


def test_sizes_may_be_numbers_of_numpy():
    sizes = {"patch_size": np.int64(3), "stride": (np.int32(2), 1)}
    assert eqx.tree_equal(build("conv", **sizes), build("conv", patch_size=3, stride=(2, 1)))


@pytest.mark.parametrize("name", ["deep_conv", "deep_tick"])
@pytest.mark.parametrize(
    ("shape", "patch", "stride", "hidden_stride", "depth"),
    [
        (GREY, (3, 3), (1, 1), (1, 1), 1),
        (GREY, (3, 2), (2, 1), (1, 2), 2),
        (COLOUR, (2, 3), (1, 2), (2, 1), 2),
        (COLOUR, (2, 2), (1, 1), (1, 1), 3),
    ],
)
def test_shapes_of_convolutional_models(name, shape, patch, stride, hidden_stride, depth):
    model = build(name, shape, patch_size=patch, stride=stride, hidden_stride=hidden_stride, depth=depth, channels=4)
    assert len(model.layers) == depth
    H, W, C = shape
    for layer in model.layers[:-1]:
        grid, inducing = layer.gp.kernel.covariance.grid, layer.gp.inducing[0]
        assert isinstance(layer.gp.kernel.covariance, MultiOutputConvolutional)
        assert isinstance(layer.mean, IdentityConv)
        assert (grid.image_shape, grid.patch_shape, grid.stride) == ((H, W, C), patch, hidden_stride)
        assert inducing.Z.value.shape == (7, patch[0] * patch[1] * C)
        assert inducing.places is None
        assert response(layer).location is None
        assert layer.gp.q.q_mu.value.shape == (4, 7)
        H, W, C = size(H, patch[0], hidden_stride[0]), size(W, patch[1], hidden_stride[1]), 4
        assert layer.output_shape == (H, W, C)
    last = model.layers[-1]
    prior, inducing = last.gp.kernel.covariance, last.gp.inducing[0]
    assert isinstance(prior, Convolutional)
    assert isinstance(last.mean, Zero)
    assert (prior.grid.image_shape, prior.grid.patch_shape, prior.grid.stride) == ((H, W, C), patch, stride)
    P = size(H, patch[0], stride[0]) * size(W, patch[1], stride[1])
    np.testing.assert_array_equal(prior.weights.value, np.ones(P))
    assert inducing.Z.value.shape == (7, patch[0] * patch[1] * C)
    assert (last.gp.q.q_mu.value.shape, last.gp.q.q_sqrt.value.shape) == ((4, 7), (4, 7, 7))
    assert last.output_shape == (4,)
    if name == "deep_conv":
        assert inducing.places is None
        assert prior.response.location is None
    else:
        assert inducing.places.value.shape == (7, 2)


def test_initial_values():
    model = build("deep_tick", patch_size=3)
    hidden, last = model.layers
    for layer, variance, lengthscale in ((hidden, 0.1, 2.0), (last, 5.0, 4.0)):
        assert isinstance(response(layer).patch, SquaredExponential)
        np.testing.assert_allclose(response(layer).patch.variance.value, variance, rtol=1e-6)
        np.testing.assert_allclose(response(layer).patch.lengthscale.value, lengthscale, rtol=1e-6)
    np.testing.assert_array_equal(hidden.gp.q.q_sqrt.value, np.tile(np.float32(1e-3) * np.eye(7), (10, 1, 1)))
    np.testing.assert_array_equal(last.gp.q.q_sqrt.value, np.tile(np.eye(7), (4, 1, 1)))
    np.testing.assert_array_equal(last.gp.q.q_mu.value, np.zeros((4, 7)))
    np.testing.assert_allclose(hidden.gp.q.q_mu.value.std(), 0.01, rtol=0.3)
    assert hidden.gp.q.q_mu.value.std(axis=0).min() > 0.001  # it tells channels apart
    location = response(last).location
    assert isinstance(location, Matern32)
    np.testing.assert_allclose(location.variance.value, 1.0, rtol=1e-6)
    np.testing.assert_allclose(location.lengthscale.value, 3.0, rtol=1e-6)
    assert frozen(model) == [".layers[1].gp.kernel.covariance.response.location.variance"]
    np.testing.assert_allclose(model.jitter, 1e-5)


def test_a_hidden_layer_does_not_begin_as_noise():
    """Even where colour patches are far from all inducing ones, it puts out something near those of the last layer."""
    x = tiny.images(40, (16, 16, 3))
    hidden, last = builders.deep_tick(x, LIKELIHOOD, num_inducing=20, key=jax.random.key(0)).layers
    seen = hidden.sample(jnp.asarray(x[:8], jnp.float32), jnp.asarray(1e-5), "marginal", key=jax.random.key(1))
    grid, patch = last.gp.kernel.covariance.grid, response(last).patch
    rows = np.asarray(grid.patches(seen)).reshape(-1, grid.patch_length)
    correlation = patch(last.gp.inducing[0].Z.value, jnp.asarray(rows[::7])) / patch.variance.value
    assert np.median(correlation) > 0.05


@pytest.mark.parametrize(
    ("shape", "patch", "strides"),
    [
        ((8, 8), 3, (1, 1)),
        ((20, 20), 5, (1, 1)),
        ((21, 21), 5, (2, 1)),
        ((32, 90), 5, (2, 1)),
        ((37, 37), 5, (3, 1)),
        ((100, 100), 5, (5, 1)),
        ((100, 100), 3, (3, 2)),
    ],
)
def test_large_images_are_looked_at_in_strides_that_skip_no_pixel(shape, patch, strides):
    """Each layer by the image that it sees."""
    settings = {"patch_size": patch, "stride": None, "hidden_stride": None, "num_inducing": 5}
    layers = build("deep_conv", (*shape, 1), **settings).layers
    assert [layer.gp.kernel.covariance.grid.stride[0] for layer in layers] == list(strides)
    assert build("conv", (*shape, 1), patch_size=patch, stride=None).layers[0].gp.kernel.covariance.grid.stride == (
        strides[0],
        strides[0],
    )


def test_three_layers_fit_images_of_every_size():
    for side in range(8, 129):
        patch, seen = 5 if side >= 16 else 3, side
        for _ in range(3):
            seen = layer_builders._grid(np.empty((1, seen, seen, 1)), patch, None).rows


def test_a_location_kernel_may_be_made_from_the_size_of_what_the_last_layer_sees():
    """The shorter side, here of images from which the hidden layer cuts two rows and two columns."""
    model = build("deep_tick", patch_size=3, location=lambda side: SquaredExponential(1.0, side / 4))
    last = model.layers[-1].gp.kernel.covariance
    assert last.grid.image_shape == (7, 6, 10)
    np.testing.assert_allclose(last.response.location.lengthscale.value, 6 / 4, rtol=1e-6)


@pytest.mark.parametrize("location", [SquaredExponential, lambda side: None, lambda side: side / 2])
def test_what_makes_no_location_kernel_is_refused(location):
    with pytest.raises(ValueError, match="was given as the location kernel; use a kernel, such as Matern32"):
        build("tick", patch_size=3, location=location)


def test_settings_replace_the_initial_values():
    model = build(
        "deep_tick",
        patch_size=3,
        location=SquaredExponential(1.0, 2.0),
        weights=False,
        variance=2.0,
        lengthscale=0.7,
        hidden_variance=0.3,
        hidden_lengthscale=1.4,
        hidden_q_mu=0.0,
        mean_field=True,
        sampling="marginal",
        jitter=1e-3,
    )
    hidden, last = model.layers
    kernels = [
        (float(k.variance.value), float(k.lengthscale.value)) for k in (response(hidden).patch, response(last).patch)
    ]
    np.testing.assert_allclose(kernels, [(0.3, 1.4), (2.0, 0.7)], rtol=1e-6)
    assert isinstance(response(last).location, SquaredExponential)
    assert last.gp.kernel.covariance.weights is None
    np.testing.assert_array_equal(hidden.gp.q.q_mu.value, np.zeros((10, 7)))
    assert isinstance(hidden.gp.q, MeanField)
    np.testing.assert_allclose(hidden.gp.q.q_std.value, 1e-3, rtol=1e-5)
    np.testing.assert_allclose(last.gp.q.q_std.value, 1.0, rtol=1e-6)
    assert (model.sampling, float(model.jitter)) == ("marginal", pytest.approx(1e-3))


def test_hidden_layers_alone_can_be_mean_field():
    model = build("deep_conv", depth=3, patch_size=2, hidden_mean_field=True)
    assert [type(layer.gp.q) for layer in model.layers] == [MeanField, MeanField, FullRank]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_pointwise_models(depth):
    model = build("deep_se", COLOUR, depth=depth, width=5)
    length = 8 * 9 * 3
    for i, layer in enumerate(model.layers):
        hidden = i < depth - 1
        F = 5 if hidden else 4
        assert layer.output_shape == (F,)
        assert layer.gp.inducing[0].Z.value.shape == (7, length)
        assert isinstance(layer.mean, Linear if hidden else Zero)
        np.testing.assert_allclose(layer.gp.kernel.covariance.kernel.variance.value, 1.0 if hidden else 5.0, rtol=1e-6)
        np.testing.assert_array_equal(layer.gp.q.q_mu.value, np.zeros((F, 7)))
        np.testing.assert_allclose(layer.gp.q.q_sqrt.value[0], (1e-3 if hidden else 1.0) * np.eye(7), rtol=1e-6)
        length = F
    assert len(model.layers) == depth
    assert len(frozen(model)) == 2 * (depth - 1)


def test_hidden_mean_of_pointwise_models_is_pca():
    x = tiny.images(12, GREY).reshape(12, -1)
    mean = build("deep_se", width=5).layers[0].mean(jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(np.mean(mean, axis=0), 0, atol=1e-4)
    largest = np.sort(np.linalg.eigvalsh(np.cov(x.T)))[::-1][:5]
    np.testing.assert_allclose(np.cov(np.asarray(mean).T), np.diag(largest), atol=1e-3)


def among(rows, candidates):
    """Is every row one of the candidates?"""
    return np.array([np.abs(candidates - row).max(axis=1).min() for row in np.asarray(rows)]) < 1e-5


def test_inducing_patches_are_patches_of_what_a_layer_sees():
    model, x = build("deep_tick", COLOUR, patch_size=(2, 3), depth=3, channels=4), tiny.images(12, COLOUR)
    for layer in model.layers:
        patches = reference.patches(x, 2, 3)
        Z = np.asarray(layer.gp.inducing[0].Z.value)
        assert among(Z, patches.reshape(-1, patches.shape[2])).all()
        assert len(np.unique(Z, axis=0)) == 7
        x, seen = reference.identity_conv(x, 2, 3, 4), x
    last = model.layers[-1].gp.inducing[0]
    patches, places = reference.patches(seen, 2, 3), reference.places(*seen.shape[1:3], 2, 3)
    pairs = np.concatenate([patches, np.tile(places, (12, 1, 1))], axis=2)
    assert among(np.concatenate([last.Z.value, last.places.value], axis=1), pairs.reshape(-1, pairs.shape[2])).all()


def test_inducing_images_are_images():
    x = tiny.images(12, GREY).reshape(12, -1)
    assert among(build("se").layers[0].gp.inducing[0].Z.value, x).all()


@pytest.mark.parametrize("name", ["se", "conv"])
def test_no_lengthscale_means_half_the_median_distance(name):
    """Over all pairs, where the library takes a few hundred."""
    settings = {} if name == "se" else {"patch_size": 3}
    images = np.random.default_rng(2).uniform(size=(60, *GREY))
    model = getattr(builders, name)(
        images, LIKELIHOOD, lengthscale="median", num_inducing=7, key=jax.random.key(0), **settings
    )
    rows = images.reshape(60, -1) if name == "se" else reference.patches(images, 3, 3).reshape(-1, 9)[::4]
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    prior = model.layers[0].gp.kernel.covariance
    kernel = prior.kernel if name == "se" else prior.response.patch
    np.testing.assert_allclose(kernel.lengthscale.value, np.median(distances[distances > 0]) / 2, rtol=0.05)


def test_lengthscales_of_dimensions_and_wrong_ones():
    ones = np.ones(9, np.float32)
    kernel = build("conv", patch_size=3, lengthscale=2 * ones).layers[0].gp.kernel.covariance.response.patch
    np.testing.assert_allclose(kernel.lengthscale.value, 2 * ones, rtol=1e-6)
    for name, settings, length in (
        ("conv", {"patch_size": 3}, "9, one for each number of a patch"),
        ("deep_conv", {"patch_size": 3, "channels": 2}, "18, one for each number of a patch"),
        ("se", {}, "72, one for each number of an input"),
    ):
        with pytest.raises(ValueError, match=rf"shape \(4,\) was given; use a number, or a vector of {length}$"):
            build(name, lengthscale=np.ones(4, np.float32), **settings)
    for wrong in (None, "mean"):
        with pytest.raises(ValueError, match=f"lengthscale {wrong!r} was given; use a number, or 'median'"):
            inspect.unwrap(layer_builders._number)(wrong, np.zeros((2, 3)))


def test_settings_of_a_deep_se_gps_kernel_are_of_its_last_layer():
    plain, given = (build("deep_se", width=4, **settings) for settings in ({}, {"variance": 3.0, "lengthscale": 7.0}))
    kernels = [[layer.gp.kernel.covariance.kernel for layer in model.layers] for model in (plain, given)]
    hidden, last = ([float(k.variance.value), float(k.lengthscale.value)] for k in kernels[1])
    assert hidden == [float(kernels[0][0].variance.value), float(kernels[0][0].lengthscale.value)]
    assert last == pytest.approx([3.0, 7.0])


def test_the_key_decides():
    first, again, other = (build("tick", patch_size=3, key=jax.random.key(seed)) for seed in (3, 3, 4))
    same = lambda a, b: all(jax.tree.leaves(jax.tree.map(lambda p, q: bool((p == q).all()), a, b)))
    assert same(first, again)
    assert not same(first, other)


def test_bytes_and_pixels_build_the_same_model(key):
    x = np.random.default_rng(4).integers(0, 256, (12, *GREY), dtype=np.uint8)
    models = [builders.tick(images, Bernoulli(), num_inducing=7, key=key) for images in (x, x / 255)]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *models)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, key: layer_builders.image_layer(x, 2, patch_size=3, num_inducing=4, key=key),
        lambda x, key: layer_builders.class_layer(x, 2, patch_size=3, num_inducing=4, key=key),
        lambda x, key: layer_builders.point_layer(x, Zero(2), 2, num_inducing=4, key=key),
    ],
)
def test_a_layer_by_itself_takes_bytes_too(make, key):
    """Differences of bytes would wrap around, and the median distance be wrong."""
    x = np.random.default_rng(4).integers(0, 256, (12, *GREY), dtype=np.uint8)
    layers = make(x, key), make(np.asarray(to_pixels(jnp.asarray(x))), key)
    assert eqx.tree_equal(*layers)


def test_only_the_patches_that_are_picked_are_made_floats(key, monkeypatch):
    """All images as floats would take four times the memory of their bytes, and more."""
    sizes = []

    def counting(images):
        sizes.append(images.size)
        return to_pixels(images)

    for module in (builders, layer_builders, inducing):
        monkeypatch.setattr(module, "to_pixels", counting)
    x = np.random.default_rng(4).integers(0, 256, (2000, 20, 20, 3), dtype=np.uint8)
    builders.deep_tick(x, Softmax(2), patch_size=3, num_inducing=10, channels=3, key=key)
    assert 0 < max(sizes) < x.size / 2


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("deep_conv", {"patch_size": 5}, "from 1x1 to 5x4, or a smaller stride of hidden layers"),
        ("deep_conv", {"patch_size": 4, "num_inducing": 73}, r"at most 72 \(num-inducing\), or a smaller stride of .*"),
        ("deep_conv", {"patch_size": 3, "variance": 0.0}, "every entry must be above 1e-06 and at most 1e\\+18"),
        ("deep_conv", {"patch_size": 10}, "from 1x1 to 9x8"),
        ("deep_se", {"width": 13}, "use a width of at most that"),
    ],
)
def test_a_smaller_stride_is_advised_where_it_would_help(name, settings, message):
    """Only where what a hidden layer puts out is too small."""
    with pytest.raises(ValueError, match=rf"layer [12] of 2: .*{message}$"):
        build(name, **settings)


def test_points_have_no_stride(key):
    """The first principal component has two values for four images: the sign of their first pixel."""
    x = np.array([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]]).reshape(4, 1, 2, 1)
    with pytest.raises(ValueError, match=r"layer 2 of 2: 3 inducing .*; use at most 2 \(num-inducing\)$"):
        builders.deep_se(x, LIKELIHOOD, width=1, num_inducing=3, key=key)


NAN = tiny.images(12, GREY) * np.where(np.arange(12) == 3, np.nan, 1)[:, None, None, None]


@pytest.mark.parametrize(
    ("name", "images", "settings", "message"),
    [
        ("deep_tick", None, {"depth": 0}, "depth 0 was asked for; the least is 1"),
        ("deep_se", None, {"depth": 0}, "depth 0 was asked for; the least is 1"),
        ("tick", None, {"patch_size": 9}, "patch 9x9 does not fit in image 9x8"),
        ("deep_conv", None, {"patch_size": 5}, "patch 5x5 does not fit in image 5x4; use a patch from 1x1 to 5x4"),
        ("tick", None, {"stride": 0}, "must be at least 1"),
        ("se", None, {"num_inducing": 13}, "13 inducing variables were asked for.*use at most 12"),
        ("conv", None, {"patch_size": 8, "num_inducing": 25}, "have only 24 distinct patches; use at most 24"),
        ("deep_se", None, {"width": 13}, "use a width of at most that"),
        ("tick", NAN, {}, "1 of 12 images hold NaN"),
        ("se", NAN[..., 0], {}, r"shape \(12, 9, 8\); they must be \(number, height, width, channels\)"),
        ("conv", np.full((2, 9, 8, 1), "a"), {}, "give bytes"),
        ("conv", None, {"variance": 0.0}, "positive parameter was given 0"),
        ("conv", np.zeros((1, 260, 70, 1), np.uint8), {}, "have 16,896 patches, .* can have 16,384; use smaller"),
    ],
)
def test_wrong_input_is_refused(name, images, settings, message, key):
    images = tiny.images(12, GREY) if images is None else images
    with pytest.raises(ValueError, match=message):
        getattr(builders, name)(images, LIKELIHOOD, **{"num_inducing": 7, "key": key, **settings})
