"""Runs side by side: ordered by ELBO, and refused where ELBOs say nothing of each other."""

import json
from pathlib import Path

import pytest

from tickgp.runs.compare import compare_runs
from tickgp.training.config import Config, ModelConfig
from tickgp.training.toml import format_config


def write_run(folder: Path, elbo: float | None, *, sha256: str = "ab" * 32, model="tick", **settings) -> Path:
    folder.mkdir()
    test = {"n": 10, "top1_error": 0.1, "nll": 0.2, "ece": 0.01}
    (folder / "metrics.json").write_text(json.dumps({"model": model, "steps": 5, "elbo": elbo, "test": test}))
    (folder / "manifest.json").write_text(json.dumps({"dataset": {"name": "digits", "sha256": sha256}}))
    (folder / "config.toml").write_text(format_config(Config(model=ModelConfig(name=model, **settings))))
    return folder


def test_the_best_elbo_comes_first_and_none_last(tmp_path):
    runs = [
        write_run(tmp_path / "low", -900.0),
        write_run(tmp_path / "none", None),
        write_run(tmp_path / "high", -500.0),
    ]
    compared = compare_runs(runs)
    assert [Path(run.run).name for run in compared] == ["high", "low", "none"]
    assert compared[0].test["nll"] == 0.2


def test_runs_on_different_data_are_refused(tmp_path):
    a, b = write_run(tmp_path / "a", -1.0), write_run(tmp_path / "b", -2.0, sha256="cd" * 32)
    with pytest.raises(ValueError, match=r"have different data \(the images or labels themselves\), so that"):
        compare_runs([a, b])
    (b / "config.toml").write_text("seed = 1\n[data]\nvalidation_share = 0.2")
    with pytest.raises(ValueError, match=r"\(seed 0 and 1, validation-share 0.0 and 0.2\), so that"):
        compare_runs([a, b])


def test_different_likelihoods_are_of_the_same_labels(tmp_path):
    runs = [write_run(tmp_path / name, -1.0, likelihood=name) for name in ("softmax", "robustmax")]
    assert len(compare_runs(runs)) == 2


def test_deep_models_with_different_samplers_are_refused(tmp_path):
    """One layer draws nothing: it can be compared with both."""
    runs = {
        "marginal": write_run(tmp_path / "a", -3.0, model="deep-tick"),
        "joint": write_run(tmp_path / "b", -2.0, model="deep-tick", sampling="correlated"),
        "single": write_run(tmp_path / "c", -1.0),
        "single too": write_run(tmp_path / "d", -4.0, model="deep-tick", depth=1, sampling="full"),
    }
    with pytest.raises(ValueError, match="different samplers"):
        compare_runs([runs["marginal"], runs["single"], runs["joint"]])
    assert len(compare_runs([runs["single"], runs["joint"], runs["single too"]])) == 3


def test_one_run_or_an_unfinished_one(tmp_path):
    a = write_run(tmp_path / "a", -1.0)
    with pytest.raises(ValueError, match="at least two"):
        compare_runs([a])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is not the folder of a run: it has no manifest.json"):
        compare_runs([a, tmp_path / "empty"])
    (a / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"a has no manifest.json yet; finish the run with `tickgp train --resume"):
        compare_runs([a, a])
