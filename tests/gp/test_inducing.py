import jax
import numpy as np
import pytest
import reference

from tickgp.gp.convolution import PatchResponse
from tickgp.gp.inducing import choose_patches, choose_points
from tickgp.gp.kernels import Matern32, SquaredExponential
from tickgp.gp.patches import PatchGrid

GRID = PatchGrid((6, 5, 1), (3, 3))
every_initialiser = pytest.mark.parametrize("how", ["random", "kmeans", "greedy"])
loop_conv = reference.patch_response(reference.se(1.0, 1.0))
loop_tick = reference.patch_response(reference.se(1.0, 1.0), reference.matern32(1.0, 3.0))


def conv():
    return PatchResponse(SquaredExponential(1.0, 1.0))


def tick():
    return PatchResponse(SquaredExponential(1.0, 1.0), Matern32(1.0, 3.0))


def random_images(N=8, levels=None, grid=GRID):
    """Images whose pixels are binary fractions (exact in float32), or one of a few levels."""
    rng = np.random.default_rng(0)
    shape = (N, *grid.image_shape)
    return rng.integers(levels, size=shape) * 1.0 if levels else rng.integers(2**12, size=shape) / 2**12


def every_pair(images, grid=GRID):
    """All patches (T,E) of all images, and the place (T,2) of each."""
    patches = reference.patches(images, *grid.patch_shape, *grid.stride)
    H, W, _ = grid.image_shape
    places = reference.places(H, W, *grid.patch_shape, *grid.stride)
    return patches.reshape(-1, patches.shape[2]), np.tile(places, (len(images), 1))


def as_set(*columns):
    """The set of rows of the columns put side by side."""
    return set(map(tuple, np.concatenate([np.asarray(c, float) for c in columns], axis=1)))


def arrays(inducing):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(inducing)]


@pytest.mark.parametrize("how", ["random", "greedy"])
@pytest.mark.parametrize("levels", [2, None])
def test_patches_are_distinct_and_occur_in_the_images(how, levels, key):
    images = random_images(levels=levels)
    Z = choose_patches(GRID, images, 40, conv(), how=how, key=key)
    assert Z.places is None
    chosen = as_set(Z.Z.value)
    assert len(chosen) == Z.num_inducing == 40
    assert chosen <= as_set(every_pair(images)[0])


@pytest.mark.parametrize("how", ["random", "greedy"])
@pytest.mark.parametrize("levels", [1, 2, None])
def test_pairs_are_distinct_and_occur_at_that_place(how, levels, key):
    """With one level all images are blank: a patch, at every place."""
    images = random_images(levels=levels)
    Z = choose_patches(GRID, images, 12, tick(), how=how, places="true", key=key)
    pairs = as_set(Z.Z.value, Z.places.value)
    assert len(pairs) == Z.num_inducing == 12
    assert pairs <= as_set(*every_pair(images))


def test_kmeans_pairs_of_blank_images_are_distinct(key):
    blank = np.zeros((3, *GRID.image_shape))
    Z = choose_patches(GRID, blank, 6, tick(), how="kmeans", places="true", key=key)
    assert len(as_set(Z.Z.value, Z.places.value)) == 6


def test_every_pair_can_be_chosen(key):
    """Asking for all there are gives all: no image, patch, row or column is out of reach."""
    images = random_images(N=3)
    Z = choose_patches(GRID, images, 3 * GRID.num_patches, tick(), places="true", key=key)
    assert as_set(Z.Z.value, Z.places.value) == as_set(*every_pair(images))


@pytest.mark.parametrize("grid", [GRID, PatchGrid((6, 5, 3), (2, 3), (2, 1))])
def test_all_rows_and_columns_are_about_equally_likely(grid, key):
    images, M = random_images(N=200, grid=grid), 1200
    places = choose_patches(grid, images, M, tick(), places="true", key=key).places.value
    found, counts = np.unique(places, axis=0, return_counts=True)
    np.testing.assert_array_equal(found, every_pair(images[:1], grid)[1])
    mean = M / grid.num_patches
    assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)


