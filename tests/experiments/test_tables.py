"""The page of results is made from the files alone: ours where there are some, nothing where there are none."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from experiments.tiny import write

from tickgp.experiments import paper_numbers
from tickgp.experiments.cells import CnnConfig
from tickgp.experiments.draw import note_drawn
from tickgp.experiments.included_tables import strangers_table
from tickgp.experiments.location_tables import insensitivity_table, learned_locations, two_against_seven_table
from tickgp.experiments.page import results_page
from tickgp.experiments.plan import EXPERIMENTS, SWEPT, cells_of, swept
from tickgp.experiments.results import LOGARITHMIC, is_done, settings_of, thinned
from tickgp.experiments.run_gp import learned_location
from tickgp.experiments.side_tables import (
    calibration_table,
    catching_up_table,
    channels_table,
    cnn_seeds_table,
    from_the_start_table,
    hits_table,
    sampler_table,
    seeds_table,
    step_ms,
    training_table,
    weights_table,
)
from tickgp.experiments.tables import Book, about_cnns, table1, table2, table3
from tickgp.runs.model_file import load_model
from tickgp.training.tensors import FORMAT

ROOT = Path(__file__).parents[2]
SCALES = ("paper", "fast", "smoke")
MADE = {
    "elbo": -5000.0,
    "seconds": 1.0,
    "machine": {"device": "cpu", "cores": 2, "python": "3.12", "libraries": {"jax": "0.11"}},
    "curve": [{"step": 9, "top1_error": 0.5, "nll": 1.0, "train_nll": 0.03}],
}


def scores(error: float, nll: float) -> dict:
    test = {
        "top1_error": error,
        "top2_error": error / 2,
        "top3_error": error / 4,
        "nll": nll,
        "nll_misses": 2.0,
        "ece": 0.01,
    }
    between = {"ece_if_calibrated" if name == "ece" else name: [0.9 * v, 1.1 * v] for name, v in test.items()}
    return {"test": test, "interval": between}


def rows(section: str) -> list[str]:
    """Of its tables, with their heads."""
    return [line for line in section.splitlines() if line.startswith("|")]


def tick_metrics() -> dict:
    return {on: {"100": scores(0.0098, 0.0337), "5": scores(0.0106, 0.0325)} for on in ("test", "semeion")}


def test_the_committed_page_is_what_the_committed_results_give():
    assert (ROOT / "RESULTS.md").read_text() == results_page(ROOT / "results", ROOT / "RESULTS.md")


@pytest.mark.parametrize("name", ["findings", "claims"])
def test_the_numbers_of_the_docs_stand_on_the_page(name):
    """Those with two decimals or more, but where it is said that a run has been replaced since."""
    number = r"(?<![\d.,])\d+\.\d\d+(?![\d.])"
    page = {*re.findall(number, (ROOT / "RESULTS.md").read_text())}
    quoted = [part for part in (ROOT / f"docs/{name}.md").read_text().split("\n\n") if "since replaced" not in part]
    missing = {*re.findall(number, "\n\n".join(quoted))} - page
    assert not missing


def test_without_runs_only_the_papers_numbers_stand_there(tmp_path):
    book = Book(tmp_path, "paper")
    cells = [
        cell.strip() for table in (table1(book), table2(book), table3(book)) for cell in re.findall(r"[^|]+", table)
    ]
    theirs = [cell for cell in cells if re.fullmatch(r"\[[\d.]+\]", cell)]
    assert len(theirs) == 111
    assert not [cell for cell in cells if "<sub>" in cell]


def test_our_number_stands_beside_the_papers(tmp_path):
    write(tmp_path, "mnist/tick", {"metrics": tick_metrics(), **MADE})
    book = Book(tmp_path, "paper")
    row, below = rows(table1(book))[2:4]
    assert row.startswith("| top-1 error (%) | [2.31] | [1.70] | 0.98 <sub>0.88–1.08</sub> [0.83] | [0.91] |")
    assert below.startswith("| … S = 5 |  |  | 1.06 <sub>0.95–1.17</sub> |  |")
    assert "| − ELBO (×10³) |  |  | 5.000 |  |  |  |  |" in table1(book)
    assert table3(book).count("<sub>") == 10
    assert "| MNIST |  |  | 0.010 <sub>0.009–0.011</sub> |  |  |  |" in calibration_table(book)


def test_a_result_of_other_settings_leaves_the_cell_empty(tmp_path):
    write(tmp_path, "mnist/tick", {"metrics": tick_metrics(), **MADE})
    current = json.loads((tmp_path / "paper/mnist/tick.json").read_text())
    assert Book(tmp_path, "paper").scores("mnist/tick") is not None
    settings = current["settings"]
    outdated = {**settings, "model": {**settings["model"], "num_inducing": 7}}
    for change in ({"settings": outdated}, {"scale": "smoke"}):
        write(tmp_path, "mnist/tick", {**current, **change})
        book = Book(tmp_path, "paper")
        assert book.run("mnist/tick") is None
        assert "<sub>" not in table1(book) + table3(book)
        assert "0 of" in results_page(tmp_path, tmp_path / "RESULTS.md")


def test_the_papers_digits_are_kept(tmp_path):
    text = table2(Book(tmp_path, "paper"))
    assert "| 2 | NLL | [0.04] | [0.02] | [0.84] | [0.75] |" in text
    assert "| 3 | − ELBO (×10³) | [5.045] | [4.19] | [49.38] | [47.53] |" in text


def test_the_cnn_is_chosen_by_its_validation_images(tmp_path):
    for rate, validation, test in ((0.25, 0.5, 0.1), (0.5, 0.2, 0.9), (0.75, 0.3, 0.4)):
        parts = (("validation", validation), ("test", test), ("semeion", test))
        ways = {on: {"dropout": scores(0.1, nll)} for on, nll in parts}
        assert Book(tmp_path, "paper").best_cnn("mnist") is None
        write(tmp_path, f"mnist/bcnn-{rate:g}", {"metrics": ways})
    book = Book(tmp_path, "paper")
    assert book.best_cnn("mnist") == "mnist/bcnn-0.5"
    assert "MNIST: 0.5; Fashion-MNIST: still to be chosen" in about_cnns(book)


def test_the_nll_of_hits_makes_up_the_rest(tmp_path):
    """Ours: 0.0337 = 0.0098 · 2 + 0.9902 · 0.0142; the paper's: 0.029 = 0.0083 · 1.70 + 0.9917 · 0.0150."""
    write(tmp_path, "mnist/tick", {"metrics": tick_metrics(), **MADE})
    row = next(line for line in hits_table(Book(tmp_path, "paper")).splitlines() if line.startswith("| MNIST"))
    assert row.split(" | ")[3] == "0.014 [0.015]"
    perfect = {"100": {"test": scores(0.0, 0.02)["test"] | {"nll_misses": None}}}
    write(tmp_path, "mnist/tick", {"metrics": dict.fromkeys(("test", "semeion"), perfect), **MADE})
    assert "| 0.020 [0.015]" in hits_table(Book(tmp_path, "paper"))


