"""Runs side by side: ordered by ELBO, and refused where ELBOs say nothing of each other."""

import json
from itertools import permutations
from pathlib import Path

import pytest

from tickgp.runs.compare import compare_runs, misleads
from tickgp.training.config import Config, DataConfig, ModelConfig
from tickgp.training.toml import format_config


def write_run(
    folder: Path,
    elbo: float | None,
    *,
    sha256: str = "ab" * 32,
    labels: str = "ef" * 32,
    model="tick",
    nll=0.2,
    **settings,
) -> Path:
    folder.mkdir()
    test = {"n": 10, "top1_error": 0.1, "nll": nll, "ece": 0.01}
    (folder / "metrics.json").write_text(json.dumps({"model": model, "steps": 5, "elbo": elbo, "test": test}))
    dataset = {"name": "digits", "sha256": sha256, "labels_sha256": labels}
    (folder / "manifest.json").write_text(json.dumps({"dataset": dataset}))
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


@pytest.mark.parametrize(("nll", "expected"), [(0.19, False), (0.17, True), (0.3, False)])
def test_it_is_noticed_when_the_best_elbo_has_not_nearly_the_least_nll(tmp_path, nll, expected):
    write_run(tmp_path / "none", None, nll=0.01)
    best, other = write_run(tmp_path / "best", -5.0), write_run(tmp_path / "other", -9.0, nll=nll)
    assert misleads(compare_runs([other, tmp_path / "none", best])) == expected


def test_runs_on_different_data_are_refused(tmp_path):
    a, b = write_run(tmp_path / "a", -1.0), write_run(tmp_path / "b", -2.0, sha256="cd" * 32)
    with pytest.raises(ValueError, match=r"have different data \(the images or labels themselves\), so that"):
        compare_runs([a, b])
    (b / "config.toml").write_text("seed = 1\n[data]\nvalidation_share = 0.2")
    with pytest.raises(ValueError, match=r"\(seed 0 and 1, validation-share 0.0 and 0.2\), so that"):
        compare_runs([a, b])


def read_as(run: Path, **settings) -> Path:
    (run / "config.toml").write_text(format_config(Config(data=DataConfig("folder:photos", **settings))))
    return run


def test_the_same_images_in_other_sizes_have_the_same_labels(tmp_path):
    small = read_as(write_run(tmp_path / "small", -3.0), image_size=16)
    large = read_as(write_run(tmp_path / "large", -2.0, sha256="cd" * 32), image_size=32, grey=True)
    plain = read_as(write_run(tmp_path / "plain", -4.0, sha256="01" * 32))
    compared = compare_runs([small, plain, large])
    assert [run.images for run in compared] == ["image-size 32, grey", "image-size 16", ""]
    other = read_as(write_run(tmp_path / "other", -1.0, sha256="23" * 32, labels="45" * 32), image_size=48)
    with pytest.raises(ValueError, match=r"different data \(image-size 16 and 48\)"):
        compare_runs([small, large, other])


def test_images_read_in_the_same_way_must_be_equal(tmp_path):
    """Equal names and labels do not make up for other pixels."""
    a, b = write_run(tmp_path / "a", -1.0), write_run(tmp_path / "b", -2.0, sha256="cd" * 32)
    for run in (a, b):
        read_as(run, image_size=16)
    with pytest.raises(ValueError, match="the images or labels themselves"):
        compare_runs([a, b])


def test_every_two_runs_must_have_the_same_labels(tmp_path):
    """In whatever order: two that differ are not made equal by a third that was read in another way."""
    a = read_as(write_run(tmp_path / "a", -1.0, sha256="01" * 32), image_size=16)
    b = read_as(write_run(tmp_path / "b", -2.0, sha256="23" * 32), image_size=32)
    c = read_as(write_run(tmp_path / "c", -3.0, sha256="45" * 32), image_size=32)
    for runs in permutations([a, b, c]):
        with pytest.raises(ValueError, match="the images or labels themselves"):
            compare_runs(runs)


def test_runs_that_do_not_know_their_labels_apart(tmp_path):
    """Those of earlier versions."""
    a, b = (write_run(tmp_path / name, -1.0, sha256=name * 64) for name in "ab")
    for run, size in ((a, 16), (b, 32)):
        read_as(run, image_size=size)
        (run / "manifest.json").write_text(json.dumps({"dataset": {"name": "photos", "sha256": run.name * 64}}))
    with pytest.raises(ValueError, match="different data"):
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
