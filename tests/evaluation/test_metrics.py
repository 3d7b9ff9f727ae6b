import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from tickgp.evaluation.metrics import BINS, Outcomes, auroc, bin_index, evaluate, fpr95, intervals

P = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]])
Y = np.array([0, 0, 2, 1])
KEYS = ["n", "top1_error", "top2_error", "top3_error", "nll", "nll_misses", "ece", "brier", "aurc"]


def draw(rng, n, K=3, concentration=1.0):
    """Probabilities, and labels drawn from them."""
    p = rng.dirichlet(np.full(K, concentration), n)
    y = (rng.random(n)[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return p, y


def with_ties(rng, n, K=4):
    """Probabilities in tenths: many equal confidences."""
    p = rng.multinomial(10, np.full(K, 1 / K), size=n) / 10
    return p, rng.integers(K, size=n)


def close(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name] == (b[name] if b[name] is None else pytest.approx(b[name], rel=1e-12, abs=1e-14)), name


@pytest.mark.parametrize(("k", "expected"), [(1, 0.5), (2, 0.0), (3, 0.0)])
def test_top_error_by_hand(k, expected):
    assert Outcomes.of(P, Y).top_error(k) == expected


def test_the_first_of_equally_probable_classes_is_predicted():
    even = np.full((3, 3), 1 / 3)
    assert [Outcomes.of(even, [0, 1, 2]).top_error(k) for k in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 0])


def test_nll_by_hand():
    assert Outcomes.of(P, Y).nll() == pytest.approx(
        -(math.log(0.7) + math.log(0.3) + math.log(0.8) + math.log(0.3)) / 4
    )


def test_nll_of_an_impossible_label_is_large_but_finite():
    assert Outcomes.of(np.array([[1.0, 0.0]]), np.array([1])).nll() == pytest.approx(87.34, abs=0.01)


def test_nll_misses_by_hand():
    assert evaluate(P, Y)["nll_misses"] == pytest.approx(-math.log(0.3))
    assert evaluate(P, P.argmax(axis=1))["nll_misses"] is None


def test_brier_by_hand():
    distances = [0.09 + 0.04 + 0.01, 0.49 + 0.16 + 0.09, 0.01 + 0.01 + 0.04, 0.25 + 0.49 + 0.04]
    assert evaluate(P, Y)["brier"] == pytest.approx(sum(distances) / 4)


def test_calibration_error_by_hand():
    """Confidences 0.7 (right), 0.4 (wrong), 0.8 (right), 0.5 (wrong) fall into four of the 15 bins."""
    assert Outcomes.of(P, Y).calibration_error() == pytest.approx((0.3 + 0.4 + 0.2 + 0.5) / 4)


SAME_BIN = np.array([[0.72, 0.28], [0.68, 0.32], [0.39, 0.61]])
"""Two confidences in the bin from 10/15 to 11/15, and one in that from 9/15."""


def test_calibration_error_averages_within_a_bin():
    assert Outcomes.of(SAME_BIN, [0, 1, 0]).calibration_error() == pytest.approx((abs(1 - 0.72 - 0.68) + 0.61) / 3)


def test_bins_begin_at_fifteenths():
    assert BINS == 15
    assert bin_index(np.array([0.0, 1 / 16, 1 / 14, 0.5, 0.99, 1.0])).tolist() == [0, 0, 1, 7, 14, 14]


def test_certainty_lies_in_the_last_bin():
    p, y = np.array([[1.0, 0.0], [0.95, 0.05]]), np.array([0, 1])
    assert Outcomes.of(p, y).reliability().count.tolist() == [0] * 14 + [2]
    assert Outcomes.of(p, y).calibration_error() == pytest.approx(0.975 - 0.5)


def test_reliability_by_hand():
    bins = Outcomes.of(SAME_BIN, [0, 1, 1]).reliability()
    assert bins.count.tolist() == [0] * 9 + [1, 2] + [0] * 4
    np.testing.assert_allclose(bins.confidence, [np.nan] * 9 + [0.61, 0.7] + [np.nan] * 4)
    np.testing.assert_allclose(bins.right, [np.nan] * 9 + [1, 0.5] + [np.nan] * 4)


def test_risk_by_hand():
    """From the most confident down: right, right, wrong, wrong."""
    np.testing.assert_allclose(Outcomes.of(P, Y).risk(), [0, 0, 1 / 3, 1 / 2])
    assert evaluate(P, Y)["aurc"] == pytest.approx((1 / 3 + 1 / 2) / 4)


def test_ood_by_hand():
    """Of six pairs, outside is higher in four and equal in one; flagging both outside flags two inside."""
    assert auroc([1, 2, 4], [2, 5]) == pytest.approx(4.5 / 6)
    assert fpr95([1, 2, 4], [2, 5]) == pytest.approx(2 / 3)


def test_against_scikit_learn():
    from sklearn.metrics import log_loss, top_k_accuracy_score

    p, y = draw(np.random.default_rng(0), 500, K=5)
    classes = np.arange(5)
    values = evaluate(p, y)
    assert values["nll"] == pytest.approx(log_loss(y, p, labels=classes))
    for k in (1, 2, 3):
        assert values[f"top{k}_error"] == pytest.approx(1 - top_k_accuracy_score(y, p, k=k, labels=classes))
    missed = p.argmax(axis=1) != y
    assert values["nll_misses"] == pytest.approx(log_loss(y[missed], p[missed], labels=classes))


@pytest.mark.parametrize("make", [draw, with_ties])
def test_against_loops(make):
    p, y = make(np.random.default_rng(1), 300)
    N, K = p.shape
    assert evaluate(p, y)["brier"] == pytest.approx(
        sum((p[n, k] - (k == y[n])) ** 2 for n in range(N) for k in range(K)) / N
    )
    error = 0.0
    for b in range(15):
        own = [n for n in range(N) if b / 15 <= p[n].max() < (b + 1) / 15 or (b == 14 and p[n].max() == 1)]
        error += abs(sum(p[n].max() - (p[n].argmax() == y[n]) for n in own)) / N
    assert Outcomes.of(p, y).calibration_error() == pytest.approx(error)


def test_aurc_without_ties_is_the_mean_selective_risk():
    p, y = draw(np.random.default_rng(2), 100)
    wrong = (p.argmax(axis=1) != y)[np.argsort(-p.max(axis=1))]
    assert evaluate(p, y)["aurc"] == pytest.approx(np.mean([wrong[:m].mean() for m in range(1, 101)]))


def test_aurc_with_ties_is_the_mean_over_all_orders_of_the_equals():
    confidence = [0.9, 0.9, 0.7, 0.7, 0.7, 0.6]
    wrong = [True, False, True, True, False, False]
    p, y = np.array([[c, 1 - c] for c in confidence]), np.array(wrong).astype(int)
    orders = [a + b for a in itertools.permutations([0, 1]) for b in itertools.permutations([2, 3, 4])]
    risk = [[np.mean([wrong[i] for i in (*order, 5)][:m]) for m in range(1, 7)] for order in orders]
    np.testing.assert_allclose(Outcomes.of(p, y).risk(), np.mean(risk, axis=0))
    assert evaluate(p, y)["aurc"] == pytest.approx(np.mean(risk))


@pytest.mark.parametrize("digits", [0, 1, 8])
@pytest.mark.parametrize(("n_inside", "n_outside"), [(200, 100), (37, 61), (5, 1)])
def test_ood_against_scikit_learn(digits, n_inside, n_outside):
    """Scores rounded to whole numbers or tenths have ties."""
    from sklearn.metrics import roc_auc_score, roc_curve

    rng = np.random.default_rng(3)
    inside, outside = rng.normal(0, 1, n_inside).round(digits), rng.normal(1, 1, n_outside).round(digits)
    truth, scores = np.repeat([0, 1], [n_inside, n_outside]), np.concatenate([inside, outside])
    assert auroc(inside, outside) == pytest.approx(roc_auc_score(truth, scores))
    flagged_inside, flagged_outside, _ = roc_curve(truth, scores, drop_intermediate=False)
    assert fpr95(inside, outside) == pytest.approx(flagged_inside[np.argmax(flagged_outside >= 0.95 - 1e-9)])


@pytest.mark.parametrize("make", [draw, with_ties])
def test_the_order_of_images_does_not_matter(make):
    rng = np.random.default_rng(4)
    p, y = make(rng, 200)
    order = rng.permutation(200)
    close(evaluate(p[order], y[order]), evaluate(p, y))
    assert evaluate(p[order], y[order])["aurc"] == evaluate(p, y)["aurc"]


def test_the_order_of_classes_does_not_matter():
    rng = np.random.default_rng(5)
    p, y = draw(rng, 200, K=5)
    order = rng.permutation(5)
    close(evaluate(p[:, order], np.argsort(order)[y]), evaluate(p, y))


def test_images_counted_twice_change_nothing_but_n():
    p, y = with_ties(np.random.default_rng(6), 100)
    once, twice = evaluate(p, y), evaluate(np.repeat(p, 2, axis=0), np.repeat(y, 2))
    assert twice.pop("n") == 2 * once.pop("n")
    # The curve's steps become finer: the area moves by a step at most.
    assert twice.pop("aurc") == pytest.approx(once.pop("aurc"), abs=1 / 200)
    close(twice, once)


def test_ood_scores_matter_by_their_order_alone_and_sides_exchange():
    rng = np.random.default_rng(7)
    inside, outside = rng.normal(0, 1, 80), rng.normal(0.5, 1, 60)
    assert auroc(np.exp(inside), np.exp(outside)) == auroc(inside, outside)
    assert fpr95(np.exp(inside), np.exp(outside)) == fpr95(inside, outside)
    assert auroc(outside, inside) == pytest.approx(1 - auroc(inside, outside))


def test_types_do_not_matter():
    close(evaluate(P.astype(np.float32), Y.astype(np.uint8)), evaluate(P.astype(np.float32).astype(float), Y.tolist()))


def test_a_perfect_model():
    values = evaluate(np.eye(4), np.arange(4))
    assert list(values) == KEYS
    assert values.pop("nll_misses") is None
    assert values.pop("n") == 4
    assert set(values.values()) == {0.0}


def test_a_model_that_is_always_sure_and_wrong():
    values = evaluate(np.eye(4), np.array([1, 2, 3, 0]))
    assert (values["top1_error"], values["ece"], values["brier"], values["aurc"]) == (1, 1, 2, 1)
    assert values["nll"] == values["nll_misses"]


@pytest.mark.parametrize(("K", "undefined"), [(2, {"top2_error", "top3_error"}), (3, {"top3_error"}), (4, set())])
def test_top_k_error_of_at_most_k_classes_is_undefined(K, undefined):
    values = evaluate(*draw(np.random.default_rng(8), 50, K=K))
    assert {name for name, value in values.items() if value is None} == undefined


def test_metrics_can_be_written_as_json():
    values = json.loads(json.dumps(evaluate(P, Y)))
    assert values["n"] == 4
    assert values["top3_error"] is None
    assert json.loads(json.dumps(intervals(P, Y, num=10)))["nll"][0] > 0


def test_calibration_error_vanishes_for_labels_drawn_from_the_probabilities():
    p, y = draw(np.random.default_rng(0), 200_000)
    assert Outcomes.of(p, y).calibration_error() < 0.005
    bins = Outcomes.of(p, y).reliability()
    assert bins.count.sum() == 200_000
    np.testing.assert_allclose(bins.right[bins.count > 0], bins.confidence[bins.count > 0], atol=0.02)


def test_confidence_that_says_nothing_gives_the_error_as_area():
    p, y = np.tile([0.6, 0.4], (10, 1)), np.repeat([0, 1], [7, 3])
    assert evaluate(p, y)["aurc"] == pytest.approx(0.3)


@pytest.mark.parametrize(("shift", "area", "flagged"), [(10, 1.0, 0.0), (0, 0.5, 1.0), (-10, 0.0, 1.0)])
def test_ood_limits(shift, area, flagged):
    """Scores told apart, all equal, and told apart the wrong way round."""
    assert auroc(np.zeros(30), np.full(20, shift)) == area
    assert fpr95(np.zeros(30), np.full(20, shift)) == flagged


def test_fpr95_may_miss_one_in_twenty_and_no_more():
    outside = np.arange(1.0, 21)
    assert fpr95([1.5], outside) == 0
    assert fpr95([2.0], outside) == 1
    assert fpr95([1.5], outside[:19]) == 1


@pytest.mark.parametrize("make", [draw, with_ties])
def test_intervals_is_evaluate_on_resampled_images(make):
    p, y = make(np.random.default_rng(9), 60)
    order, rng = np.argsort(-p.max(axis=1), kind="stable"), np.random.default_rng(3)
    rows = [order[rng.integers(60, size=60)] for _ in range(40)]
    draws = [evaluate(p[i], y[i]) for i in rows]
    found = intervals(p, y, num=40, level=0.9, seed=3)
    assert found.pop("ece_if_calibrated")[0] > 0
    assert set(found) == {name for name, value in evaluate(p, y).items() if value is not None} - {"n", "ece"}
    for name, interval in found.items():
        if name.endswith("error"):
            continue  # see below
        assert interval == pytest.approx(np.quantile([draw[name] for draw in draws], [0.05, 0.95])), name


def test_intervals_covers_the_truth_as_often_as_it_says():
    """Known distribution: labels drawn from the probabilities, so that error, NLL and Brier score are expectations.

    100 datasets: 0.95 − 0.065 is three standard errors, and 80 resamples cost another 0.02.
    """
    rng = np.random.default_rng(10)
    truth = evaluate(*draw(rng, 200_000))
    p, _ = draw(rng, 200_000)
    assert truth["brier"] == pytest.approx(np.mean(1 - np.sum(p**2, axis=1)), rel=0.01)
    covered = dict.fromkeys(("top1_error", "nll", "nll_misses", "brier", "aurc"), 0)
    for seed in range(100):
        found = intervals(*draw(rng, 200), num=80, seed=seed)
        for name in covered:
            low, high = found[name]
            covered[name] += low <= truth[name] <= high
    assert all(count / 100 >= 0.865 for count in covered.values()), covered


def test_intervals_narrows_with_the_root_of_n():
    rng = np.random.default_rng(11)
    width = lambda n: np.diff(intervals(*draw(rng, n), num=200)["nll"])[0]
    assert width(100) / width(1600) == pytest.approx(4, rel=0.3)


def test_intervals_depends_on_the_seed_alone():
    assert intervals(P, Y, num=20, seed=1) == intervals(P, Y, num=20, seed=1)
    assert intervals(P, Y, num=20, seed=1) != intervals(P, Y, num=20, seed=2)


def test_intervals_with_few_or_no_misses():
    found = intervals(np.eye(4), np.arange(4), num=20)
    assert found["top1_error"] == found["top3_error"] == pytest.approx([0, 1 - 0.025 ** (1 / 4)])
    assert found["nll"] == [0, 0]
    assert "nll_misses" not in found
    rows = np.array([[0.7, 0.3]] * 10)
    for labels, said in ((np.repeat([0, 1], [1, 9]), False), (np.ones(10, int), True)):
        found = intervals(rows, labels, num=50)
        assert ("nll_misses" in found) == said
    assert found["nll_misses"] == pytest.approx([-math.log(0.3)] * 2)


def test_the_ece_of_a_calibrated_model_lies_where_it_is_said_to():
    """Labels drawn with the probabilities that are said fall outside as often as the level allows; others far above."""
    rng, outside = np.random.default_rng(0), 0
    for _ in range(200):
        confidence = rng.uniform(0.5, 1, 300)
        rows, labels = np.stack([1 - confidence, confidence], axis=1), (rng.random(300) < confidence).astype(int)
        low, high = intervals(rows, labels, num=40, level=0.9)["ece_if_calibrated"]
        outside += not low <= Outcomes.of(rows, labels).calibration_error() <= high
    assert 10 < outside < 45  # 20 expected, about 29 with quantiles of only 40 draws, and 5 the standard deviation
    assert Outcomes.of(rows, np.arange(300) % 2).calibration_error() > 2 * high
    assert "ece" not in intervals(rows, labels, num=3)


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize("misses", [0, 1, 3, 7])
def test_errors_against_scipys_binomial(misses, level):
    from scipy.stats import binomtest

    exact = binomtest(misses, 7).proportion_ci(level, method="exact")
    found = intervals(np.eye(2)[(np.arange(7) < misses).astype(int)], np.zeros(7, int), num=3, level=level)
    assert found["top1_error"] == pytest.approx([exact.low, exact.high])


@pytest.mark.parametrize(
    ("probabilities", "labels", "words"),
    [
        (np.ones(4), Y, r"shape \(4,\); give at least one row"),
        (np.ones((0, 3)), Y[:0], r"shape \(0, 3\)"),
        (2 * P, Y, r"4 of 4 rows are not probabilities: row 0 goes from 0\.2 to 1\.4 and sums to 2; .* softmax"),
        (np.log(P), Y, "softmax"),
        (np.where(P == 0.8, np.nan, P), Y, "1 of 4 rows are not probabilities: row 2"),
        (P + np.array([0.5, -0.5, 0]), Y, "row 0 goes from -0.3 to 1.2"),
        (P, Y[:3], r"labels have shape \(3,\); give one label for each of the 4"),
        (P, Y[:, None], r"labels have shape \(4, 1\)"),
        (P, Y.astype(float), "labels have type float64; give whole numbers from 0 to 2"),
        (P, Y + 1, "labels go from 1 to 3; this model has 3 classes and takes 0 to 2: number the classes from 0"),
        (P, Y - 1, "labels go from -1 to 1"),
    ],
)
@pytest.mark.parametrize("metric", [Outcomes.of, evaluate, intervals])
def test_wrong_probabilities_and_labels_are_refused(metric, probabilities, labels, words):
    with pytest.raises(ValueError, match=words):
        metric(probabilities, labels)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: auroc([], [1.0]), r"`inside` has shape \(0,\)"),
        (lambda: fpr95([1.0], [[1.0]]), r"`outside` has shape \(1, 1\)"),
        (lambda: auroc([1.0], [np.nan, 1.0]), "`outside` .* 1 numbers that are not finite"),
    ],
)
def test_wrong_scores_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_import_loads_nothing_heavy():
    check = (
        "import sys, tickgp.evaluation.metrics, tickgp.evaluation.handover; "
        "print([m for m in ('jax', 'sklearn', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout.strip() == "[]"