@every_initialiser
def test_uniform_places_fill_the_image(how, key):
    """In [0,H] × [0,W], not just where upper-left corners can be, and independent of the patch."""
    Z = choose_patches(GRID, random_images(N=30), 300, tick(), how=how, places="uniform", key=key)
    places = np.asarray(Z.places.value)
    assert len(as_set(places)) == 300
    for column, size in zip(places.T, GRID.image_shape[:2], strict=True):
        assert 0 <= column.min() < 0.03 * size
        assert 0.97 * size < column.max() <= size
        quarters = np.histogram(column, bins=4, range=(0, size))[0]
        assert np.abs(quarters - 75).max() < 5 * np.sqrt(75)
    assert abs(np.corrcoef(places.T)[0, 1]) < 5 / np.sqrt(300)


@every_initialiser
@pytest.mark.parametrize("levels", [1, 2])
def test_more_than_there_are_patches_is_refused(how, levels, key):
    images = random_images(N=2, levels=levels)
    available = len(as_set(every_pair(images)[0]))
    message = f"30 inducing variables .* the 2 images have only {available} distinct patches; use at most {available}"
    with pytest.raises(ValueError, match=message):
        choose_patches(GRID, images, 30, conv(), how=how, key=key)


@pytest.mark.parametrize("places", ["true", "uniform"])
def test_more_than_there_are_pairs_is_refused(places, key):
    blank = np.zeros((5, *GRID.image_shape))
    message = "13 inducing variables .* the 5 images have only 12 distinct pairs of patch and place; use at most 12"
    with pytest.raises(ValueError, match=message):
        choose_patches(GRID, blank, 13, tick(), places=places, key=key)
    assert choose_patches(GRID, blank, 12, tick(), places=places, key=key).num_inducing == 12


def test_kmeans_centres_are_means_of_their_clusters_and_lower_the_inertia(key):
    images = random_images(N=30)
    pool, _ = every_pair(images)

    def inertia(centres):
        distances = np.sum((pool[:, None] - centres[None]) ** 2, axis=-1)
        return distances.min(axis=1).sum(), distances.argmin(axis=1)

    centres = np.asarray(choose_patches(GRID, images, 10, conv(), how="kmeans", key=key).Z.value)
    least, label = inertia(centres)
    means = np.stack([pool[label == i].mean(axis=0) for i in range(10)])
    np.testing.assert_allclose(centres, means, atol=0.02)
    for seed in range(5):
        at_random = choose_patches(GRID, images, 10, conv(), key=jax.random.key(seed)).Z.value
        assert least < 0.9 * inertia(np.asarray(at_random))[0]


def test_kmeans_clusters_patches_and_places_together(key):
    """Every centre is the mean of the pairs nearest to it, in the metric where both parts have the same spread."""
    images = random_images()
    Z = choose_patches(GRID, images, 6, tick(), how="kmeans", places="true", key=key)
    patches, places = every_pair(images)
    weight = np.sqrt(patches.var(axis=0).sum() / places.var(axis=0).sum())
    pool = np.concatenate([patches, weight * places], axis=1)
    centres = np.concatenate([Z.Z.value, weight * Z.places.value], axis=1)
    nearest = np.sum((pool[:, None] - centres) ** 2, axis=2).argmin(axis=1)
    means = [pool[nearest == i].mean(axis=0) for i in range(6)]
    np.testing.assert_allclose(centres, means, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_inducing": 0}, "0 inducing variables were asked for; use at least 1"),
        ({"num_inducing": -3}, "-3 inducing variables"),
    ],
)
def test_a_number_below_one_is_refused(settings, words, key):
    with pytest.raises(ValueError, match=words):
        choose_patches(GRID, random_images(), response=conv(), key=key, **settings)


def test_images_of_another_shape_are_refused(key):
    with pytest.raises(ValueError, match="were given to a model for images of shape"):
        choose_patches(GRID, np.zeros((3, 20, 20, 1)), 2, conv(), key=key)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("places", ["none", "true"])
