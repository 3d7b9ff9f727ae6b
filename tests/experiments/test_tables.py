"""The page of results is made from the files alone: ours where there are some, nothing where there are none."""

import json
import re
from pathlib import Path

import pytest

from tickgp.experiments import paper_numbers
from tickgp.experiments.cells import CnnConfig
from tickgp.experiments.page import results_page
from tickgp.experiments.plan import EXPERIMENTS, cells_of
from tickgp.experiments.results import is_done, result_path, settings_of, thinned
from tickgp.experiments.tables import Book, table1, table2, table3

ROOT = Path(__file__).parents[2]
SCALES = ("paper", "fast", "smoke")


def scores(error: float, nll: float) -> dict:
    test = {"top1_error": error, "top2_error": error / 2, "top3_error": error / 4, "nll": nll, "nll_misses": 2.0}
    return {"test": test, "interval": {name: [0.9 * value, 1.1 * value] for name, value in test.items()}}


def write(results: Path, name: str, content: dict) -> None:
    path = result_path(results, "paper", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_the_committed_page_is_what_the_committed_results_give():
    assert (ROOT / "RESULTS.md").read_text() == results_page(ROOT / "results")


def test_without_runs_only_the_papers_numbers_stand_there(tmp_path):
    book = Book(tmp_path, "paper")
    cells = [
        cell.strip() for table in (table1(book), table2(book), table3(book)) for cell in re.findall(r"[^|]+", table)
    ]
    theirs = [cell for cell in cells if re.fullmatch(r"\[[\d.]+\]", cell)]
    assert len(theirs) == 111
    assert not [cell for cell in cells if "<sub>" in cell]


def test_our_number_stands_beside_the_papers(tmp_path):
    metrics = {on: {"100": scores(0.0098, 0.0337), "5": scores(0.0106, 0.0325)} for on in ("test", "semeion")}
    write(tmp_path, "mnist/tick", {"metrics": metrics})
    book = Book(tmp_path, "paper")
    row = next(line for line in table1(book).splitlines() if line.startswith("| top-1"))
    assert "0.98 <sub>0.88–1.08</sub> [0.83]" in row
    assert "1.06 <sub>" in row
    assert table3(book).count("<sub>") == 5


def test_the_cnn_is_chosen_by_its_validation_images(tmp_path):
    for rate, validation, test in ((0.25, 0.5, 0.1), (0.5, 0.2, 0.9), (0.75, 0.3, 0.4)):
        ways = {on: {"dropout": scores(0.1, nll)} for on, nll in (("validation", validation), ("test", test))}
        assert Book(tmp_path, "paper").best_cnn("mnist") is None
        write(tmp_path, f"mnist/bcnn-{rate:g}", {"metrics": ways})
    assert Book(tmp_path, "paper").best_cnn("mnist") == "mnist/bcnn-0.5"


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_is_there_once_and_after_what_it_needs(scale):
    cells = cells_of(list(EXPERIMENTS), scale)
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    for i, cell in enumerate(cells):
        assert cell.start_from is None or cell.start_from in names[:i]


def test_the_appendix_settings():
    """Of the paper's text, in its own numbers."""
    cells = {cell.name: cell.settings for cell in cells_of(list(EXPERIMENTS), "paper")}
    tick, deep = cells["mnist/tick"], cells["cifar10/deep-tick-2"]
    assert (tick.model.num_inducing, tick.training.batch_size, tick.model.places) == (1000, 128, "uniform")
    assert (tick.model.location, tick.model.location_lengthscale) == ("matern32", 3.0)
    assert (tick.training.learning_rate, tick.training.decay) == (0.01, "inverse")
    assert (deep.model.num_inducing, deep.training.batch_size, deep.training.max_steps) == (384, 64, 300_000)
    assert (deep.training.decay, deep.training.decay_steps, deep.training.decay_factor) == ("step", 50_000.0, 4.0)
    assert (deep.model.hidden_q_mu, cells["mnist/deep-conv-1"].training.batch_size) == (0.0, 32)
    network = cells["mnist/bcnn-0.5"]
    assert isinstance(network, CnnConfig)
    assert (network.learning_rate, network.data.validation_share, network.dropout) == (1e-4, 0.1, 0.5)


def test_a_result_of_other_settings_does_not_count(tmp_path):
    cell, other = cells_of(["patch-response"], "paper")
    write(tmp_path, cell.name, {"settings": settings_of(cell)})
    assert is_done(tmp_path, "paper", cell)
    assert not is_done(tmp_path, "paper", other)
    changed = settings_of(cell)
    changed["model"]["num_inducing"] = 7
    write(tmp_path, cell.name, {"settings": changed})
    assert not is_done(tmp_path, "paper", cell)


def test_the_papers_numbers_agree_with_each_other():
    """Table 2 against the accuracies in the text: 99.33 % and 74.41 % with two layers."""
    assert paper_numbers.TABLE2["mnist"]["tick"][2]["top1_error"] == pytest.approx(100 - 99.33)
    assert paper_numbers.TABLE2["cifar10"]["tick"][2]["top1_error"] == pytest.approx(100 - 74.41)


def test_curves_are_thinned_from_the_end():
    assert [line["step"] for line in thinned([{"step": i} for i in range(1000)])][-1] == 999
    assert len(thinned([{"step": i} for i in range(1000)])) == 200
    assert thinned([]) == []
