"""Settings that depend on the images."""

import numpy as np
import pytest

from tickgp.training.assemble import stride
from tickgp.training.config import ModelConfig


@pytest.mark.parametrize(
    ("shape", "settings", "expected"),
    [
        ((8, 8), {}, 1),
        ((16, 16), {}, 1),
        ((28, 28), {}, 2),
        ((32, 90), {}, 2),
        ((33, 33), {}, 3),
        ((100, 100), {}, 5),
        ((100, 100), {"patch_size": 3}, 3),
        ((28, 28), {"stride": 3}, 3),
    ],
)
def test_large_images_are_looked_at_in_strides_that_skip_no_pixel(shape, settings, expected):
    assert stride(ModelConfig(**settings), np.zeros((2, *shape, 1))) == expected
