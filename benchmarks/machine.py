"""The machine that measures: its names, its versions, and how fast it multiplies and copies."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

_SIZES = {"gpu": (8192, 2**29), "cpu": (1024, 2**25)}
"""Rows of the matrices to multiply, and float32 numbers to copy: enough to be bound by neither caches nor latency."""


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """What a table of times must say; with `rates` in the spec, rates are measured too."""
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    machine = {
        "device": device,
        "name": jax.devices()[0].device_kind if device == "gpu" else _cpu_name(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "jaxlib": version("jaxlib")},
    }
    return {"machine": machine, "rates": _rates(*_SIZES[device]) if spec.get("rates") else None}


def _rates(rows: int, numbers: int) -> dict[str, float]:
    """Flops per second of float32 products, exact and as precise as by default, and bytes per second of a copy."""
    a = jnp.ones((rows, rows))
    product = lambda precision: jax.jit(lambda a: jnp.matmul(a, a, precision=precision))
    x = jnp.ones(numbers)
    return {
        "exact": 2 * rows**3 / _best_seconds(product(jax.lax.Precision.HIGHEST), a),
        "default": 2 * rows**3 / _best_seconds(product(jax.lax.Precision.DEFAULT), a),
        "copy": 2 * x.nbytes / _best_seconds(jax.jit(lambda x: x + 1), x),
    }


def _best_seconds(function: Callable[[jax.Array], jax.Array], x: jax.Array) -> float:
    function(x).block_until_ready()
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        function(x).block_until_ready()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
