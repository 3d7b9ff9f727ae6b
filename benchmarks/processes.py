"""The outside of a process of its own: start it, ask it, and learn how it failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from benchmarks.rows import Device, Row

ROOT = Path(__file__).resolve().parents[1]


class ChildError(Exception):
    """A process answered that it failed, or answered no more."""


class MissingError(ChildError):
    """A process could not import what it is to measure."""


class Child:
    """A process that answers questions."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str]):
        self._process, self._errors = process, errors

    def ask(self, question: int | str) -> dict[str, Any]:
        """The answer to a number of steps, or to `peak`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: `answer` says how
            self._process.stdin.write(f"{question}\n")
            self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next answer; the first comes unasked."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        fields = json.loads(line) if line else {"error": self._last_words()}
        if "missing" in fields:
            raise MissingError(fields["missing"])
        if "error" in fields:
            raise ChildError(fields["error"])
        return fields

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        last = self._errors.read().strip().split("\n")[-1]
        return f"ended with exit code {code}: {last or 'it said nothing'}"


@contextmanager
def start_child(
    what: str, spec: dict[str, Any], device: Device | None, python: str = sys.executable, **env: str
) -> Iterator[Child]:
    """A process of its own, which ends with the `with` block."""
    command = [python, "-m", "benchmarks.child", what, json.dumps(spec)]
    env = _environment(device, python) | env
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env) as process,
    ):
        try:
            yield Child(process, errors)
        finally:
            process.kill()
            process.communicate()


def start_contender(
    name: str, row: Row, device: Device, python: str | None = None, **env: str
) -> AbstractContextManager[Child]:
    """A contender on its way: its first answer is that it is ready."""
    return start_child(name, {"row": row.as_json(), "device": device}, device, python or sys.executable, **env)


def ask_once(what: str, spec: dict[str, Any], device: Device | None) -> dict[str, Any]:
    """The answer of a process that has only one."""
    with start_child(what, spec, device) as child:
        return child.answer()


def _environment(device: Device | None, python: str) -> dict[str, str]:
    """Memory is taken as needed, nothing is found compiled, and another Python has its own paths."""
    env = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    inherited = env.get("PYTHONPATH", "") if python == sys.executable else ""
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited]))
    env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    env["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    env["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if device is not None:
        env["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[device]
    if device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = "-1"
    return env
