"""Runs of the command line that are stopped or killed: they keep what was done, and end like undisturbed ones."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs.small import SMALL, untimed

from tickgp.runs.folder import prepare
from tickgp.runs.model_file import load_rule

FLAGS = [
    *("--num-inducing", "10", "--max-steps", "60", "--batch-size", "16"),
    *("--report-every", "5", "--checkpoint-every", "3", "--prediction-samples", "5"),
]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    environment["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
    command = [sys.executable, "-m", "tickgp", "train", *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    )


def until(condition, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not condition():
        time.sleep(0.02)


def checkpointed(folder: Path) -> bool:
    return any((folder / "checkpoint").glob("step-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_signals_save_first(number, tmp_path):
    process = start(tmp_path, *FLAGS, "--out", "run", "--max-steps", "100000")
    until(lambda: checkpointed(tmp_path / "run"), process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "continue with: tickgp train --resume run" in output
    latest = max(path.name for path in (tmp_path / "run" / "checkpoint").iterdir())
    assert f"stopped at step {int(latest[5:13])};" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_when_nobody_listens_any_more_signals_save_first(number, tmp_path):
    """Ctrl-C also ends the `tee` of a pipeline, and a terminal that is closed reads nothing."""
    process = start(tmp_path, *FLAGS, "--out", "run", "--max-steps", "100000", "--checkpoint-every", "100000")
    lines = tmp_path / "run" / "metrics.jsonl"
    until(lambda: lines.is_file() and lines.read_text(), process)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(number)
    assert process.wait(timeout=60) != 0
    assert checkpointed(tmp_path / "run")


def latest_step(folder: Path) -> int:
    return max((int(path.stem[5:]) for path in (folder / "checkpoint").glob("step-*")), default=0)


@pytest.mark.slow
def test_killed_runs_end_like_an_undisturbed_one(tmp_path):
    """Each kill a little after the run has come some way further, at a moment that is not known."""
    kills = 20
    steps, generator = 40 * (kills + 1), random.Random(0)
    flags = [*("--num-inducing", "30", "--batch-size", "64", "--report-every", "5", "--checkpoint-every", "5")]
    flags += ["--prediction-samples", "5", "--watched-images", "20", "--max-steps", str(steps)]
    whole = start(tmp_path, *flags, "--out", "whole", "--json")
    output, errors = whole.communicate(timeout=300)
    assert whole.returncode == 0, errors
    arguments, reached = [*flags, "--out", "killed"], []
    for kill in range(kills):
        process = start(tmp_path, *arguments)
        until(lambda kill=kill: latest_step(tmp_path / "killed") >= 40 * kill + 10, process)
        time.sleep(generator.uniform(0, 0.2))
        process.kill()
        process.communicate()
        reached.append(latest_step(tmp_path / "killed"))
        arguments = ["--resume", "killed"]
    in_training = sum(0 < step < steps for step in reached)
    assert in_training >= 0.7 * kills, reached
    process = start(tmp_path, *arguments)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    for name in ("metrics.json", "predictions.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert untimed(tmp_path / "killed") == untimed(tmp_path / "whole")
    said = json.loads(output)
    assert said.pop("hand_over") == load_rule(tmp_path / "whole").as_json()
    assert said == json.loads((tmp_path / "whole/metrics.json").read_text())


def test_resume_keeps_the_settings(tmp_path):
    prepare(SMALL, tmp_path / "run")
    process = start(tmp_path, "--resume", "run", "--num-inducing", "11")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "is continued with its own settings; give only --max-steps or --max-seconds" in errors


@pytest.mark.slow
def test_when_nobody_reads_its_output_a_run_keeps_a_checkpoint(tmp_path):
    with start(tmp_path, *FLAGS, "--out", "run") as process:
        assert any(line.startswith("compiling") for line in iter(process.stdout.readline, ""))
        process.stdout.close()
        assert process.wait(timeout=120) == 1, process.stderr.read()
    assert checkpointed(tmp_path / "run")
