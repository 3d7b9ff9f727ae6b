"""The commands on a finished run, as a user types them: tables for a person, JSON and CSV for a machine."""

import csv
import json
import os
import re
import shutil
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from PIL import Image

from tickgp import cli
from tickgp.data.dataset import load_dataset
from tickgp.errors import UsageError
from tickgp.estimator import TickClassifier
from tickgp.estimator.settings import run_config
from tickgp.runs.execute import execute
from tickgp.runs.folder import prepare
from tickgp.runs.model_file import ARRAYS, TrainedModel, load_model, save_model
from tickgp.training.config import Config, DataConfig, ModelConfig, TrainingConfig
from tickgp.training.toml import format_config, read_config

CONFIG = Config(
    prediction_samples=5,
    max_error=0.5,
    model=ModelConfig(num_inducing=40),
    training=TrainingConfig(max_steps=150, batch_size=32, report_every=50),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    prepare(CONFIG, folder)
    for _ in execute(folder):
        pass
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "digit, seven.png"
    Image.fromarray(np.uint8(255 * load_dataset("digits").test.images[0, ..., 0])).resize((40, 40)).save(path)
    return path


@pytest.fixture
def tickgp(monkeypatch, capsys, tmp_path):
    """Runs the command with these words; returns its exit code and what it wrote."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["tickgp", *map(str, words)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


def test_help_for_who_asks_for_nothing_or_wrongly(tickgp):
    code, out, _ = tickgp()
    assert code == 0
    assert "reproduce" in out
    assert "--version" in out
    code, _, err = tickgp("train", "--stepz", "5")
    assert code == 2
    assert "tickgp train --help" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "--config", "nothing.toml"], "there is no settings file nothing.toml"),
        (["train", "--dataset", "folder:nothing"], "nothing: there is no such folder"),
        (["train", "--resume", "nothing"], "nothing is not the folder of a run; give --resume one that"),
        (["info", "nothing", "--resume", "nowhere"], "tickgp info --help"),
        (["predict", "nothing", "--config=nowhere"], "tickgp predict --help"),
        (["predict", "nothing"], "no image was given; name images"),
        (["predict", "nothing", "nothing.png"], "there is no file or folder nothing.png"),
        (["predict", ".", "."], "there are no images in ."),
        (["info", "."], ". is not the folder of a run: it has no model.safetensors"),
        (["compare", "nothing", "."], "there is no folder nothing"),
    ],
)
def test_what_was_asked_wrongly_ends_with_2(words, said, tickgp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = tickgp(*words)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_missed_before_several_runs_begin(tickgp, tmp_path, monkeypatch):
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU")
    monkeypatch.chdir(tmp_path)
    code, out, err = tickgp("reproduce", "table1", "--scale", "smoke", "--workers", "2", "--device", "gpu")
    assert (code, out) == (2, "")
    assert "no gpu can be used" in err
    assert not [*tmp_path.iterdir()]


def test_evaluate(tickgp, run):
    code, out, _ = tickgp("evaluate", run)
    metrics = json.loads((run / "metrics.json").read_text())
    assert code == 0
    assert f"{100 * metrics['test']['top1_error']:.2f} %" in out
    assert re.search(r"Of 360 images \d+\.\d\d % go to a person", out)
    assert "chosen on these very images" in out
    code, out, _ = tickgp("evaluate", run, "--json")
    found = json.loads(out)
    assert found["test"] == metrics["test"]
    handed = found["hand_over"]
    assert 0 <= handed["unusual"] <= handed["share"] <= 1
    assert handed["max_error"] == 0.5
    assert handed["error_of_the_rest"] <= metrics["test"]["top1_error"]
    _, out, _ = tickgp("evaluate", run, "--json", "--max-unusual", "0.4")
    n = metrics["test"]["n"]  # the held-out images are these very ones
    assert json.loads(out)["hand_over"]["unusual"] == pytest.approx(int(0.4 * n) / n)
    _, out, _ = tickgp("evaluate", run, "--max-error", "0.0001")
    assert re.search(r"No image can be decided by the model alone: .*\.\nOf 360 images \d\.\d\d % are unlike", out)


def test_evaluate_on_classes_that_are_not_known(tickgp, run, tmp_path):
    """Also then it is said why nothing is decided."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.random((20, 8, 8, 1)), y=np.array(["cat", "dog"] * 10))
    code, out, _ = tickgp("evaluate", run, "--dataset", f"npz:{tmp_path / 'noise.npz'}", "--max-error", "0.0001")
    assert code == 0
    assert out.count("No image can be decided by the model alone: to promise at most 0.01 % errors") == 1
    assert re.search(r"Of 20 images of classes that it does not know \d+\.\d\d % are unlike the training images", out)


def test_predict_for_a_person_and_for_machines(tickgp, run, image):
    code, out, _ = tickgp("predict", run, image, "--json")
    (answer,) = json.loads(out)["images"]
    assert code == 0
    assert answer["file"] == str(image)
    assert answer["probability"] == max(answer["probabilities"].values())
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    threshold = json.loads(out)["hand_over"]
    assert answer["unusual"] == (answer["distance"] > threshold["max_distance"])
    assert answer["hand_over"] == (answer["unusual"] or answer["probability"] < threshold["threshold"])
    assert (threshold["max_error"], threshold["level"]) == (0.5, 0.95)
    _, out, _ = tickgp("predict", run, image.parent, "--csv")
    (row,) = csv.DictReader(out.splitlines())
    assert (row["image"], row["predicted"]) == (str(image), answer["label"])
    assert float(row["probability"]) == pytest.approx(answer["probability"])
    assert row["hand_over"] == str(answer["hand_over"])
    assert {name: np.float32(row[f"p({name})"]) for name in answer["probabilities"]} == answer["probabilities"]
    with (run / "predictions.csv").open(newline="") as file:
        assert ["image", "true", *[*row][1:]] == next(csv.reader(file))
    _, out, _ = tickgp("predict", run, image)
    assert str(image) in out  # in a pipe a line is as long as need be
    assert f"{100 * answer['probability']:.2f} %" in out
    assert f"For a person: {int(answer['hand_over'])} of 1." in out
    for share, is_unusual in {"0": False, "0.99": True}.items():
        _, out, _ = tickgp("predict", run, image, "--json", "--max-unusual", share)
        assert json.loads(out)["images"][0]["unusual"] is is_unusual


def test_a_promise_that_cannot_be_kept_is_not_made(tickgp, run, image):
    code, out, _ = tickgp("predict", run, image, "--max-error", "0.001")
    assert code == 0
    assert "a person" in out
    assert "No image can be decided by the model alone: to promise at most 0.1 % errors" in out
    assert "even if all are right; there are 357 of 360" in out
    code, out, err = tickgp("predict", run, image, "--max-error", "0.001", "--csv")
    assert [row["hand_over"] for row in csv.DictReader(out.splitlines())] == ["True"]
    assert "even if all are right; there are 357 of 360" in err
    code, _, err = tickgp("predict", run, image, "--max-error", "2")
    assert code == 2
    assert "max-error 2.0 was given; it must be above 0 and below 1" in err
    assert "confidence 2.0 was given" in tickgp("evaluate", run, "--confidence", "2")[2]
    _, out, _ = tickgp("predict", run, image, "--max-error", "0.001", "--json")
    limit = load_model(run).rule().max_distance
    assert json.loads(out)["hand_over"] | {"reason": ""} == {"threshold": None, "reason": "", "max_distance": limit}


def test_info_in_words(tickgp, run):
    code, out, _ = tickgp("info", run)
    assert code == 0
    assert "pixels" in out
    assert "Hand-over" in out
    code, out, _ = tickgp("info", run, "--json")
    assert json.loads(out)["Model"]


def test_report_is_made_anew(tickgp, run):
    (run / "report.html").unlink()
    code, out, _ = tickgp("report", run)
    assert code == 0
    assert str(run / "report.html") in out
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_compare(tickgp, run):
    code, out, _ = tickgp("compare", run, run, "--json")
    assert code == 0
    assert [entry["run"] for entry in json.loads(out)["runs"]] == [str(run)] * 2
    code, out, _ = tickgp("compare", run, run)
    assert out.count(" tick ") == 2
    code, _, err = tickgp("compare", run)
    assert code == 2
    assert "at least two" in err


def test_compare_says_where_a_bound_is_none(tickgp, run, tmp_path):
    shutil.copytree(run, tmp_path / "deep")
    config = read_config(run / "config.toml")
    for name, elbo, said in (("deep-tick", -1.0, True), ("deep-tick", None, False), ("tick", -1.0, False)):
        metrics = json.loads((run / "metrics.json").read_text())
        (tmp_path / "deep" / "metrics.json").write_text(json.dumps({**metrics, "elbo": elbo}))
        deep = replace(config, model=replace(config.model, name=name))
        (tmp_path / "deep" / "config.toml").write_text(format_config(deep))
        assert ("a bound of no model" in tickgp("compare", run, tmp_path / "deep")[1]) == said
        _, out, err = tickgp("compare", run, tmp_path / "deep", "--json")
        assert ("a bound of no model" in err) == said
        assert len(json.loads(out)["runs"]) == 2


@pytest.mark.parametrize("command", ["evaluate", "info", "report"])
def test_a_folder_without_a_run(command, tickgp, tmp_path):
    code, out, err = tickgp(command, tmp_path / "nothing")
    assert (code, out) == (2, "")
    assert err.startswith("tickgp: there is no folder")


def test_a_model_fitted_on_arrays(tickgp, run, tmp_path):
    """It is evaluated on what is named, without its own images; there is no report of it."""
    trained = load_model(run)
    fitted = run_config(TickClassifier().get_params(), "tick", load_dataset("digits").train.images, 0)
    assert fitted.data.dataset == ARRAYS
    save_model(tmp_path, replace(trained, config=replace(trained.config, data=DataConfig(ARRAYS))))
    code, _, err = tickgp("evaluate", tmp_path)
    assert code == 2
    assert "was fitted on arrays; name a dataset with --dataset" in err
    code, out, err = tickgp("evaluate", tmp_path, "--dataset", "digits", "--json")
    assert code == 0, err
    assert json.loads(out)["test"]["n"] == 360
    assert "auroc" not in json.loads(out)
    assert "any of them among these are counted too" in err
    code, _, err = tickgp("report", tmp_path)
    assert code == 2
    assert "a report needs the folder of a run of `tickgp train`" in err


def test_a_classifier_of_rows_is_described_and_not_evaluated(tickgp, tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    TickClassifier("se", num_inducing=5, max_steps=1).fit(rows, rows[:, 0] > 0).save(tmp_path)
    code, out, _ = tickgp("info", tmp_path)
    assert code == 0
    assert "They are features, each scaled to mean 0" in out
    code, _, err = tickgp("evaluate", tmp_path, "--dataset", "digits")
    assert code == 2
    assert "was fitted to rows of 3 features, which its TickClassifier scales; in Python use TickClassifier.load" in err


def test_names_of_files_may_be_of_any_bytes(tickgp, run, image, tmp_path):
    file = tmp_path / os.fsdecode(b"caf\xe9.png")
    shutil.copy(image, file)
    for words in ([], ["--csv"]):
        code, out, err = tickgp("predict", run, file, *words)
        assert code == 0, err
        assert r"caf\udce9.png" in out


def test_debug_shows_where_an_error_comes_from(tickgp, tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        tickgp("info", tmp_path / "nothing", "--debug")


def test_a_run_that_is_stopped_by_time_and_goes_on_elsewhere(tickgp, tmp_path):
    """It ends with 0 and says how far it came. Its images may be moved meanwhile."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "old.npz", x=rng.random((60, 8, 8, 1)), y=np.arange(60) % 2)
    words = ["--num-inducing", "10", "--batch-size", "16", "--prediction-samples", "5", "--max-seconds", "1e-6"]
    code, out, _ = tickgp("train", "--dataset", f"npz:{tmp_path}/old.npz", "--out", tmp_path / "run", "--json", *words)
    assert (code, json.loads(out)) == (0, {"stopped": 1, "run": str(tmp_path / "run")})
    (tmp_path / "old.npz").rename(tmp_path / "new.npz")
    moved = ["--dataset", f"npz:{tmp_path}/new.npz", "--max-steps", "1"]
    code, out, err = tickgp("train", "--resume", tmp_path / "run", *moved, "--json")
    assert code == 0, err
    assert (json.loads(out)["steps"], json.loads(out)["dataset"]) == (1, f"npz:{tmp_path}/new.npz")


@pytest.mark.slow
def test_training_with_curves_for_tensorboard(tickgp, tmp_path):
    words = ["--num-inducing", "10", "--max-steps", "20", "--batch-size", "16", "--report-every", "10"]
    code, out, err = tickgp("train", "--out", tmp_path / "run", "--tensorboard", "--prediction-samples", "5", *words)
    assert code == 0, err
    first, second, *_, promise, _ = out.splitlines()
    assert first == "1,797 images of 10 classes: 1,437 to train, 360 to test"
    assert second.startswith("compiling")
    assert f"Hand-over: {promise}" in tickgp("info", tmp_path / "run")[1].splitlines()
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert b"held_out/nll" in events.read_bytes()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nand more"),
            "9 bytes.); training",
        ),
        (
            jax.errors.JaxRuntimeError("INTERNAL: Error dispatching: Out of memory allocating 7 bytes."),
            "7 bytes.); training",
        ),
        (MemoryError(), "not enough memory; training takes less"),
    ],
)
def test_want_of_memory_is_said_in_words(tickgp, monkeypatch, run, image, error, words):
    def fail(*_):
        raise error

    monkeypatch.setattr(TrainedModel, "predict", fail)
    code, _, said = tickgp("predict", run, image)
    assert code == 1
    assert words in said
    assert "and more" not in said


def test_progress_is_for_terminals(tickgp, run, image):
    code, out, said = tickgp("predict", run, image, "--csv")
    assert code == 0
    assert "1 images" not in out + said


def test_when_no_image_can_be_read_nothing_is_answered(tickgp, run, tmp_path):
    (tmp_path / "bad.png").write_text("no picture")
    code, out, said = tickgp("predict", run, tmp_path / "bad.png", "--skip-bad-images", "--json")
    assert (code, out) == (1, "")
    assert "left out" in said
    assert "none of the images can be read" in said


def test_help_names_each_flag_once(tickgp, tmp_path):
    (tmp_path / "settings.toml").write_text("[model]\nweights = false\n")
    for words in (["train"], ["predict"], ["evaluate"], ["report"], ["reproduce"]):
        code, out, _ = tickgp(*words, "--help")
        assert code == 0
        assert "{None" not in out
        assert "--no-json" not in out
    _, out, _ = tickgp("train", "--help")
    assert out.count("--no-weights") == out.count("--no-natural-gradients") == out.count(" --overwrite ") == 1
    _, out, _ = tickgp("train", "--config", tmp_path / "settings.toml", "--help")
    assert "--no-weights" not in out


@pytest.mark.parametrize(
    "words", ["--weights", "--no-weights", "--no-overwrite --no-grey", "--variance None", "--no-natural-gradients"]
)
def test_both_forms_of_a_flag_and_none_are_understood(words, tickgp, tmp_path):
    """Whatever the settings of a file say: the last thing to be refused is the number of steps."""
    (tmp_path / "settings.toml").write_text("[model]\nweights = false\nvariance = 3.0\n")
    for given in ([], ["--config", tmp_path / "settings.toml"]):
        code, _, err = tickgp("train", *given, *words.split(), "--max-steps", "0")
        assert code == 2
        assert "max-steps 0 was given; it must be above 0" in " ".join(err.split())
