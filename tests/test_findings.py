"""The page of findings quotes RESULTS.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_decimal_number_of_the_findings_stands_in_the_results():
    number = r"(?<![\d.,])\d+\.\d+(?![\d.])"
    quoted, results = ((ROOT / name).read_text() for name in ("docs/findings.md", "RESULTS.md"))
    assert set(re.findall(number, quoted)) <= set(re.findall(number, results))
