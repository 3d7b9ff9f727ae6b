"""`python -m benchmarks steps`: the training step of ours and of the peers, alternating, within one run."""

from __future__ import annotations

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
    """Ours, trained as the peers and by default, and those peers that can do this row: GPflow has no deep models."""
    able = [name for name in PEERS[device] if name != "gpflow" or row.depth == 1]
    return ["tickgp", "tickgp-default", *(able if peers else [])]


def measure_rows(
    wanted: dict[Row, list[str]],
    device: Device,
    *,
    repeats: int,
    pythons: dict[str, str],
    rates: dict[str, float],
    say: Callable[[str], None] = lambda words: None,
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """All there is to say of each row. A contender that fails has an `error`, one that is not installed a `missing`.

    All contenders of all rows get ready side by side; then those of one row after the other are timed, in turn.
    """
    if repeats < 1:
        raise ValueError(f"{repeats} repeats were asked for; the least is 1")
    results: dict[Row, Results] = {row: {} for row in wanted}
    running: dict[Row, dict[str, Timed]] = {row: {} for row in wanted}
    with ExitStack() as stack:
        pairs = [(row, name) for row, names in wanted.items() for name in names]
        children = {}
        for row, name in pairs:
            with _noting(name, results[row]):
                children[row, name] = stack.enter_context(start_contender(name, row, device, pythons.get(name)))
        for (row, name), child in children.items():
            say(f"{row.name}: {name} compiles")
            with _noting(name, results[row]):
                running[row][name] = Timed(child)
        for row, names in wanted.items():
            _time(row, running[row], results[row], repeats, say)
            floor = count(row).at(rates)
            for result in results[row].values():
                if "median_ms" in result:
                    result["share_of_floor"] = floor["ms"] / result["median_ms"]
            in_order = {name: results[row][name] for name in names}
            yield row, {"sizes": row.as_json(), "target": row.target, "floor": floor, "contenders": in_order}


def _time(row: Row, running: dict[str, Timed], results: Results, repeats: int, say: Callable[[str], None]) -> None:
    left = lambda: [name for name in running if name not in results]
    for name in left():
        with _noting(name, results):
            running[name].warm_up()
    for i in range(repeats):
        say(f"{row.name}: block {i + 1} of {repeats}")
        for name in left():
            with _noting(name, results):
                running[name].run_block()
    for name in left():
        with _noting(name, results):
            results[name] = running[name].result()


@contextmanager
def _noting(name: str, results: Results) -> Iterator[None]:
    """The failure of a contender is its result; the others go on."""
    try:
        yield
    except (MissingError, OSError) as error:  # nothing to import, or no such Python
        results[name] = {"missing": str(error)}
    except ChildError as error:
        results[name] = {"error": str(error)}
