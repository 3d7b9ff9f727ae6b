import math

import numpy as np
import pytest

from tickgp.evaluation.metrics import calibration_error, nll, top_error

P = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]])
Y = np.array([0, 0, 2, 1])


@pytest.mark.parametrize(("k", "expected"), [(1, 0.5), (2, 0.0), (3, 0.0)])
def test_top_error_by_hand(k, expected):
    assert top_error(P, Y, k) == expected


def test_nll_by_hand():
    assert nll(P, Y) == pytest.approx(-(math.log(0.7) + math.log(0.3) + math.log(0.8) + math.log(0.3)) / 4)


def test_nll_of_an_impossible_label_is_large_but_finite():
    assert 50 < nll(np.array([[1.0, 0.0]]), np.array([1])) < 200


def test_calibration_error_by_hand():
    """Confidences 0.7 (right), 0.4 (wrong), 0.8 (right), 0.5 (wrong) fall into four of the 15 bins."""
    assert calibration_error(P, Y) == pytest.approx((0.3 + 0.4 + 0.2 + 0.5) / 4)


def test_calibration_error_vanishes_for_labels_drawn_from_the_probabilities():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200_000)
    y = (rng.random(len(p))[:, None] > p.cumsum(axis=1)).sum(axis=1)
    assert calibration_error(p, y) < 0.005


def test_certainty_lies_in_the_last_bin():
    assert calibration_error(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])) == pytest.approx(0.5)
