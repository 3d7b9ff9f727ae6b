import numpy as np
import pytest

from tickgp.evaluation.findings import (
    Finding,
    calibration,
    counted,
    handing_over,
    mistakes,
    per_hundred,
    percent,
)
from tickgp.evaluation.handover import Rule
from tickgp.evaluation.promise import Threshold, share_interval

LABELS = np.arange(1000) % 3


def metrics(error, n=1000, interval=(0.003, 0.022)):
    return {"test": {"n": n, "top1_error": error}, "interval": {"top1_error": list(interval)} if interval else {}}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.834, "83 %"),
        (0.0999, "10 %"),
        (0.0111, "1.1 %"),
        (0.0004, "0.04 %"),
        (0.967, "96.7 %"),
        (0.99999, "99.9 %"),
    ],
)
def test_percent(share, words):
    assert percent(share) == words


def test_counts():
    assert [per_hundred(share) for share in (0.0, 0.0111, 0.0005, 0.5)] == ["0", "1.1", "0.05", "50.0"]
    assert [counted(n, "image") for n in (1, 2, 12345)] == ["1 image", "2 images", "12,345 images"]


def test_mistakes():
    found = mistakes(metrics(0.011), LABELS)
    assert found.number == "1.1"
    assert found.text == "Of 100 new images about 1.1 are labelled wrongly (between 0.3 and 2.2, 95 % interval)."
    assert "between" not in mistakes(metrics(0.011, interval=None), LABELS).text


def test_no_mistakes_prove_little():
    """The rule of three: none of n wrong leaves up to 3/n."""
    text = mistakes(metrics(0.0, n=300, interval=(0, 0)), LABELS[:300]).text
    assert "None of 300 test images" in text
    assert "up to 1.0 could be" in text
    assert mistakes(metrics(0.0, n=1), LABELS[:1]).text.startswith("The one test image was labelled right.")


@pytest.mark.parametrize(("error", "n", "better"), [(0.6, 1000, True), (0.65, 1000, False), (0.7, 1000, False)])
def test_a_model_no_better_than_guessing_is_said_to_be(error, n, better):
    text = mistakes(metrics(error, n), LABELS[:n]).text
    assert ("Guessing the most frequent class would be wrong 66.6 of 100 times" in text) != better


@pytest.mark.parametrize(
    ("said", "right", "verdict"),
    [(0.95, 700, "overconfident"), (0.6, 900, "underconfident"), (0.8, 805, "can be seen")],
)
def test_over_and_underconfidence(said, right, verdict):
    text = calibration(np.full(1000, said), np.arange(1000) < right).text
    assert verdict in text
    assert f"Its average confidence is {percent(said)}, and it is right {percent(right / 1000)}" in text


def levels(*parts):
    """Confidences and outcomes of parts (said, hits, n): n images of the confidence `said`, `hits` of them right."""
    confidence = np.concatenate([np.full(n, said) for said, _, n in parts])
    return confidence, np.concatenate([np.arange(n) < hits for _, hits, n in parts])


def test_errors_that_cancel_are_seen():
    text = calibration(*levels((0.95, 750, 1000), (0.55, 750, 1000))).text
    assert (
        "average confidence is 75 %, and it is right 75 % of the time. But it is too sure where it says about 95"
        in text
    )
    assert "about 95.0 % (it is right 75 % of the time, on 1,000 images), and too modest where it says about 55" in text
    assert "can be seen" not in text


def test_what_goes_against_the_average_is_seen():
    text = calibration(*levels((0.95, 700, 1000), (0.55, 160, 200))).text
    assert "it is overconfident. But it is too modest where it says about 55 %" in text
    assert "But" not in calibration(*levels((0.95, 700, 1000), (0.55, 110, 200))).text
    one_side = calibration(*levels((0.75, 7500, 10000), (0.55, 70, 100))).text
    assert "of the time. But it is too modest where it says about 55 %" in one_side
    assert "too sure" not in one_side


def test_few_images_prove_nothing_of_a_level():
    assert "can be seen" in calibration(*levels((0.75, 750, 1000), (0.55, 19, 19))).text


def test_a_calibrated_model_is_rarely_blamed():
    """Two tests, each wrong at most once in 20 times, and far less often here."""
    rng = np.random.default_rng(0)
    said = rng.uniform(0.3, 1, (200, 1000))
    blamed = [("can be seen" not in calibration(p, rng.random(1000) < p).text) for p in said]
    assert np.mean(blamed) < 0.1


def test_what_it_is_worth_when_it_says_ninety_percent():
    confidence = np.concatenate([np.full(50, 0.9), np.full(50, 0.3)])
    right = np.concatenate([np.arange(50) < 40, np.zeros(50, bool)])
    text = calibration(confidence, right).text
    low, high = share_interval(40, 50)
    assert "When it says 90 % (give or take 5), it is right 80 % of the time (40 of 50 images;" in text
    assert f"between {percent(low)} and {percent(high)}" in text
    assert "When it says" not in calibration(confidence[45:], right[45:]).text


def test_share_interval_is_clopper_pearson():
    assert share_interval(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert share_interval(0, 10)[0] == 0
    assert share_interval(10, 10)[1] == 1


def test_handing_over():
    rule = Rule(threshold=Threshold(0.62, 0.01, 0.95, 0.83, 500, 1, 0.0099))
    assert handing_over(rule) == Finding("83 %", "decided without help", str(rule))


def test_the_reason_why_there_is_no_threshold_is_given():
    found = handing_over(Rule(reason="50 held-out images cannot show that"))
    assert "50 held-out images cannot show that" in found.text
