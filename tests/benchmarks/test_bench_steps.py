"""From the command to the JSON and the tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processes import ChildError, start_contender
from benchmarks.rows import TINY, choose_rows, make_data
from benchmarks.steps import measure_rows
from benchmarks.table import markdown
from benchmarks.timing import block_length, quartiles

ROOT = Path(__file__).parents[2]
STORED = Path(__file__).with_name("steps_small.json")

MARKDOWN = """\
NVIDIA X1, 16 cores of Some CPU; python 3.12.3, jax 0.11.2, jaxlib 0.11.2, torch 2.11.0; 2026-11-15.

| step | ours | ours by default | peers | ratio | target | floor | share | peak memory |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| tick-1000 | 1.5 ms (667 it/s) | 2 ms (500 it/s) \
| torch 4.5 ms (222 it/s); torch-tf32 OutOfMemoryError: CUDA out of memory. \
| 3.00 ×; – | ≥ 600 it/s | 0.3 ms (compute) | 20 % | 0.42 GB; torch 2.10 GB |
| cpu-200 | 60 ms (16.7 it/s) |  |  |  | ≥ 1.5 × gpflow | 12 ms (memory) | 20 % \
| 0.50 GB (compiled 0.25, process 0.70) |
"""


def test_markdown_of_stored_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.table.floor_of", lambda row, rates: row["floor"])
    document = json.loads(STORED.read_text())
    assert markdown([document]) == MARKDOWN
    parts = [{**document, "rows": {name: row}} for name, row in document["rows"].items()]
    parts[1]["rows"]["cpu-200"]["contenders"]["torch"] = {"missing": "", "versions": {"torch": "2.11.0"}}
    assert markdown(parts) == MARKDOWN  # measured in two calls on one day: one table


def test_a_contender_that_is_nowhere_leaves_the_others_alone() -> None:
    rates = {"exact": 1.0, "default": 1.0, "copy": 1.0}
    pythons = {"tickgp": "no-such-python", "gpflow": "false"}
    wanted = {TINY[0]: ["tickgp", "gpflow"]}
    [(_, row)] = measure_rows(wanted, "cpu", repeats=1, pythons=pythons, rates=rates)
    assert "no-such-python" in row["contenders"]["tickgp"]["missing"]
    assert "ended with exit code 1" in row["contenders"]["gpflow"]["error"]


@pytest.mark.slow
def test_steps_of_a_tiny_row(tmp_path: Path) -> None:
    """A missing peer leaves its cell empty and says so."""
    out = tmp_path / "steps.json"
    options = ["--only", "tiny", "--repeats", "2", "--device", "cpu", "--out", str(out)]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", "steps", *options, "--gpflow-python", sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(out.read_text())
    row = document["rows"]["tiny"]
    ours = row["contenders"]["tickgp"]
    assert row["contenders"]["tickgp-default"]["median_ms"] > 0
    assert ours["quartiles_ms"][0] <= ours["median_ms"] <= ours["quartiles_ms"][1]
    assert ours["per_second"] == pytest.approx(1e3 / ours["median_ms"])
    assert ours["share_of_floor"] == pytest.approx(row["floor"]["ms"] / ours["median_ms"])
    assert 0 < ours["steady_peak_bytes"] <= ours["peak_bytes"] < ours["process_peak_bytes"]
    assert min(document["rates"].values()) > 1e6
    if "missing" in row["contenders"]["gpflow"]:
        assert "gpflow is left out: No module named" in ended.stderr
    assert "| tiny |" in markdown([document])


def test_a_failing_contender_says_why() -> None:
    words = "RuntimeError: Unable to initialize backend 'nowhere'"
    child = start_contender("tickgp", TINY[0], "cpu", JAX_PLATFORMS="nowhere")
    with child as failing, pytest.raises(ChildError, match=words):
        failing.answer()


def test_a_process_that_dies_says_how() -> None:
    child = start_contender("tickgp", TINY[0], "cpu", python="false")
    with child as dead, pytest.raises(ChildError, match="ended with exit code 1: it said nothing"):
        dead.ask(3)


def test_unknown_rows_are_named() -> None:
    with pytest.raises(ValueError, match="there is no row tick-1000 for a cpu; choose among: cpu-1000, cpu-200, tiny"):
        choose_rows("cpu", ("tick-1000",))
    assert [row.name for row in choose_rows("cpu")] == ["cpu-1000", "cpu-200"]


def test_images_are_mostly_black_and_distinct() -> None:
    images, labels = make_data(TINY[0])
    assert (images == 0).mean() == pytest.approx(0.6, abs=0.02)
    assert len({image.tobytes() for image in images}) == len(images) == len(labels)


def test_blocks_take_half_a_second() -> None:
    assert [block_length(ms) for ms in (0.1, 10.0, 1000.0)] == [1000, 50, 3]
    assert quartiles([3.0]) == (3.0, 3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
