import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from tickgp.gp.patches import PatchGrid

steps = st.integers(1, 3)
sizes = st.builds(
    lambda h, w, C, sy, sx, below, right: ((h + below, w + right, C), (h, w), (sy, sx)),
    *[steps] * 5,
    *[st.integers(0, 4)] * 2,
)
"""Any patch, channels and stride, on images up to 4 pixels larger than the patch in each direction."""


def numbered_images(grid, N=2):
    """Images in which no two numbers are equal, so that a pixel taken from the wrong place shows."""
    shape = (N, *grid.image_shape)
    return np.arange(1.0, np.prod(shape) + 1).reshape(shape)


def library_patches(grid, images):
    return np.asarray(jax.jit(grid.patches)(jnp.asarray(images, float)))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(sizes)
def test_patches_and_places_equal_the_loops(sizes):
    grid = PatchGrid(*sizes)
    images, (H, W, _) = numbered_images(grid), grid.image_shape
    expected = reference.patches(images, *grid.patch_shape, *grid.stride)
    np.testing.assert_array_equal(library_patches(grid, images), expected)
    np.testing.assert_array_equal(grid.places(), reference.places(H, W, *grid.patch_shape, *grid.stride))
    assert (grid.num_patches, grid.patch_length) == expected.shape[1:]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(sizes, st.integers(0, 2**32 - 1))
def test_windows_pick_the_same_patches(sizes, seed):
    grid = PatchGrid(*sizes)
    images, rng = numbered_images(grid), np.random.default_rng(seed)
    image, patch = rng.integers(len(images), size=7), rng.integers(grid.num_patches, size=7)
    expected = reference.patches(images, *grid.patch_shape, *grid.stride)[image, patch]
    np.testing.assert_array_equal(grid.windows(images, image, patch), expected)


def test_windows_keep_bytes():
    grid = PatchGrid((3, 3, 1), (2, 2))
    images = numbered_images(grid).astype(np.uint8)
    assert grid.windows(images, np.array([1]), np.array([3])).dtype == np.uint8


def test_order_written_out():
    """Rows before columns for patches, then row, column, channel inside a patch."""
    grid = PatchGrid((2, 3, 2), (2, 2))
    pixels = [[["a", "A"], ["b", "B"], ["c", "C"]], [["d", "D"], ["e", "E"], ["f", "F"]]]
    patches = library_patches(grid, [np.vectorize(ord)(pixels)])[0]
    assert ["".join(map(chr, patch.astype(int))) for patch in patches] == ["aAbBdDeE", "bBcCeEfF"]


@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
def test_last_row_and_column_are_reached(stride):
    """Where the stride fits the image, the last patch ends with the image's last pixel."""
    grid = PatchGrid((7, 8, 1), (3, 2), stride)
    last_pixel = np.zeros((1, 7, 8, 1))
    last_pixel[0, -1, -1] = 1
    expected = np.zeros((grid.num_patches, grid.patch_length))
    expected[-1, -1] = 1
    np.testing.assert_array_equal(library_patches(grid, last_pixel)[0], expected)
    np.testing.assert_array_equal(grid.places()[-1], [4, 6])


def test_stride_one_gives_the_papers_number_of_patches():
    assert PatchGrid((28, 28, 1), (5, 5)).num_patches == 24 * 24
    assert PatchGrid((28, 28, 1), (5, 5), (2, 2)).num_patches == 12 * 12


@pytest.mark.parametrize(
    ("image", "patch", "stride", "message"),
    [
        ((5, 4, 1), (6, 4), (1, 1), "patch 6x4 does not fit in image 5x4; use a patch from 1x1 to 5x4"),
        ((5, 4, 1), (5, 5), (1, 1), "patch 5x5 does not fit in image 5x4; use a patch from 1x1 to 5x4"),
        ((5, 4, 1), (0, 2), (1, 1), "patch 0x2 does not fit in image 5x4"),
        ((5, 4, 1), (2, 2), (0, 1), r"stride \(0, 1\) must be at least 1 in both directions"),
        ((5, 4, 1), (2, 2), (1, -1), r"stride \(1, -1\) must be at least 1 in both directions"),
        ((5, 4), (2, 2), (1, 1), r"image shape \(5, 4\) is not .*give grey images a last axis of length 1"),
        ((2, 5, 4, 1), (2, 2), (1, 1), r"image shape \(2, 5, 4, 1\) is not \(height, width, channels\)"),
        ((5, 4, 0), (2, 2), (1, 1), r"image shape \(5, 4, 0\) is not .*each at least 1"),
    ],
)
def test_impossible_grids_are_refused(image, patch, stride, message):
    with pytest.raises(ValueError, match=message):
        PatchGrid(image, patch, stride)


@pytest.mark.parametrize("shape", [(4, 5, 1), (5, 4, 3), (6, 6, 1)])
def test_images_of_another_shape_are_refused(shape):
    message = rf"images of shape {shape} were given to a model for images of shape (5, 4, 1)"
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        PatchGrid((5, 4, 1), (2, 2)).patches(jnp.zeros((2, *shape)))