def test_the_nll_of_training_images_is_that_of_many_or_the_last_one_watched(tmp_path):
    curve = [{"train_nll": 0.5}, {"train_nll": 0.04321}]
    write(tmp_path, "mnist/conv", {"metrics": tick_metrics(), **MADE, "curve": curve})
    row = next(line for line in training_table(Book(tmp_path, "paper")).splitlines() if line.startswith("| MNIST"))
    assert row == "| MNIST | [0.060] | 0.043 [0.057] | [0.029] | [0.035] |"
    judged = tick_metrics() | {"train": {"100": {"test": {"nll": 0.0234, "n": 10_000}}}}
    write(tmp_path, "mnist/conv", {"metrics": judged, **MADE, "curve": curve})
    row = next(line for line in training_table(Book(tmp_path, "paper")).splitlines() if line.startswith("| MNIST"))
    assert row == "| MNIST | [0.060] | 0.023 <sub>of 10,000</sub> [0.057] | [0.029] | [0.035] |"


def test_seeds_show_their_spread_once_there_are_two(tmp_path):
    """Errors 1, 2 and 4 %: mean 7/3, squared deviations 16/9 + 1/9 + 25/9 = 42/9, over two: 7/3."""
    tables = []
    for name, error in (("mnist/conv", 0.01), ("mnist/conv-seed1", 0.02), ("mnist/conv-seed2", 0.04)):
        result = {"100": scores(error, 0.05), "5": scores(0.5, 0.5)}
        other = {"100": scores(10 * error, 0.5), "5": scores(0.5, 0.5)}
        write(tmp_path, name, {"metrics": {"test": result, "semeion": other}, "elbo": -5000.0})
        tables.append(rows(seeds_table(Book(tmp_path, "paper"))))
    assert tables[0] == []
    assert "| Conv | 1.50 ± 0.71 <sub>1.00, 2.00</sub> |" in tables[1][2]
    assert tables[2][2] == (
        "| Conv | 2.33 ± 1.53 <sub>1.00, 2.00, 4.00</sub> | 0.050 ± 0.000 <sub>0.050, 0.050, 0.050</sub> "
        "| 23.33 ± 15.28 <sub>10.00, 20.00, 40.00</sub> | 0.500 ± 0.000 <sub>0.500, 0.500, 0.500</sub> "
        "| 5.000 ± 0.000 <sub>5.000, 5.000, 5.000</sub> |"
    )


