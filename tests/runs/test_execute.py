"""A run and its folder: what is written, what is refused, and that an interrupted run ends like an undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tickgp.data.dataset import load_dataset
from tickgp.runs.execute import Finished, Note, Report, Stopped, execute
from tickgp.runs.folder import prepare
from tickgp.runs.model_file import load_model
from tickgp.training.config import Config, DataConfig, ModelConfig, TrainingConfig

SMALL = Config(
    prediction_samples=5,
    model=ModelConfig(num_inducing=10),
    training=TrainingConfig(max_steps=30, batch_size=16, report_every=5, checkpoint_every=10),
)
FLAGS = [
    *("--num-inducing", "10", "--max-steps", "60", "--batch-size", "16"),
    *("--report-every", "5", "--checkpoint-every", "3", "--prediction-samples", "5"),
]


def untimed(folder: Path) -> list[dict]:
    """The lines of metrics.jsonl without their seconds: the only thing in which equal runs differ."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(line.pop("seconds") > 0 for line in lines)
    return lines


def test_the_folder_holds_what_the_contract_says(finished):
    names = {"config.toml", "metrics.jsonl", "metrics.json", "model.safetensors", "manifest.json", "report.html"}
    assert {path.name for path in finished.iterdir()} - {"evaluations"} == {*names, "checkpoint"}
    metrics = json.loads((finished / "metrics.json").read_text())
    assert set(metrics) == {"model", "dataset", "steps", "elbo", "test", "interval"}
    assert (metrics["model"], metrics["dataset"], metrics["steps"]) == ("tick", "digits", 30)
    keys = ["n", "top1_error", "top2_error", "top3_error", "nll", "nll_misses", "ece", "brier", "aurc"]
    assert list(metrics["test"]) == keys
    assert metrics["test"]["n"] == 360
    low, high = metrics["interval"]["top1_error"]
    assert low <= metrics["test"]["top1_error"] <= high
    lines = untimed(finished)
    assert [line["step"] for line in lines] == [5, 10, 15, 20, 25, 30]
    assert all(set(line) == {"step", "elbo", "nll", "top1_error", "train_nll"} for line in lines)
    assert lines[-1]["nll"] < lines[0]["nll"]
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["command"] == "a command"
    assert manifest["seconds"] > 0
    assert len(manifest["dataset"]["sha256"]) == 64
    assert manifest["git"] is None or len(manifest["git"].rstrip("+")) == 40


def test_the_saved_model_predicts_as_the_metrics_say(finished):
    trained = load_model(finished)
    data = load_dataset("digits")
    assert trained.class_names == data.class_names
    assert trained.config == SMALL
    labels = trained.predict(data.test.images).labels
    metrics = json.loads((finished / "metrics.json").read_text())
    assert np.mean(np.asarray(labels) != data.test.labels) == pytest.approx(metrics["test"]["top1_error"])


def test_a_folder_that_holds_something_is_refused(finished, tmp_path):
    with pytest.raises(ValueError, match=r"is not empty; give another --out, --overwrite it, or continue it"):
        prepare(SMALL, finished)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="holds no run, so it is not overwritten"):
        prepare(SMALL, tmp_path, overwrite=True)


def test_a_stopped_run_says_where_and_holds_no_model(tmp_path):
    prepare(SMALL, tmp_path / "run")
    asked = iter(range(1, 100))
    *_, event = execute(tmp_path / "run", stop=lambda: next(asked) == 12)
    assert event == Stopped(12)
    with pytest.raises(ValueError, match="holds no trained model; finish the run with"):
        load_model(tmp_path / "run")
    *_, event = execute(tmp_path / "run")
    assert isinstance(event, Finished)


def test_max_seconds_stops_with_a_checkpoint(tmp_path):
    prepare(replace(SMALL, training=replace(SMALL.training, max_seconds=0.0)), tmp_path / "run")
    *_, event = execute(tmp_path / "run")
    assert event == Stopped(1)
    assert [path.name for path in (tmp_path / "run" / "checkpoint").iterdir()] == ["step-00000001.safetensors"]


def test_an_elbo_at_rest_ends_training_and_stays_at_rest(tmp_path):
    """With a rate of next to nothing the ELBO is noise around a constant, which soon fails to rise."""
    training = replace(SMALL.training, learning_rate=1e-12, patience=10, max_steps=500)
    prepare(replace(SMALL, training=training), tmp_path / "run")
    for _ in range(2):
        *_, note, event = execute(tmp_path / "run")
        assert isinstance(event, Finished)
        assert isinstance(note, Note)
        assert note.text == f"the ELBO came to rest: training ends after {event.metrics['steps']} of 500 steps"
    assert 20 <= event.metrics["steps"] < 500


def test_validation_images_are_left_out_and_choose_the_threshold(tmp_path):
    data = DataConfig(validation_share=0.25, train_images=500)
    prepare(replace(SMALL, data=data, max_error=0.9), tmp_path / "run")
    reports = [event for event in execute(tmp_path / "run") if isinstance(event, Report)]
    assert len(reports) == 6
    trained = load_model(tmp_path / "run")
    assert trained.held_out.source == "validation"
    own = load_dataset("digits", validation_share=0.25)
    probabilities = np.asarray(trained.predict(own.validation.images).probabilities)
    np.testing.assert_array_equal(trained.held_out.right, probabilities.argmax(axis=1) == own.validation.labels)
    np.testing.assert_array_equal(trained.held_out.confidence, probabilities.max(axis=1))


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_first(number, tmp_path):
    process = start(tmp_path, *FLAGS, "--out", "run", "--max-steps", "100000")
    until(lambda: checkpointed(tmp_path / "run"), process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "continue with: tickgp train --resume run" in output
    latest = max(path.name for path in (tmp_path / "run" / "checkpoint").iterdir())
    assert f"stopped at step {int(latest[5:13])};" in output


def kill_and_resume(tmp_path: Path, kills: int) -> None:
    whole = start(tmp_path, *FLAGS, "--out", "whole", "--json")
    output, errors = whole.communicate(timeout=120)
    assert whole.returncode == 0, errors
    generator, arguments = random.Random(0), [*FLAGS, "--out", "killed"]
    for _ in range(kills):
        process = start(tmp_path, *arguments)
        until(lambda: (tmp_path / "killed" / "config.toml").exists(), process)
        time.sleep(generator.uniform(2, 9))
        process.kill()
        process.communicate()
        arguments = ["--resume", "killed"]
    process = start(tmp_path, *arguments)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert (tmp_path / "killed/metrics.json").read_bytes() == (tmp_path / "whole/metrics.json").read_bytes()
    assert untimed(tmp_path / "killed") == untimed(tmp_path / "whole")
    assert json.loads(output) == json.loads((tmp_path / "whole/metrics.json").read_text())


def test_killed_runs_end_like_an_undisturbed_one(tmp_path):
    kill_and_resume(tmp_path, kills=2)


@pytest.mark.slow
def test_twenty_kills(tmp_path):
    kill_and_resume(tmp_path, kills=20)


def test_resume_keeps_the_settings(finished, tmp_path):
    process = start(tmp_path, "--resume", str(finished), "--num-inducing", "11")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is continued with its own settings; give only --max-steps or --max-seconds" in errors
