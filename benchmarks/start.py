"""`python -m benchmarks start`: the first step in a fresh process, with nothing compiled before, and with all of it."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from benchmarks.processes import start_contender
from benchmarks.rows import Device, Row

DEFAULT: dict[Device, tuple[str, ...]] = {"gpu": ("tick-1000", "deep-mnist-correlated"), "cpu": ("cpu-1000",)}


def measure_start(row: Row, device: Device) -> dict[str, dict[str, float]]:
    """Seconds with a cold and with a warm compilation cache."""
    with tempfile.TemporaryDirectory() as cache:
        return {state: _first_step(row, device, cache) for state in ("cold", "warm")}


def _first_step(row: Row, device: Device, cache: str) -> dict[str, Any]:
    """Seconds of the first step, and of all from the start of Python to its end: imports, data and model too."""
    began = time.perf_counter()
    # As `tickgp` itself has it.
    settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    with start_contender("tickgp", row, device, **settings) as child:
        child.answer()
        first = child.answer()["ms"] / 1e3
        return {"first_step_s": first, "process_s": time.perf_counter() - began}
