"""`python -m benchmarks steps`: the training step of ours and of the peers, alternating, within one run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks.floor import count
from benchmarks.processes import ChildError, MissingError, start_contender
from benchmarks.rows import Device, Row
from benchmarks.timing import Timed

PEERS: dict[Device, tuple[str, ...]] = {"gpu": ("torch", "torch-tf32"), "cpu": ("gpflow",)}

Results = dict[str, dict[str, Any]]


def contenders(row: Row, device: Device, peers: bool) -> list[str]:
    """Ours, and those peers that can do this row: GPflow has no deep models."""
    able = [name for name in PEERS[device] if name != "gpflow" or row.depth == 1]
    return ["tickgp", *(able if peers else [])]


def measure_row(
    row: Row,
    names: list[str],
    device: Device,
    *,
    repeats: int,
    pythons: dict[str, str],
    rates: dict[str, float],
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """All there is to say of a row. A contender that fails has an `error`, one that is not installed a `missing`."""
    if repeats < 1:
        raise ValueError(f"{repeats} repeats were asked for; the least is 1")
    results = _measure(row, names, device, repeats, pythons, say)
    floor = count(row).at(rates)
    for result in results.values():
        if "median_ms" in result:
            result["share_of_floor"] = floor["ms"] / result["median_ms"]
    return {"sizes": row.as_json(), "target": row.target, "floor": floor, "contenders": results}


def _measure(
    row: Row, names: list[str], device: Device, repeats: int, pythons: dict[str, str], say: Callable[[str], None]
) -> Results:
    running: dict[str, Timed] = {}
    results: Results = {}
    left = lambda: [name for name in running if name not in results]
    with ExitStack() as stack:
        for name in names:
            say(f"{row.name}: {name} compiles")
            with _noting(name, results):
                python = pythons.get(name, sys.executable)
                running[name] = Timed(stack.enter_context(start_contender(name, row, device, python)))
        for i in range(repeats):
            say(f"{row.name}: block {i + 1} of {repeats}")
            for name in left():
                with _noting(name, results):
                    running[name].run_block()
        for name in left():
            with _noting(name, results):
                results[name] = running[name].result()
    return {name: results[name] for name in names}


@contextmanager
def _noting(name: str, results: Results) -> Iterator[None]:
    """The failure of a contender is its result; the others go on."""
    try:
        yield
    except (MissingError, OSError) as error:  # nothing to import, or no such Python
        results[name] = {"missing": str(error)}
    except ChildError as error:
        results[name] = {"error": str(error)}