def test_seeds_of_a_cnn_show_their_spread(tmp_path):
    for name, error in (("mnist/bcnn-0.5", 0.01), ("mnist/bcnn-0.5-seed1", 0.02)):
        metrics = {on: {"dropout": scores(error, 0.05)} for on in ("test", "validation", "semeion")}
        write(tmp_path, name, {"metrics": metrics})
        table = cnn_seeds_table(Book(tmp_path, "paper"))
        assert ("| MNIST, on Semeion | 1.50 ± 0.71 <sub>1.00, 2.00</sub> |" in table) == (error == 0.02)


def test_two_against_seven_needs_both(tmp_path):
    for name in ("mnist-2-7/conv", "mnist-2-7/tick"):
        assert two_against_seven_table(Book(tmp_path, "paper")) == ""
        write(tmp_path, name, {"metrics": tick_metrics(), "elbo": -134.26})
    lines = rows(two_against_seven_table(Book(tmp_path, "paper")))
    assert lines[3].startswith("| TICK | 0.98 <sub>0.88–1.08</sub> | 0.034")
    assert lines[3].endswith("| 134.3 |")


def test_the_learned_location_is_shown(tmp_path):
    learned = {"lengthscale": 8.641, "zero_crossings": 1.786, "width": 28}
    assert learned_locations(Book(tmp_path, "paper")) == ""
    write(tmp_path, "mnist/tick", {"metrics": tick_metrics(), "learned": learned})
    assert "| mnist/tick | matern32 | 8.64 | 28 | 1.79 |" in learned_locations(Book(tmp_path, "paper"))


def swept_result(title: str, seed: int) -> dict:
    """Errors, ELBOs and lengthscales that tell models and seeds apart."""
    names = ("TICK, fixed at 1", "TICK, fixed at 16", "TICK, learned from 3", "Conv", "TICK, learned from 16")
    at = 1 + names.index(title)
    score = scores(0.01 * at, 0.1 * at + 0.02 * seed)
    learned = None if title == "Conv" else {"lengthscale": 5.0 + seed, "zero_crossings": 1.0, "width": 28}
    return {**MADE, "metrics": {"test": {"100": score}}, "elbo": -1000.0 * at, "learned": learned, "train_images": 1000}


def write_swept(results: Path) -> None:
    for dataset in SWEPT:
        for title, cells in swept(dataset, "smoke").items():
            for seed, cell in enumerate(cells):
                write(results, cell.name, swept_result(title, seed), "smoke")


