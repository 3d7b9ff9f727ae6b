"""Who decides: unsure images and unusual ones are for a person, and the promise is for the others alone."""

import dataclasses
import json
import re

import numpy as np
import pytest

from tickgp.errors import UsageError
from tickgp.evaluation.handover import HeldOut, Rule, images_needed, share_and_error
from tickgp.evaluation.promise import Threshold, choose_threshold, least_images

CHOSEN = Threshold(0.62, 0.1, 0.95, 0.8, 50, 0, 0.1)


def test_what_a_rule_says_to_machines():
    """The threshold with all its numbers, or null and the reason; with the limit of the distance, if there is one."""
    held_out = HeldOut("test", np.linspace(1, 0.9, 100), np.ones(100, bool), np.linspace(0, 1 / 3, 100))
    rule = held_out.rule(0.05, 0.9)
    written = json.loads(json.dumps(rule.as_json()))
    assert list(written) == ["threshold", "max_error", "level", "kept", "held_out", "errors", "bound", "max_distance"]
    limit = written.pop("max_distance")
    assert Rule(limit, Threshold(**written)) == rule
    assert (written["max_error"], written["level"]) == (0.05, 0.9)
    none = held_out.rule(0.001)
    assert none.as_json() == {"threshold": None, "reason": none.reason, "max_distance": limit}
    assert Rule(reason="unknown").as_json() == {"threshold": None, "reason": "unknown", "max_distance": None}


def test_what_a_rule_says_to_a_person():
    assert str(Rule(3.0, CHOSEN)) == (
        "The model decides an image alone if it is at least 62.00 % sure and the image is like those it knows. At most "
        "10 % of these decisions are wrong (with 95 % confidence), provided that new images are like the 50 held-out "
        "ones, of which it decided 80 % alone."
    )
    assert str(Rule(reason="too few")) == "No image can be decided by the model alone: too few."


@pytest.mark.parametrize(
    ("confidence", "distance"),
    [([0.5, np.nan], [0, 0]), (np.array(0.5), np.array(0.0)), ([0.5], None), ([0.5, 0.5], [0.0])],
)
def test_what_cannot_be_compared_is_refused(confidence, distance):
    with pytest.raises(ValueError, match=r"NaN|shape"):
        Rule(1.0, CHOSEN).hand_over(confidence, distance)


def test_what_is_no_number_is_not_kept():
    for distance in (np.nan, np.inf):
        assert Rule(1.0, CHOSEN).hand_over([0.9, 0.9], [0.1, distance]).tolist() == [False, True]
    unknown = dataclasses.replace(CHOSEN, threshold=np.nan)
    for rule in (Rule(1.0, unknown), Rule(np.nan, CHOSEN)):
        assert rule.hand_over([0.9], [0.1]).all()


def test_unsure_or_unusual_images_are_for_a_person():
    confidence, distance = [0.9, 0.62, 0.61, 0.99, 0.5], [3.0, 1.0, 1.0, 3.001, 9.0]
    assert Rule(3.0, CHOSEN).hand_over(confidence, distance).tolist() == [False, False, True, True, True]


def test_a_rule_knows_what_is_unusual_with_a_threshold_or_without():
    held_out = HeldOut("test", np.linspace(1, 0.9, 100), np.ones(100, bool), np.arange(100.0))
    confidence, distance = np.array([0.99, 0.5, 0.99]), np.array([1.0, 1.0, 99.0])
    decided, none = held_out.rule(0.05), held_out.rule(0.001)
    assert decided.hand_over(confidence, distance).tolist() == [False, True, True]
    assert (none.threshold, none.max_distance) == (None, decided.max_distance)
    assert "to promise at most 0.1 % errors" in none.reason
    assert none.hand_over(confidence, None).tolist() == [True] * 3
    for rule in (decided, none):
        assert rule.unusual(distance).tolist() == [False, False, True]
    with pytest.raises(UsageError, match=r"max-error 2.0 was given"):
        held_out.rule(2.0)


def test_share_and_error():
    right = np.array([True, False, True, False])
    assert share_and_error(np.array([False, False, False, True]), right) == pytest.approx((0.25, 1 / 3))
    assert share_and_error(np.ones(4, bool), right) == (1.0, None)


