"""Times of one contender, block of steps by block of steps."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.processes import Child

_BLOCK_MS = 500
_LEAST, _MOST = 3, 1000


class Timed:
    """A contender whose first step is done."""

    def __init__(self, child: Child):
        self._child = child
        self._versions = child.answer()["versions"]
        child.answer()
        self._length = _LEAST
        self._blocks: list[float] = []

    def warm_up(self) -> None:
        """Find out, while nothing else is computed, how many steps make a block; the next are as fast as they get."""
        self._child.ask(_LEAST)
        self._length = block_length(self._child.ask(_LEAST)["ms"])
        self._child.ask(self._length)

    def run_block(self) -> None:
        self._blocks.append(self._child.ask(self._length)["ms"])

    def result(self) -> dict[str, Any]:
        """Milliseconds per step: the median of the blocks and their quartiles; bytes."""
        peak = self._child.ask("peak")
        low, median, high = quartiles(self._blocks)
        return {
            "median_ms": median,
            "quartiles_ms": [low, high],
            "per_second": 1e3 / median,
            "peak_bytes": peak["peak"],
            "process_peak_bytes": peak.get("process_peak"),
            "steady_peak_bytes": peak.get("steady_peak"),
            "blocks": len(self._blocks),
            "steps_per_block": self._length,
            "versions": self._versions,
            "note": peak["note"],
        }


def block_length(ms: float) -> int:
    """Steps that take about half a second together."""
    return min(max(round(_BLOCK_MS / ms), _LEAST), _MOST)


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return (values[0],) * 3
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high
