"""`python -m benchmarks growth`: how time and memory of our step grow with one size while the others stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from benchmarks.processes import ChildError, start_contender
from benchmarks.rows import MNIST, Device, Row
from benchmarks.timing import Timed

Quantity = Literal["M", "B", "side", "depth", "channels"]

_TICK, _DEEP = Row("TICK", MNIST, M=384, B=32), Row("deep TICK", MNIST, M=384, B=32, depth=2)
_SMALL = Row("TICK", (20, 20, 1), M=100, B=16, num_images=10_000)
BASES: dict[Device, tuple[Row, Row]] = {
    "gpu": (_TICK, _DEEP),
    "cpu": (_SMALL, replace(_SMALL, name="deep TICK", depth=2, channels=4)),
}
"""A TICK-GP for M, B and side; a deep one for depth and channels."""

VALUES: dict[Device, dict[Quantity, tuple[int, ...]]] = {
    "gpu": {
        "M": (128, 256, 512, 1024, 2048),
        "B": (16, 32, 64, 128, 256, 512),
        "side": (16, 24, 32, 48, 64, 96),
        "depth": (1, 2, 3),
        "channels": (2, 4, 8, 16, 32),
    },
    "cpu": {
        "M": (50, 100, 200, 400, 800),
        "B": (8, 16, 32, 64, 128),
        "side": (12, 16, 20, 28, 40),
        "depth": (1, 2, 3),
        "channels": (2, 4, 8, 16),
    },
}

FITTED = 3
"""Points, the last ones, that the exponent is fitted to: small ones show what a step costs at any size."""


def quantities(device: Device, only: tuple[Quantity, ...] = ()) -> Iterator[tuple[Quantity, dict[int, Row]]]:
    """A row for each value of each quantity, or of those that are named."""
    tick, deep = BASES[device]
    for quantity in only or VALUES[device]:
        base = deep if quantity in ("depth", "channels") else tick
        yield quantity, {value: _changed(base, quantity, value) for value in VALUES[device][quantity]}


def _changed(base: Row, quantity: Quantity, value: int) -> Row:
    change: dict[str, Any] = {"image": (value, value, 1)} if quantity == "side" else {quantity: value}
    return replace(base, **change)


def measure_points(rows: dict[int, Row], device: Device, *, repeats: int = 5) -> dict[int, dict[str, Any]]:
    """Times and memory of our step alone, each in a process of its own; or its `error`.

    The processes get ready side by side and are then timed in turn.
    """
    found: dict[int, dict[str, Any]] = {}
    with ExitStack() as stack:
        children = {v: stack.enter_context(start_contender("tickgp", row, device)) for v, row in rows.items()}
        running: dict[int, Timed] = {}
        for value, child in children.items():
            try:
                running[value] = Timed(child)
            except ChildError as error:
                found[value] = {"error": str(error)}
        for value, timed in running.items():
            try:
                timed.warm_up()
                for _ in range(repeats):
                    timed.run_block()
                found[value] = timed.result()
            except ChildError as error:
                found[value] = {"error": str(error)}
    return {value: found[value] for value in rows}


def exponents(measured: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each quantity x the exponents a of time ∝ xᵃ and of memory ∝ xᵃ; depth has none: layers are added up."""
    found: dict[str, dict[str, float]] = {}
    for quantity in dict.fromkeys(point["quantity"] for point in measured if point["quantity"] != "depth"):
        good = [p for p in measured if p["quantity"] == quantity and "median_ms" in p][-FITTED:]
        if len(good) > 1:
            x = [p["value"] for p in good]
            found[quantity] = {
                "time": power_law(x, [p["median_ms"] for p in good])[0],
                "memory": power_law(x, [memory(p) for p in good])[0],
            }
    return found


def memory(point: dict[str, Any]) -> float:
    """Bytes at the worst moment; on a CPU after the first step, because compilation takes more than small models do."""
    steady = point.get("steady_peak_bytes")
    return float(point["peak_bytes"] if steady is None else steady)


def power_law(x: list[float], y: list[float]) -> tuple[float, float]:
    """a and c of y = c xᵃ, by least squares of the logarithms."""
    a, log_c = np.polyfit(np.log(x), np.log(y), 1)
    return float(a), float(np.exp(log_c))
