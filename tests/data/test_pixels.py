"""Grey, and frames."""

import numpy as np
import pytest
from written import random_bytes

from tickgp.data.pixels import frame, pad, to_channels, to_grey


def test_grey_is_the_rounded_formula():
    images = random_bytes(2, 8, 8, 3)
    exact = images @ np.array([0.299, 0.587, 0.114])
    grey = to_grey(images)
    assert grey.dtype == np.uint8
    assert grey.shape == (2, 8, 8, 1)
    assert np.abs(grey[..., 0] - exact).max() <= 0.5 + 1e-9


def test_grey_pixels_stay_what_they_are():
    levels = np.arange(256, dtype=np.uint8)[:, None]
    np.testing.assert_array_equal(to_grey(np.repeat(levels, 3, axis=1)), levels)


def test_grey_floats_are_not_rounded():
    images = (random_bytes(2, 3, 3, 3) / 255).astype(np.float32)
    np.testing.assert_allclose(to_grey(images)[..., 0], images @ np.float32([0.299, 0.587, 0.114]), rtol=1e-6)
    assert to_grey(images).dtype == np.float32


@pytest.mark.parametrize("change", [to_grey, lambda images: to_channels(images, 3)])
def test_four_channels_are_refused(change):
    with pytest.raises(ValueError, match="4 channels"):
        change(random_bytes(1, 2, 2, 4))


def test_padding_is_centred():
    images = random_bytes(2, 16, 16, 1)
    padded = pad(images, 28, 29)
    np.testing.assert_array_equal(padded[:, 6:22, 6:22], images)
    assert padded.sum() == images.sum()
    assert padded.shape == (2, 28, 29, 1)


def test_frame_repeats_grey_and_refuses_what_is_larger():
    images = random_bytes(2, 4, 4, 1)
    np.testing.assert_array_equal(frame(images, (4, 4, 3)), np.repeat(images, 3, axis=-1))
    with pytest.raises(ValueError, match="images of 4×4 do not fit a model for 3×8"):
        frame(images, (3, 8, 1))