@pytest.mark.parametrize(
    ("n", "share", "beyond"),
    [(50, 0.01, 1), (199, 0.01, 1), (200, 0.01, 2), (5999, 0.01, 59), (50, 0.1, 5), (50, 0.0, 1), (1, 0.9, 1)],
)
def test_the_furthest_are_unusual(n, share, beyond):
    distance = np.random.default_rng(n).permutation(n).astype(float)
    limit = HeldOut("validation", np.ones(n), np.ones(n, bool), distance).max_distance(share)
    np.testing.assert_array_equal(distance > limit, distance >= n - beyond)


def test_images_as_far_as_an_unusual_one_are_unusual():
    distance = np.repeat([1.0, 2.0, 3.0], [500, 400, 100])
    of = lambda share: HeldOut("validation", np.ones(1000), np.ones(1000, bool), distance).rule(0.01, 0.95, share)
    assert [of(share).threshold.kept for share in (0.0, 0.1, 0.101)] == [0.9, 0.9, 0.5]
    assert "even if all are right; there are 0 of 1000" in of(0.6).reason


def test_the_threshold_is_chosen_on_images_within_the_limit():
    """The twenty furthest of 2,000 are beyond it: wrong or right, none of them counts."""
    confidence, distance = np.linspace(1, 0.5, 2000), np.arange(2000)[::-1] / 2048.0  # the surest are the furthest
    for right in (np.arange(2000) >= 20, np.arange(2000) < 1995):
        rule = HeldOut("validation", confidence, right, distance).rule(0.01)
        alone = choose_threshold(confidence[20:], right[20:], max_error=0.01)
        assert rule.max_distance == np.nextafter(np.float32(1980 / 2048), np.float32(0))
        assert rule.threshold == dataclasses.replace(alone, kept=rule.threshold.kept, held_out=2000)
        assert rule.threshold.kept == np.mean(~rule.hand_over(confidence, distance)) == 1980 / 2000


MAX_ERROR, DATASETS = 0.1, 500


@pytest.mark.parametrize(("max_unusual", "broken"), [(0.5, (0, 0.05)), (0.0, (0.4, 1))])
def test_the_promise_is_for_what_is_decided(max_unusual, broken):
    """The nearer half is wrong at the limit, the half that is handed over as unusual never.

    So every threshold breaks the promise. Few are found, but on nearly all images one is half of the time.
    """
    rng, found = np.random.default_rng(0), 0
    for _ in range(DATASETS):
        confidence, distance = rng.random(250), rng.random(250)
        right = (rng.random(250) >= MAX_ERROR) | (distance > np.median(distance))
        held_out = HeldOut("validation", confidence, right, distance)
        found += held_out.rule(MAX_ERROR, max_unusual=max_unusual).threshold is not None
    low, high = broken
    assert low <= found / DATASETS <= high + 3 * np.sqrt(high * (1 - high) / DATASETS)


def test_the_promise_is_for_what_is_decided_where_many_are_equally_far():
    """Three in ten are as far as those that set the limit, and never wrong: chosen on some, they would be decided all.

    The others are wrong at the limit, so that every threshold breaks the promise.
    """
    rng, found = np.random.default_rng(1), 0
    for _ in range(DATASETS):
        confidence, tied = rng.random(250), rng.random(250) < 0.3
        right = (rng.random(250) >= MAX_ERROR) | tied
        held_out = HeldOut("validation", confidence, right, np.where(tied, 1.0, rng.random(250)))
        found += held_out.rule(MAX_ERROR).threshold is not None
    assert found / DATASETS <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / DATASETS)


@pytest.mark.parametrize("max_unusual", [0.0, 0.01, 0.3, 0.999])
@pytest.mark.parametrize(("max_error", "level"), [(0.01, 0.95), (0.05, 0.95), (0.5, 0.75)])
def test_images_needed(max_error, level, max_unusual):
    n = images_needed(max_error, level, max_unusual)
    all_right = lambda n: HeldOut("test", np.ones(n), np.ones(n, bool), np.arange(float(n)))
    assert all_right(n).rule(max_error, level, max_unusual).threshold.errors == 0
    reason, least = all_right(n - 1).rule(max_error, level, max_unusual).reason, least_images(max_error, level)
    assert re.search(rf"takes {least} held-out images that are not unusual, .* of {n - 1}: hold out", reason)


