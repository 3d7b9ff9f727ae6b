import jax.numpy as jnp
import numpy as np
import pytest

from tickgp.gp.images import check_images, check_inputs, check_labels, to_pixels


def with_pixel(value, *places):
    images = np.zeros((4, 3, 3, 1))
    for place in places:
        images[place] = value
    return images


def test_every_byte_is_divided_by_255():
    bytes_ = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)
    pixels = to_pixels(jnp.asarray(bytes_))
    assert pixels.dtype == jnp.float32
    np.testing.assert_allclose(pixels, bytes_.astype(float) / 255, rtol=1e-7)
    assert (float(pixels.min()), float(pixels.max())) == (0.0, 1.0)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
def test_other_numbers_are_not_scaled(dtype):
    images = np.array([-3, 0, 1, 200]).astype(dtype).reshape(1, 2, 2, 1)
    pixels = to_pixels(jnp.asarray(images))
    assert pixels.dtype == jnp.float32
    np.testing.assert_array_equal(pixels, images.astype(float))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_good_images_pass_unchanged(dtype):
    images = (np.arange(24) / 8).reshape(2, 3, 4, 1).astype(dtype)
    for given in (images, jnp.asarray(images, None if dtype == np.uint8 else jnp.float32)):
        checked = check_images(given)
        assert checked.dtype == given.dtype
        np.testing.assert_array_equal(checked, images)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((28, 28)), r"shape \(28, 28\); they must be \(number, height, width, channels\): add a last axis"),
        (np.zeros((5, 28, 28)), r"shape \(5, 28, 28\); .* add a last axis of length 1 to grey images, and a first one"),
        (np.zeros((1, 5, 28, 28, 1)), r"images have shape \(1, 5, 28, 28, 1\)"),
        (np.zeros((2, 3, 3, 1), np.int64), r"images have type int64; give bytes \(uint8\), or floats between 0 and 1"),
        (np.zeros((2, 3, 3, 1), complex), "images have type complex128; give bytes"),
        (np.full((2, 3, 3, 1), "a"), "images have type <U1; give bytes"),
        (np.full((2, 3, 3, 1), None), "images have type object; give bytes"),
        (np.zeros((0, 3, 3, 1)), r"shape \(0, 3, 3, 1\); there must be at least one image of at least one pixel"),
        (np.zeros((2, 3, 3, 0)), r"shape \(2, 3, 3, 0\); there must be at least one image of at least one pixel"),
        (with_pixel(np.nan, (1, 2, 0)), "1 of 4 images hold NaN or infinite pixels; remove or fill them"),
        (np.full((2, 3, 3, 1), 255.0), "pixels go from 255 to 255; .* floats between 0 and 1: divide them by"),
        (with_pixel(-np.inf, (0, 0, 0), (3, 1, 1), (3, 1, 2)), "2 of 4 images hold NaN or infinite pixels"),
    ],
)
def test_bad_images_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        check_images(images)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_good_labels_pass_unchanged(dtype):
    labels = np.array([0, 2, 1, 2]).astype(dtype)
    checked = check_labels(labels, 4, 3)
    assert checked.dtype == dtype
    np.testing.assert_array_equal(checked, labels)
    np.testing.assert_array_equal(check_labels(jnp.asarray(labels), 4, 3), labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((4, 1), int), r"labels have shape \(4, 1\); give one label for each of the 4 images"),
        (np.zeros(3, int), r"labels have shape \(3,\); give one label for each of the 4 images"),
        (np.int64(1), r"labels have shape \(\); give one label for each of the 4 images"),
        (np.zeros(4), "labels have type float64; give whole numbers from 0 to 2"),
        (np.array(["a", "b", "a", "b"]), "labels have type <U1; give whole numbers from 0 to 2"),
        (np.array([1, 2, 3, 1]), "labels go from 1 to 3; .* 3 classes and takes 0 to 2: number the classes from 0"),
        (np.array([0, -1, 2, 1]), "labels go from -1 to 2; .* takes 0 to 2: .*or build the model for more classes"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        check_labels(labels, 4, 3)


def test_yes_and_no_are_labels():
    np.testing.assert_array_equal(check_labels(np.array([True, False]), 2, 2), [1, 0])


def test_inputs_may_be_vectors_of_any_range():
    x = np.linspace(-100, 100, 6).reshape(3, 2)
    np.testing.assert_array_equal(check_inputs(x), x)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        check_inputs(x[:, 0])


def test_channels_that_come_first_are_warned_of():
    with pytest.warns(UserWarning, match=r"shape \(3, 8, 8\) look as if their channels came first"):
        check_images(np.zeros((2, 3, 8, 8)))
    for shape in ((2, 8, 8, 3), (2, 1, 1, 8), (2, 3, 9, 8)):
        assert check_images(np.zeros(shape)).shape == shape
