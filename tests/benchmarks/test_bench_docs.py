"""The tables of docs/performance.md are those of the committed results."""

import json
from pathlib import Path

from benchmarks.table import markdown

ROOT = Path(__file__).parents[2]


def test_the_tables_are_made_of_the_results():
    files = sorted((ROOT / "results/benchmarks").glob("steps-*.json"))
    tables = markdown([json.loads(file.read_text()) for file in files])
    assert len(files) >= 2
    assert tables in (ROOT / "docs/performance.md").read_text()