def test_images_needed_with_the_defaults():
    """299 to choose on, and three that are unusual."""
    assert images_needed(0.01) == 302


def test_the_advice_counts_all_held_out_images():
    """Of 1,000 images 200 are unusual; of the others every tenth is wrong, or all are."""
    far = np.arange(1000) < 200
    held_out = HeldOut("test", 1 - np.arange(1000) / 1000, far | (np.arange(1000) % 10 > 0), np.where(far, 2.0, 1.0))
    reason = held_out.rule(0.05, max_unusual=0.2).reason
    assert "on the 800 of 1000 held-out images that are not unusual, of which the model gets 80 wrong: hold" in reason
    best, kept = re.findall(r"with max-error ([\d.]+) it decides (\d+) % alone$", reason)[0]
    rule = held_out.rule(float(best), max_unusual=0.2)
    assert 100 * rule.threshold.kept == pytest.approx(float(kept), abs=0.5)
    reason = dataclasses.replace(held_out, right=far).rule(0.05, max_unusual=0.2).reason
    assert reason.endswith("of which the model gets 800 wrong: hold out more images (validation-share)")


def test_fewer_unusual_images_are_advised_where_these_would_do():
    held_out = HeldOut("test", np.ones(300), np.ones(300, bool), np.arange(300.0))
    assert re.search(
        r" takes 299 held-out images that are not unusual, even if all are right; there are 297 of 300: "
        r"hold out more images \(validation-share\), or count fewer as unusual \(max-unusual\), or allow more errors: "
        r"with max-error 0\.011 it decides 99 % alone$",
        held_out.rule(0.01).reason,
    )
    assert held_out.rule(0.01, max_unusual=0.0).threshold.kept == 299 / 300


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_of_unusual_images_that_makes_no_sense(share):
    held_out = HeldOut("test", np.ones(400), np.ones(400, bool), np.ones(400))
    with pytest.raises(ValueError, match=r"max-unusual .* was given; it must be at least 0"):
        held_out.rule(0.01, max_unusual=share)


@pytest.mark.parametrize("part", ["probabilities", "distance"])
def test_what_is_not_finite_is_said_at_once(part):
    given = {"probabilities": np.full((5, 2), 0.5), "distance": np.ones(5)}
    given[part][3] = np.nan
    with pytest.raises(ArithmeticError, match="no finite probabilities and distances for 1 of 5 validation images"):
        HeldOut.of("validation", given["probabilities"], given["distance"], np.zeros(5, int), np.ones(5, bool))


def test_images_are_compared_in_the_precision_that_limits_are_kept_in():
    """As sure as the threshold, and equally far, but for rounding: kept together, and handed over together."""
    p = np.stack([np.full(600, 1 - 1e-9), np.full(600, 1e-9)], axis=1)
    distance = np.repeat([1, 2], [580, 20]) + 1e-9 * np.arange(600)
    rule = HeldOut.of("validation", p, distance, np.zeros(600, int), np.ones(600, bool)).rule(0.01)
    assert rule.threshold.kept == np.mean(~rule.hand_over(p.max(axis=1), distance)) == 580 / 600


def test_without_held_out_images_nothing_is_unusual():
    none = HeldOut("validation", np.zeros(0), np.zeros(0, bool), np.zeros(0))
    assert none.max_distance() == np.inf
    assert re.search(r"there are 0 of 0: hold out more images \(validation-share\)$", none.rule(0.1).reason)


def test_new_images_are_rarely_unusual():
    """With N held-out images of the same kind the share is 0.01 N / (N + 1), on average."""
    rng = np.random.default_rng(0)
    draws = [HeldOut("validation", np.ones(500), np.ones(500, bool), rng.gamma(2.0, size=500)) for _ in range(400)]
    share = np.mean([np.mean(rng.gamma(2.0, size=5000) > held_out.max_distance()) for held_out in draws])
    assert share == pytest.approx(5 / 501, rel=0.1)
