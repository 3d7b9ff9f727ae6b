"""The inside of a process of its own: `python -m benchmarks.child WHAT SPEC`, spoken to over pipes.

A contender answers twice unasked: when it is ready, and when its first step is done, with the milliseconds that this
took. Then each line it reads is a number of steps, answered by the milliseconds that each of them took, or `peak`,
answered by the most memory used so far. Other things are one question with one answer. Every answer is a line of JSON;
an error is an answer too, and the last one.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from benchmarks.memory import PeakMemory
from benchmarks.rows import Row, make_data

CONTENDERS = {
    "tickgp": "benchmarks.contenders.ours",
    "tickgp-default": "benchmarks.contenders.ours",
    "torch": "benchmarks.contenders.pytorch",
    "torch-tf32": "benchmarks.contenders.pytorch",
    "gpflow": "benchmarks.contenders.gpflow_conv",
}
QUESTIONS = {
    "machine": "benchmarks.machine",
    "precision": "benchmarks.precision",
    "predict": "benchmarks.predict",
    "rounding": "benchmarks.rounding",
}
"""Modules with a function answer(spec)."""

Answer = Callable[[dict[str, Any]], None]


class Contender(Protocol):
    """A model with its optimiser and its data, ready to be trained."""

    versions: dict[str, str]
    note: str
    """What a reader of its times must know; empty if nothing."""

    def prepare(self, steps: int) -> None:
        """What has to be done before a block of this many steps, and is not timed."""

    def run(self, steps: int) -> None:
        """That many steps, to their end: the device has finished."""

    def peak(self) -> int | None:
        """Bytes of the device's memory in use at the worst moment; None where the device is the CPU."""


def main() -> None:
    what, spec = sys.argv[1], json.loads(sys.argv[2])
    answer = _answers()
    try:
        if what in QUESTIONS:
            answer(importlib.import_module(QUESTIONS[what]).answer(spec))
        else:
            _serve(what, spec, answer)
    except ImportError as error:
        answer({"missing": str(error).split("\n")[0]})
    except Exception as error:
        traceback.print_exc()
        words = str(error).strip().split("\n")[0]
        answer({"error": f"{type(error).__name__}: {words}"})


def _serve(name: str, spec: dict[str, Any], answer: Answer) -> None:
    module = importlib.import_module(CONTENDERS[name])
    row = Row.from_json(spec["row"])
    data = make_data(row)
    memory = PeakMemory()
    contender: Contender = module.start(name, row, spec["device"], *data)
    answer({"versions": {"python": platform.python_version(), **contender.versions}})
    answer({"ms": _time(contender, 1)})
    memory.settle()
    for line in sys.stdin:
        if line.strip() == "peak":
            answer({**_peaks(contender, memory), "note": contender.note})
        else:
            answer({"ms": _time(contender, int(line))})


def _time(contender: Contender, steps: int) -> float:
    """Milliseconds that each of so many steps takes."""
    contender.prepare(steps)
    began = time.perf_counter()
    contender.run(steps)
    return 1e3 * (time.perf_counter() - began) / steps


def _peaks(contender: Contender, memory: PeakMemory) -> dict[str, int]:
    peak = contender.peak()
    return memory.answer() if peak is None else {"peak": peak}


def _answers() -> Answer:
    """Writes answers to the standard output, and turns whatever else is printed there to the standard error."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(fields: dict[str, Any]) -> None:
        pipe.write(json.dumps(fields) + "\n")
        pipe.flush()

    return answer


if __name__ == "__main__":
    main()