def test_fixed_and_learned_lengthscales_stand_side_by_side(tmp_path):
    """NLL 0.3 and 0.32: a mean of 0.31, a deviation of 0.02 / √2."""
    assert insensitivity_table(Book(tmp_path, "paper")) == ""
    write_swept(tmp_path)
    lines = rows(insensitivity_table(Book(tmp_path, "smoke")))
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| TICK, learned")] == [
        "TICK, learned from 3",
        "TICK, learned from 16",
    ] * 2
    assert lines[0].startswith("| MNIST | lengthscale learned | − ELBO (×10³) |")
    assert lines[4] == (
        "| TICK, learned from 3 | 5.50 ± 0.71 <sub>5.00, 6.00</sub> | 3.000 ± 0.000 <sub>3.000, 3.000</sub> "
        "| 3.00 ± 0.00 <sub>3.00, 3.00</sub> | 0.310 ± 0.014 <sub>0.300, 0.320</sub> |"
    )
    assert lines[2].startswith("| TICK, fixed at 1 |  | 1.000")
    assert learned_locations(Book(tmp_path, "smoke")) == "", "these are not runs of the paper's tables"
    (tmp_path / "smoke/mnist-5000/conv.json").unlink()
    assert rows(insensitivity_table(Book(tmp_path, "smoke")))[0].startswith("| grey CIFAR-10 |")


def test_the_page_says_how_long_each_machine_has_trained(tmp_path):
    machines = {"conv": "cpu", "tick": "H200", "se": "H200"}
    for name, device in machines.items():
        made = {**MADE, "machine": {**MADE["machine"], "device": device}, "format": FORMAT}
        write(tmp_path, f"mnist/{name}", {**made, "metrics": tick_metrics(), "seconds": 120.0})
    page = results_page(tmp_path, tmp_path / "RESULTS.md")
    assert "3 of 63 runs are done. Still to be made: `mnist/bcnn-0.25`, " in page
    what = "| table1: GPs |"
    assert (
        f"{what} 1 | 2 | 2 CPU cores (Python 3.12, jax 0.11) |\n{what} 2 | 4 | H200 (Python 3.12, jax 0.11) |" in page
    )
    assert page.count("| 4 | H200") == 1, "a run that serves several tables is counted once"


def test_the_page_says_how_many_gps_are_of_an_earlier_version(tmp_path):
    for name, made in {"conv": {}, "tick": {"format": LOGARITHMIC - 1}, "se": {"format": 0}}.items():
        write(tmp_path, f"mnist/{name}", {**MADE, "metrics": tick_metrics(), **made})
    page = results_page(tmp_path, tmp_path / "RESULTS.md")
    assert "an earlier version of the library made (2 of 3)" in page
    (error,) = [line for line in page.splitlines() if line.startswith("| top-1 error (%) | 0.98†")]
    assert [("†" in said) for said in error.split(" | ")[1:4]] == [True, False, True]
    for name in ("tick", "se"):
        write(tmp_path, f"mnist/{name}", {**MADE, "metrics": tick_metrics()})
    page = results_page(tmp_path, tmp_path / "RESULTS.md")
    assert "earlier version" not in page
    assert "†" not in page


def test_the_time_of_a_step_leaves_out_what_was_compiled():
    seconds = [30.0, 40.0, 40.2, 40.4, 47.0, 47.2]
    curve = [{"step": 100 * (n + 1), "seconds": time} for n, time in enumerate(seconds)]
    assert step_ms({"curve": curve}) == pytest.approx(2.0)
    assert np.isnan(step_ms({"curve": curve[:2]}))


