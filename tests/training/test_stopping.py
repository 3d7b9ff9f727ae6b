import math

import pytest

from tickgp.training.stopping import at_rest


@pytest.mark.parametrize(
    ("elbos", "expected"),
    [
        ([-9.0, -8.0, -7.0, -6.0], False),
        ([-9.0, -8.0, -8.0, -9.0], True),
        ([-9.0, -8.0, -9.0, -7.9], False),
        ([-1.0, -1.0, -9.0, -8.0, -7.0, -6.0], False),
        ([-6.0, -6.0, -6.0], False),
        ([-9.0, -8.0, math.nan, -8.5], True),
        ([-9.0, -8.0, math.nan, -8.4], False),
        ([-9.0, -8.0, None, None], False),
    ],
)
def test_means_of_two_windows_are_compared(elbos, expected):
    assert at_rest(elbos, 2) is expected
