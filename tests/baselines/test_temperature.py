"""Temperature scaling: closed forms, another minimiser, and the cases without a minimum."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from tickgp.baselines.temperature import fit_temperature, scaled


def nll(logits, labels, temperature=1.0):
    return -log_softmax(logits / temperature, axis=1)[np.arange(len(labels)), labels].mean()


def drawn(factor, num=2000):
    """Labels drawn from the softmax of logits, and these logits times `factor`."""
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (num, 4))
    labels = (rng.random((num, 1)) > softmax(z, axis=1).cumsum(axis=1)).sum(axis=1)
    return factor * z, labels


@pytest.mark.parametrize("margin", [0.5, 3.0, 30.0])
def test_closed_form_of_one_margin(margin):
    """Logits (margin, 0), and 7 of 10 labels are 0: softmax(margin / T) = 0.7 at T = margin / log(0.7 / 0.3)."""
    logits, labels = np.tile([margin, 0.0], (10, 1)), np.repeat([0, 1], [7, 3])
    assert fit_temperature(logits, labels) == pytest.approx(margin / np.log(7 / 3), rel=1e-9)


@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_finds_the_minimum_and_undoes_a_factor(factor):
    logits, labels = drawn(factor)
    temperature = fit_temperature(logits, labels)
    other = minimize_scalar(lambda b: nll(logits, labels, 1 / b), bounds=(0.01, 100), method="bounded")
    assert nll(logits, labels, temperature) <= other.fun + 1e-12
    assert temperature == pytest.approx(factor, rel=0.1)


def test_never_worse_than_no_scaling():
    rng = np.random.default_rng(1)
    for scale in (0.01, 1.0, 100.0):
        for num in (1, 3, 20):
            logits, labels = rng.normal(0, scale, (num, 3)), rng.integers(0, 3, num)
            temperature = fit_temperature(logits, labels)
            assert 0.01 <= temperature <= 100
            assert nll(logits, labels, temperature) <= nll(logits, labels) + 1e-12


def test_overconfident_logits_are_made_less_certain():
    """A tenth of the labels is wrong, and the logits are sure of every one."""
    logits = 40 * np.eye(4)[np.arange(40) % 4]
    labels = np.where(np.arange(40) < 4, np.arange(40) + 1, np.arange(40)) % 4
    assert fit_temperature(logits, labels) > 1


def test_no_minimum():
    logits = np.eye(3)[np.arange(9) % 3]
    assert fit_temperature(logits, np.arange(9) % 3) == 1.0
    assert fit_temperature(np.zeros((4, 3)), np.arange(4) % 3) == 1.0
    # Logits that speak against every label: the best that a temperature can do is to make all classes alike.
    assert fit_temperature(-logits, np.arange(9) % 3) == pytest.approx(100)


def test_scaled_probabilities():
    logits, _ = drawn(1.0, num=5)
    prediction = scaled(logits, 2.5)
    p = softmax(logits / 2.5, axis=1)
    np.testing.assert_allclose(prediction.probabilities, p, atol=1e-6)
    np.testing.assert_allclose(prediction.expected_entropy, -(p * np.log(p)).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(prediction.mutual_information, 0, atol=1e-6)
    np.testing.assert_array_equal(prediction.labels, logits.argmax(axis=1))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"logits have shape \(3,\)"):
        fit_temperature(np.zeros(3), np.zeros(3, int))
    with pytest.raises(ValueError, match="2 logits are NaN or infinite"):
        fit_temperature(np.array([[np.nan, np.inf]]), np.zeros(1, int))
    with pytest.raises(ValueError, match="labels go from 0 to 2"):
        fit_temperature(np.zeros((2, 2)), np.array([0, 2]))
    with pytest.raises(ValueError, match=r"temperature of 0\.0 was given"):
        scaled(np.zeros((2, 2)), 0.0)