def test_channels_stand_below_each_other(tmp_path):
    """A dataset without a run is left out, and a number of channels too."""
    assert channels_table(Book(tmp_path, "paper")) == channels_table(Book(tmp_path, "smoke")) == ""
    metrics = {"test": {"100": scores(0.01, 0.03), "5": scores(0.02, 0.04)}}
    write(tmp_path, "cifar10-5000/channels-10", {"metrics": metrics, "elbo": -4190.4}, "smoke")
    table = rows(channels_table(Book(tmp_path, "smoke")))
    assert [line.split(" | ")[:2] for line in table] == [
        ["| CIFAR-10, channels", "− ELBO (×10³)"],
        ["| ---", "---"],
        ["| 10", "4.190"],
    ]


def test_samplers_from_the_start_stand_below_each_other(tmp_path):
    """Seeds are averaged where there are some."""
    assert from_the_start_table(Book(tmp_path, "paper")) == from_the_start_table(Book(tmp_path, "fast")) == ""
    metrics = {"test": {"100": scores(0.01, 0.03), "5": scores(0.02, 0.04)}}
    found = {"mnist-5000/channels-5-full": -1500.0, "mnist-5000/channels-5-full-seed2": -1600.0}
    for name, elbo in {**found, "cifar10-5000/channels-5": -7700.0}.items():
        write(tmp_path, name, {"metrics": metrics, "elbo": elbo}, "fast")
    table = rows(from_the_start_table(Book(tmp_path, "fast")))
    assert [(line.split(" | ")[0], line.split(" | ")[3]) for line in table] == [
        ("| MNIST, samples", "− ELBO (×10³) |"),
        ("| ---", "--- |"),
        ("| full", "1.550 ± 0.071 <sub>1.500, 1.600</sub> |"),
        ("| CIFAR-10, samples", "− ELBO (×10³) |"),
        ("| ---", "--- |"),
        ("| marginal", "7.700 |"),
    ]


def test_weights_are_compared_where_there_are_two_seeds(tmp_path):
    assert weights_table(Book(tmp_path, "paper")) == weights_table(Book(tmp_path, "smoke")) == ""
    metrics = {"test": {"100": scores(0.01, 0.03), "5": scores(0.02, 0.04)}}
    for name, elbo in {"equal": -70.0, "prior": -40.0, "prior-seed1": -50.0}.items():
        write(tmp_path, f"mnist-300/weights-{name}", {"metrics": metrics, "elbo": elbo}, "smoke")
    table = rows(weights_table(Book(tmp_path, "smoke")))
    assert [line.split(" | ")[:2] for line in table] == [
        ["| MNIST, weights", "− ELBO (nats)"],
        ["| ---", "---"],
        ["| learned, with a prior", "45 ± 7 <sub>40, 50</sub>"],
    ]


def test_price_and_gain_of_a_sampler(tmp_path):
    curve = [{"step": step, "seconds": 0.05 * step} for step in (100, 200, 300)]
    content = {"metrics": {"test": {"100": scores(0.01, 0.03), "5": scores(0.02, 0.04)}}, "elbo": -4190.4}
    write(tmp_path, "mnist/deep-tick-2-full", {**content, "curve": curve})
    row = next(line for line in sampler_table(Book(tmp_path, "paper")).splitlines() if "TICK, then full" in line)
    assert row.startswith("| TICK, then full | 50 | 1.00 <sub>")
    assert row.endswith("| 4.190 |")


def test_every_page_of_misclassified_images_is_linked(tmp_path):
    for name in ("conv", "tick"):
        write(tmp_path, f"mnist/{name}", {"metrics": tick_metrics(), **MADE})
    for rate in (0.25, 0.5, 0.75):
        ways = {way: scores(0.1, 0.3) for way in ("dropout", "deterministic", "temperature")}
        content = {"metrics": dict.fromkeys(("validation", "test", "semeion"), ways), **MADE}
        write(tmp_path, f"mnist/bcnn-{rate:g}", content)
    names = [f"misclassified-semeion{end}" for end in ("", *(f"-all-Conv-GP-{n}" for n in range(1, 12)))]
    for name in names:
        path = tmp_path / "paper" / "figures" / f"{name}.png"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert "misclassified-semeion" not in results_page(tmp_path, tmp_path / "RESULTS.md")
    note_drawn(Book(tmp_path, "paper"), names[:1])
    page = results_page(tmp_path, tmp_path / "RESULTS.md")
    assert [page.index(f"/{name}.png") for name in names] == sorted(page.index(f"/{name}.png") for name in names)
    write(tmp_path, "mnist/tick", {"metrics": tick_metrics(), **MADE, "elbo": -4999.0})  # made anew, and not drawn
    assert "misclassified-semeion" not in results_page(tmp_path, tmp_path / "RESULTS.md")


