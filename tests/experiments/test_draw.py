"""Figures of experiments from results and predictions: which images, which times, and of which runs."""

from pathlib import Path

import numpy as np
import pytest
from experiments.tiny import write as write_at

from tickgp.evaluation.metrics import Outcomes
from tickgp.experiments.draw import draw
from tickgp.experiments.figures.insensitivity import insensitivity
from tickgp.experiments.figures.kept import predictions_of
from tickgp.experiments.figures.patch_response import won_by_tick
from tickgp.experiments.figures.traces import traces
from tickgp.experiments.plan import EXPERIMENTS, SWEPT, swept
from tickgp.experiments.predictions import save_predictions
from tickgp.experiments.results import Places, result_path
from tickgp.experiments.tables import Book


def write(results: Path, name: str, content: dict) -> None:
    write_at(results, name, content, "smoke")


def two_classes(own: list[float], labels: np.ndarray) -> np.ndarray:
    """Probabilities with these of each image's own class."""
    p = np.array(own)
    return np.where(np.arange(2) == labels[:, None], p[:, None], 1 - p[:, None])


LABELS = np.array([0, 1, 1, 0, 1])


def test_images_that_conv_gets_wrong_and_tick_right_come_before_larger_gains():
    conv = two_classes([0.01, 0.40, 0.55, 0.45, 0.49], LABELS)
    tick = two_classes([0.49, 0.60, 0.99, 0.90, 0.51], LABELS)
    chosen, said = won_by_tick(conv, tick, LABELS)
    assert chosen.tolist() == [3, 1]
    assert said.startswith("2 of the 3 images that Conv gets wrong and TICK right")


@pytest.mark.parametrize(("won", "words"), [([1], "Only the first image is"), ([], "No image is")])
def test_where_fewer_were_won_gains_fill_up_and_it_is_said(won, words):
    conv = two_classes([0.01, 0.40, 0.55, 0.60, 0.70], LABELS)
    tick = two_classes([0.49, 0.60 if won else 0.41, 0.99, 0.61, 0.71], LABELS)
    chosen, said = won_by_tick(conv, tick, LABELS)
    assert chosen.tolist() == [*won, 0, 2][:2]
    assert said.startswith(words)


def test_three_layers_start_where_two_end(tmp_path):
    """At the last step of the curve of two."""
    for depth in (1, 2, 3):
        curve = [{"step": 1000 * depth * n, "top1_error": 0.1 * n} for n in (1, 2, 3)]
        write(tmp_path, f"mnist/deep-tick-{depth}", {"curve": curve, "seconds": 500.0})
    (axes,) = traces(Book(tmp_path, "smoke"))["traces"].axes
    thousands = [line.get_xdata().tolist() for line in axes.lines]
    assert thousands == [[1, 2, 3], [2, 4, 6], [9, 12, 15]]
    assert axes.get_ylabel() == "error on 100 test images (%)"
    (tmp_path / "smoke/mnist/deep-tick-2.json").unlink()
    (axes,) = traces(Book(tmp_path, "smoke"))["traces"].axes
    assert len(axes.lines) == 1


def test_runs_are_sorted_into_fixed_and_learned_lengthscales(tmp_path):
    """ELBOs in nats per training image; a dataset of which a run is missing is left out."""
    named = {"TICK, learned from 3": (7.0, 0.1), "TICK, learned from 16": (9.0, 0.2), "Conv": (None, 0.9)}
    for dataset in SWEPT:
        for title, cells in swept(dataset, "smoke").items():
            for cell in cells:
                lengthscale, nll = named.get(title, (None, 0.5))
                if title.startswith("TICK, fixed at "):
                    lengthscale = float(title.removeprefix("TICK, fixed at "))
                learned = lengthscale and {"lengthscale": lengthscale}
                metrics = {"test": {"100": {"test": {"nll": nll}}}}
                said = {"elbo": -500.0, "train_images": 1000, "learned": learned, "metrics": metrics}
                write(tmp_path, cell.name, said)
    result_path(tmp_path, swept("cifar10-grey", "smoke")["Conv"][0]).unlink()
    elbo, nll = insensitivity(Book(tmp_path, "smoke"))["insensitivity"].axes
    fixed, conv = [1, 1, 16, 16], [0, 1]
    for axes, values in ((elbo, (0.5,) * 4), (nll, (0.5, 0.1, 0.2, 0.9))):
        _, points, short, long, *levels = axes.lines
        for line, x, value in zip(
            (points, short, long, *levels), (fixed, [7, 7], [9, 9], conv, conv), (*values, values[3]), strict=True
        ):
            assert list(line.get_xdata()) == x
            assert set(line.get_ydata()) == {value}


def test_predictions_of_another_run_than_the_results_are_not_shown(tmp_path):
    places = Places(tmp_path / "work", tmp_path, None)
    labels, p = np.array([0, 1]), np.array([[0.9, 0.1], [0.3, 0.7]])
    save_predictions(tmp_path / "work/smoke/mnist/tick", {"test/100": p})
    given = lambda: predictions_of(Book(tmp_path, "smoke"), places, "mnist/tick", "test", "100", labels)
    assert given() is None
    metrics = {on: {"100": {"test": {"nll": Outcomes.of(p, labels).nll()}}} for on in ("test", "semeion")}
    write(tmp_path, "mnist/tick", {"metrics": metrics})
    np.testing.assert_allclose(given(), p, rtol=1e-6)
    metrics["test"]["100"]["test"]["nll"] *= 1.01
    write(tmp_path, "mnist/tick", {"metrics": metrics})
    assert given() is None


def test_without_predictions_no_data_are_looked_for(tmp_path, monkeypatch):
    """As after a `git clone`: the results are there, and neither runs nor data are."""
    scores = {way: {"test": {"nll": 0.1}} for way in ("100", "dropout", "deterministic")}
    metrics = dict.fromkeys(("test", "semeion", "validation"), scores)
    for name in ("conv", "tick", "bcnn-0.25", "bcnn-0.5", "bcnn-0.75"):
        write(tmp_path, f"mnist/{name}", {"metrics": metrics})
    places = Places(tmp_path / "work", tmp_path, None)
    assert Book(tmp_path, "smoke").best_cnn("mnist") == "mnist/bcnn-0.25"
    looked = []
    monkeypatch.setattr("tickgp.experiments.figures.misclassified.load_cnn_data", lambda *_: looked.append("data"))
    for name in ("tick", "bcnn-0.25"):  # of conv there are none
        save_predictions(tmp_path / "work/smoke/mnist" / name, {"test/100": np.eye(2)})
    assert draw(["misclassified"], "smoke", places) == []
    assert looked == []


def test_without_results_nothing_is_drawn(tmp_path):
    assert draw([*EXPERIMENTS], "smoke", Places(tmp_path / "work", tmp_path, None)) == []