def test_greedy_takes_the_largest_conditional_variance_each_time(places, key):
    """The first is free, since all prior variances are equal; each next is the only argmax given those before."""
    images = random_images(N=2)
    patches, where = every_pair(images)
    k_g = loop_tick if places == "true" else loop_conv
    Z = choose_patches(GRID, images, 20, tick() if places == "true" else conv(), how="greedy", places=places, key=key)
    picked = [int(np.flatnonzero((patches == z).all(axis=1))[0]) for z in np.asarray(Z.Z.value)]
    K = reference.inducing_Kuu(k_g, patches, where)
    for i in range(1, 20):
        before = picked[:i]
        conditional = np.diag(K - K[:, before] @ np.linalg.inv(K[np.ix_(before, before)]) @ K[before])
        assert conditional.argmax() == picked[i]


def log_det(inducing):
    Z, places = np.asarray(inducing.Z.value, float), np.asarray(inducing.places.value, float)
    return np.linalg.slogdet(reference.inducing_Kuu(loop_tick, Z, places))[1]


def test_greedy_has_a_larger_determinant_than_random_choice(key):
    images = random_images(N=5)
    choose = lambda how, key: choose_patches(GRID, images, 12, tick(), how=how, places="true", key=key)
    random_ones = [log_det(choose("random", jax.random.key(seed))) for seed in range(10)]
    assert log_det(choose("greedy", key)) > max(random_ones) + 0.1


@pytest.mark.parametrize("how", ["kmeans", "greedy"])
def test_few_distinct_patches_are_not_looked_for_in_all_images(how, key, monkeypatch):
    """Of binary pixels there are 16 patches of 2x2, and 10 000 are wished for to choose 8 from: one look is enough."""
    grid, looks = PatchGrid((6, 5, 1), (2, 2)), []
    windows = PatchGrid.windows
    monkeypatch.setattr(PatchGrid, "windows", lambda *args: [looks.append(len(args[2])), windows(*args)][1])
    images = random_images(N=5000, levels=2, grid=grid)
    Z = choose_patches(grid, images, 8, conv(), how=how, key=key)
    assert looks == [40_000]
    assert len(as_set(Z.Z.value)) == 8


def test_rare_patches_are_looked_for_in_all_images(key):
    """All but one of 5000 images are blank: asked for all there are, it goes on until it has found them."""
    grid = PatchGrid((6, 5, 1), (2, 2))
    images = random_images(N=5000, grid=grid) * (np.arange(5000) == 17)[:, None, None, None]
    Z = choose_patches(grid, images, 21, conv(), how="greedy", key=key)
    assert as_set(Z.Z.value) == as_set(every_pair(images[16:18], grid)[0])


@every_initialiser
@pytest.mark.parametrize("places", ["none", "uniform", "true"])
def test_same_key_same_choice(how, places, key):
    choose = lambda key: arrays(choose_patches(GRID, random_images(), 6, tick(), how=how, places=places, key=key))
    for one, again in zip(choose(key), choose(key), strict=True):
        np.testing.assert_array_equal(one, again)
    other = choose(jax.random.key(1))
    assert not any(np.array_equal(a, b) for a, b in zip(choose(key), other, strict=True))


@every_initialiser
def test_points_are_chosen_likewise(how, key):
    """Distinct rows of the inputs, images being taken as vectors; centres for k-means."""
    images = np.repeat(random_images(N=20), 2, axis=0)
    Z = choose_points(images, 8, SquaredExponential(), how=how, key=key).value
    assert len(as_set(Z)) == 8
    rows = images.reshape(40, -1)
    assert (as_set(Z) <= as_set(rows)) is (how != "kmeans")
    np.testing.assert_array_equal(Z, choose_points(rows, 8, SquaredExponential(), how=how, key=key).value)
    assert not np.array_equal(Z, choose_points(images, 8, SquaredExponential(), how=how, key=jax.random.key(1)).value)


@every_initialiser
def test_more_points_than_distinct_inputs_are_refused(how, key):
    x = np.repeat(np.eye(4), 3, axis=0)
    with pytest.raises(ValueError, match=r"5 inducing variables were asked for, .* only 4 distinct .*; use at most 4"):
        choose_points(x, 5, SquaredExponential(), how=how, key=key)
    assert as_set(choose_points(x, 4, SquaredExponential(), how=how, key=key).value) == as_set(np.eye(4))