def test_pictures_are_found_from_wherever_the_page_is(tmp_path):
    results, name = tmp_path / "my results", "dropout"
    write(results, "mnist/tick", {"metrics": tick_metrics(), **MADE})
    picture = results / "paper" / "figures" / f"{name}.png"
    picture.parent.mkdir()
    picture.touch()
    note_drawn(Book(results, "paper"), [name])
    for page in (tmp_path / "RESULTS.md", tmp_path / "a" / "b" / "page.md", results / "page.md"):
        (address,) = re.findall(r"\]\(([^)]*\.png)\)", results_page(results, page))
        assert " " not in address
        assert (page.parent / unquote(address)).resolve() == picture


def curve(*lines: tuple[int, float, float]) -> dict:
    return {"curve": [dict(zip(("step", "top1_error", "nll"), line, strict=True)) for line in lines]}


def rows_of(book: Book) -> dict[str, str]:
    """What stands beside each title of the table."""
    return {row.split(" | ")[0].strip("| "): row for row in rows(catching_up_table(book))[2:]}


def test_the_step_at_which_cnns_catch_up_with_the_papers(tmp_path):
    """The paper's on MNIST: 0.91 % and 0.035, of which a curve that equals one has reached it."""
    late, early = (10, 0.5, 1.0), (30, 0.001, 0.001)
    seeds = {
        "mnist/bcnn-0.5": curve(late, (20, 0.0091, 0.035), early),
        "mnist/bcnn-0.5-seed1": curve(late, (20, 0.0092, 0.036), early),
        "mnist/bcnn-0.5-seed2": curve(late, (1500, 0.001, 0.036)),
    }
    empty = rows_of(Book(tmp_path, "paper"))
    assert empty["MNIST, table 1"] == "| MNIST, table 1 | 0 | [0.91] | [0.035] |"
    found = []
    for name, content in seeds.items():
        write(tmp_path, name, {"metrics": {"test": {}, "semeion": {}}, **content})
        found.append(rows_of(Book(tmp_path, "paper"))["MNIST, table 1"])
    assert found == [
        "| MNIST, table 1 | 1 | 20 [0.91] | 20 [0.035] |",
        "| MNIST, table 1 | 2 | 25 <sub>20–30</sub> [0.91] | 25 <sub>20–30</sub> [0.035] |",
        "| MNIST, table 1 | 3 | 30 <sub>20–1,500</sub> [0.91] | 30 <sub>20–never</sub> [0.035] |",
    ]
    table = rows_of(Book(tmp_path, "paper"))
    assert table["MNIST, 2 convolutions"].startswith("| MNIST, 2 convolutions | 3 | 20 <sub>20–1,500</sub> [1.04] |")
    assert table["MNIST, 1 convolution"] == "| MNIST, 1 convolution | 0 | [1.93] | [0.07] |"
    assert catching_up_table(Book(tmp_path, "fast")) == ""


def test_a_single_cnn_may_never_catch_up(tmp_path):
    write(tmp_path, "mnist/bcnn-depth3", {"metrics": {"test": {}}, **curve((10, 0.5, 0.01))})
    row = rows_of(Book(tmp_path, "paper"))["MNIST, 3 convolutions"]
    assert row == "| MNIST, 3 convolutions | 1 | never [0.86] | 10 [0.04] |"


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_is_there_once_and_after_what_it_needs(scale):
    cells = cells_of(list(EXPERIMENTS), scale)
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    for i, cell in enumerate(cells):
        assert {other.name for other in cell.needs} <= {*names[:i]}


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
    assert not deep.model.hidden_mean_field
    assert (deep.model.stride, deep.model.hidden_stride, deep.model.initialiser) == (1, 1, "random")
    network = cells["mnist/bcnn-0.5"]
    assert isinstance(network, CnnConfig)
    assert (network.learning_rate, network.data.validation_share, network.dropout) == (1e-4, 0.1, 0.5)


