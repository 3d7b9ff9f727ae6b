"""The threshold on held-out images: against scipy's bounds, by hand, and by simulation of the promise."""

import re

import numpy as np
import pytest
from scipy import stats

from tickgp.evaluation.promise import choose_threshold, least_images, upper_bound


def ranked(right):
    """Confidences from 1 downwards for answers given from the most confident down."""
    return 1 - np.arange(len(right)) / 1000, np.array(right, dtype=bool)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(("errors", "n"), [(0, 1), (0, 300), (3, 40), (39, 40), (40, 40)])
def test_bound_against_scipy(errors, n, level):
    interval = stats.binomtest(errors, n, alternative="less").proportion_ci(level, method="exact")
    assert upper_bound(errors, n, level) == pytest.approx(interval.high)


def test_bound_is_where_so_few_errors_become_too_unlikely():
    errors, n = np.array([0, 2, 17]), np.array([59, 100, 200])
    np.testing.assert_allclose(stats.binom.cdf(errors, n, upper_bound(errors, n, 0.95)), 0.05)


@pytest.mark.parametrize(
    ("max_error", "level", "n"), [(0.01, 0.95, 299), (0.05, 0.95, 59), (0.1, 0.99, 44), (0.5, 0.75, 2)]
)
def test_least_images(max_error, level, n):
    assert least_images(max_error, level) == n
    assert (1 - max_error) ** n <= 1 - level < (1 - max_error) ** (n - 1)


def test_without_mistakes_everything_is_kept():
    confidence, right = ranked([True] * 59)
    found = choose_threshold(confidence, right, max_error=0.05)
    assert found.threshold == confidence.min()
    assert (found.kept, found.held_out, found.errors) == (1.0, 59, 0)
    assert found.bound == pytest.approx(1 - 0.05 ** (1 / 59))


def test_stops_before_the_first_threshold_that_does_not_pass():
    """Max_error 0.1: 29 right ones pass, one mistake needs 46. The mistake at place 35 ends the sequence at 34."""
    confidence, right = ranked([True] * 34 + [False] + [True] * 11)
    found = choose_threshold(confidence, right, max_error=0.1)
    assert found.threshold == confidence[33]
    assert found.kept == 34 / 46
    assert upper_bound(1, 46) <= 0.1 < upper_bound(1, 45)


def test_equal_confidences_are_kept_or_handed_over_together():
    """At 29 images all are right; but the 29th shares its confidence with ten others, two of them wrong."""
    confidence, right = ranked([True] * 37 + [False] * 2 + [True])
    assert choose_threshold(confidence, right, max_error=0.1).kept == 37 / 40
    confidence[28:39] = confidence[28]
    with pytest.raises(ValueError, match="no threshold"):
        choose_threshold(confidence, right, max_error=0.1)
    confidence[28:37] = confidence[28]
    confidence[37:] = 0.5
    assert choose_threshold(confidence, right, max_error=0.1).kept == 37 / 40


def test_one_early_mistake_does_not_decide_when_there_is_much_data():
    confidence, right = ranked([False] + [True] * 799)
    assert choose_threshold(confidence, right, max_error=0.05).kept == 1


def test_what_is_found_agrees_with_its_own_numbers():
    rng = np.random.default_rng(0)
    confidence = rng.random(2000)
    right = rng.random(2000) < 0.8 + 0.2 * confidence
    found = choose_threshold(confidence, right, max_error=0.08)
    kept = confidence >= found.threshold
    assert found.kept == kept.mean()
    assert found.errors == (kept & ~right).sum()
    assert upper_bound(found.errors, int(kept.sum()), 0.95) < found.bound <= found.max_error
    shuffled = rng.permutation(2000)
    assert choose_threshold(confidence[shuffled], right[shuffled], max_error=0.08) == found


MAX_ERROR, DATASETS = 0.1, 500
TRUTHS = {
    "error at the limit everywhere": (lambda c: np.full_like(c, MAX_ERROR), lambda t: MAX_ERROR),
    "error falls with confidence": (lambda c: 0.4 * (1 - c), lambda t: 0.2 * (1 - t)),
    "sudden": (lambda c: np.where(c > 0.5, 0.02, 0.25), lambda t: 0.02 if t >= 0.5 else 0.25 - 0.115 / (1 - t)),
    "three steps": (
        lambda c: np.array([0.3, 0.1, 0.02])[np.digitize(c, [0.4, 0.7])],
        lambda t: 0.02 if t >= 0.7 else 0.1 - 0.024 / (1 - t) if t >= 0.4 else 0.3 - 0.144 / (1 - t),
    ),
}


def chosen(error, n, rule, seed=0):
    """Thresholds chosen by `rule` on datasets of n images with uniform confidence c and P(wrong) = error(c)."""
    rng = np.random.default_rng(seed)
    for _ in range(DATASETS):
        confidence = rng.random(n)
        yield rule(confidence, rng.random(n) >= error(confidence))


def sequence(confidence, right):
    try:
        return choose_threshold(confidence, right, max_error=MAX_ERROR).threshold
    except ValueError:
        return None


