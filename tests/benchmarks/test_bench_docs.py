"""The tables of the docs are those of the committed results."""

import json
from pathlib import Path

from benchmarks.table import markdown
from benchmarks.unusual import markdown as unusual_table

ROOT = Path(__file__).parents[2]


def results(pattern: str) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted((ROOT / "results/benchmarks").glob(pattern))]


def test_the_tables_of_steps_are_made_of_the_results():
    documents = results("steps-*.json")
    assert len(documents) >= 2
    assert markdown(documents) in (ROOT / "docs/performance.md").read_text()


def test_the_tables_of_unusual_images_are_made_of_the_results():
    tables = [unusual_table(found) for document in results("unusual-*.json") for found in document["runs"].values()]
    assert tables
    page = (ROOT / "docs/unusual-images.md").read_text()
    assert [table for table in tables if table not in page] == []