def test_a_result_of_other_settings_does_not_count(tmp_path):
    cell, other = cells_of(["patch-response"], "paper")
    write(tmp_path, cell.name, {"settings": settings_of(cell)})
    assert is_done(tmp_path, cell)
    assert not is_done(tmp_path, other)
    changed = settings_of(cell)
    changed["model"]["num_inducing"] = 7
    write(tmp_path, cell.name, {"settings": changed})
    assert not is_done(tmp_path, cell)


def test_the_papers_numbers_agree_with_each_other():
    """Table 2 against the accuracies in the text: 99.33 % and 74.41 % with two layers."""
    assert float(paper_numbers.TABLE2["mnist"]["tick"][2]["top1_error"]) == pytest.approx(100 - 99.33)
    assert float(paper_numbers.TABLE2["cifar10"]["tick"][2]["top1_error"]) == pytest.approx(100 - 74.41)


@pytest.mark.parametrize(
    ("name", "counts"), [("mnist/tick", False), ("mnist/deep-conv-1", False), ("mnist/deep-conv-2", True)]
)
def test_settings_that_a_model_does_not_have_make_no_difference(name, counts, tmp_path):
    """Their defaults may change without any run being another."""
    cell = next(cell for cell in cells_of(["table1", "table2"], "paper") if cell.name == name)
    changed = settings_of(cell)
    write(tmp_path, name, {"settings": changed, "metrics": {"semeion": {}}})
    assert is_done(tmp_path, cell)
    changed["model"] |= {"hidden_variance": 7.0, "width": 3}
    write(tmp_path, name, {"settings": changed, "metrics": {"semeion": {}}})
    assert is_done(tmp_path, cell) != counts


def test_curves_are_thinned_from_the_end():
    assert [line["step"] for line in thinned([{"step": i} for i in range(1000)])][-1] == 999
    assert len(thinned([{"step": i} for i in range(1000)])) == 200
    assert thinned([]) == []


def test_the_included_model_is_the_one_that_was_evaluated():
    """What `make pretrained` writes goes with the model's own row, but for its other draws."""
    own = json.loads((ROOT / "results/fast/mnist/pretrained.json").read_text())
    assert learned_location(load_model("mnist-tick").model) == pytest.approx(own["learned"], rel=1e-6)
    for name, on in {"mnist": "test", "semeion": "semeion"}.items():
        found = json.loads((ROOT / f"results/included/{name}.json").read_text())["test"]
        for metric in ("top1_error", "nll"):
            assert found[metric] == pytest.approx(own["metrics"][on]["100"]["test"][metric], rel=0.05)


def test_images_of_another_kind(tmp_path):
    book = Book(tmp_path, "fast")
    assert strangers_table(book) == ""
    (tmp_path / "included").mkdir()
    handed = {"share": 0.9451, "unusual": 0.8949, "error_of_the_rest": None, "max_error": 0.01}
    for name, auroc in {
        "mnist": {},
        "semeion": {"entropy": 0.5, "mutual_information": 0.25, "variance": 0.9, "distance": 1.0},
    }.items():
        content = {"hand_over": handed, **({"auroc": auroc} if auroc else {})}
        (tmp_path / "included" / f"{name}.json").write_text(json.dumps(content))
    mnist, semeion = rows(strangers_table(book))[2:]
    assert mnist == "| MNIST | 94.51 | 89.49 |  |  |  |  |  |"
    assert semeion == "| Semeion | 94.51 | 89.49 |  | 0.500 | 0.250 | 0.900 | 1.000 |"
    assert strangers_table(Book(tmp_path, "smoke")) == ""
