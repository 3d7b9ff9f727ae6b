"""Every table and figure of the paper from small runs on the published data."""

import os
import subprocess
import sys

import pytest

from tickgp.experiments.draw import FIGURES
from tickgp.experiments.plan import EXPERIMENTS, cells_of
from tickgp.experiments.results import is_done

pytestmark = pytest.mark.slow


@pytest.mark.skipif("TICKGP_DATA" not in os.environ, reason="$TICKGP_DATA names no folder with the published files")
def test_all_of_the_paper_at_smoke_scale(tmp_path):
    command = [sys.executable, "-m", "tickgp", "reproduce", "all", "--scale", "smoke"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=20 * 60)
    for cell in cells_of([*EXPERIMENTS], "smoke"):
        assert is_done(tmp_path / "results", cell), cell.name
    for name in [name for drawn in FIGURES.values() for name in drawn.captions]:
        assert (tmp_path / "results/smoke/figures" / f"{name}.png").stat().st_size > 10_000
    page = (tmp_path / "RESULTS.md").read_text()
    assert "Smoke runs" in page
    for title in ("Table 1", "Table 2", "Table 3"):
        assert f"### {title}" in page