def lowest_that_passes(confidence, right):
    """What one may not do: the lowest threshold whose bound, taken alone, is small enough."""
    order = np.argsort(-confidence)
    passed = upper_bound(np.cumsum(~right[order]), np.arange(1, len(order) + 1)) <= MAX_ERROR
    return confidence[order][passed].min() if passed.any() else None


def share_broken(truth, n, rule):
    error, error_of_kept = TRUTHS[truth]
    return np.mean([t is not None and error_of_kept(t) >= MAX_ERROR for t in chosen(error, n, rule)])


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("n", [60, 250])
def test_the_promise_is_broken_in_at_most_one_of_twenty_datasets(truth, n):
    """One sequence at n = 60, three at 250. Three standard errors of the simulation are allowed."""
    assert share_broken(truth, n, sequence) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / DATASETS)


def test_the_simulation_finds_out_a_rule_that_tries_many_thresholds():
    assert share_broken("error at the limit everywhere", 250, lowest_that_passes) > 0.15


def test_the_promise_costs_little():
    """Half of the images have error 0.02, the others 0.25: with 1000 images nearly all thresholds keep that half."""
    error, error_of_kept = TRUTHS["sudden"]
    found = list(chosen(error, 1000, sequence))
    assert None not in found
    assert error_of_kept(np.median(found)) > 0.06


def test_too_few_held_out_images():
    with pytest.raises(
        ValueError, match=r"at most 1 % errors with 95 % confidence takes 299 held-out .* there are 298 of 298"
    ):
        choose_threshold(*ranked([True] * 298), max_error=0.01)
    assert choose_threshold(*ranked([True] * 299), max_error=0.01).kept == 1


def test_no_threshold_says_the_best_that_can_be_had():
    confidence, right = ranked([True, True, True, False] * 100)
    with pytest.raises(
        ValueError,
        match=r"no threshold .* at most 10 % errors .* on 400 held-out images, of which the model gets 100 wrong: hold",
    ) as e:
        choose_threshold(confidence, right, max_error=0.1)
    best, kept = map(float, re.findall(r"with max-error (0\.3\d?) it decides (\d+) % alone$", str(e.value))[0])
    assert 100 * choose_threshold(confidence, right, max_error=best).kept == pytest.approx(kept, abs=0.5)
    with pytest.raises(ValueError, match="no threshold"):
        choose_threshold(confidence, right, max_error=best - 0.01)


def test_no_threshold_at_all():
    for right in ([False] * 100, [True, False, False, False] * 25):
        for limit in (0.1, 0.6):
            with pytest.raises(
                ValueError, match=r"the model gets (100|75) wrong: hold out more images \(validation-share\)$"
            ):
                choose_threshold(*ranked(right), max_error=limit)


def test_the_largest_error_of_use_is_tried():
    """390 of 900 wrong: an error of 0.49 cannot be promised, 0.5 can."""
    with pytest.raises(ValueError, match=r"allow more errors: with max-error 0\.5 it decides"):
        choose_threshold(*ranked([i % 30 >= 13 for i in range(900)]), max_error=0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"confidence": np.full(50, np.nan)}, "50 of 50 confidences are NaN or outside"),
        ({"confidence": np.linspace(0, 2, 50)}, "25 of 50 confidences are NaN or outside"),
        ({"max_error": 0.0}, "max-error 0.0 was given; it must be above 0 and below 1"),
        ({"max_error": 1.0}, "max-error 1.0"),
        ({"max_error": float("nan")}, "max-error nan"),
        ({"level": 95.0}, "confidence 95.0 was given; it must be above 0 and below 1"),
    ],
)
def test_wrong_input_is_refused(change, words):
    fine = {"confidence": np.linspace(0, 1, 50), "right": np.ones(50, bool), "max_error": 0.1, "level": 0.95}
    choose_threshold(**fine)
    with pytest.raises(ValueError, match=words):
        choose_threshold(**(fine | change))


@pytest.mark.parametrize(("n", "least"), [(5, 0.46), (96, 0.031), (298, 0.011), (900, 0.0034)])
def test_the_least_error_that_can_be_had_is_said(n, least):
    with pytest.raises(ValueError, match=rf"allow more errors: with max-error {least} it decides 100 % alone$"):
        choose_threshold(*ranked([True] * n), max_error=0.001)
    assert choose_threshold(*ranked([True] * n), max_error=least).kept == 1


def test_errors_that_are_known_are_in_the_advice():
    """Of 66 images the model is wrong in every other one, or in its three least sure ones."""
    few = r"^to promise at most 0\.1 % errors with 95 % confidence takes 2995 held-out .*; there are 66 of 66: hold"
    with pytest.raises(ValueError, match=rf"{few} out more images \(validation-share\)$"):
        choose_threshold(*ranked([True, False] * 33), max_error=0.001)
    outcomes = ranked([True] * 63 + [False] * 3)
    with pytest.raises(ValueError, match=few) as refused:
        choose_threshold(*outcomes, max_error=0.001)
    least = float(re.findall(r"with max-error (0\.\d+) it", str(refused.value))[0])
    assert choose_threshold(*outcomes, max_error=least).errors < 3
