"""A run on other data: labels matched by name, strangers counted out, strangeness measured against its own images."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from data.written import mnist_folder
from PIL import Image
from sklearn.metrics import roc_auc_score, roc_curve

from tickgp.data.dataset import load_dataset
from tickgp.data.locate import DatasetUnavailableError
from tickgp.errors import UsageError
from tickgp.runs import evaluate
from tickgp.runs.evaluate import evaluate_run
from tickgp.runs.folder import load_own
from tickgp.runs.model_file import ARRAYS, load_model, save_model
from tickgp.runs.places import file_name
from tickgp.training.config import Config, DataConfig
from tickgp.training.toml import format_config


@pytest.fixture(scope="module")
def arrays(tmp_path_factory, finished):
    """Test digits under other numbers (reversed), some of a class that the run does not know, and the run's answers."""
    data = load_dataset("digits").test
    names = np.array([str(9 - label) if label else "zero" for label in range(10)])
    path = tmp_path_factory.mktemp("npz") / "digits.npz"
    np.savez(path, x=data.images[:, 1:-1], y=names[data.labels])
    framed = np.pad(data.images[:, 1:-1], ((0, 0), (1, 1), (0, 0), (0, 0)))
    return path, names[data.labels], framed


def test_on_its_own_data_it_repeats_the_metrics(finished):
    metrics = json.loads((finished / "metrics.json").read_text())
    evaluation = evaluate_run(finished, "digits")
    assert evaluation.metrics["test"] == metrics["test"]
    assert evaluation.metrics["interval"] == metrics["interval"]
    assert not (finished / "evaluations" / "digits.json").exists()


def test_classes_are_matched_by_name_and_strangers_left_out(finished, arrays):
    path, names, framed = arrays
    evaluation = evaluate_run(finished, f"npz:{path}")
    trained = load_model(finished)
    said = np.array(trained.class_names)[np.asarray(trained.predict(framed).labels)]
    known = names != "zero"
    assert evaluation.metrics["test"]["n"] == known.sum()
    assert evaluation.metrics["test"]["top1_error"] == pytest.approx(np.mean(said[known] != names[known]))
    said = "the model does not know the class zero, so error and NLL are of the"
    assert any(said in note for note in evaluation.notes)
    (written,) = (finished / "evaluations").glob("digits.npz-????????.json")
    assert json.loads(written.read_text()) == evaluation.metrics
    assert (evaluation.metrics["dataset"], evaluation.metrics["steps"]) == (f"npz:{path}", 30)


def test_each_dataset_has_a_file_of_its_own(tmp_path, monkeypatch):
    """Also those that are called alike in two folders; and only one, however its path is written."""
    names = set()
    for place in ("here", "there"):
        (tmp_path / place / "a").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / place)
        names |= {file_name(name) for name in ("folder:o", "folder:a-b", "folder:a/b", "folder:b", "npz:b")}
    assert len(names) == 10
    assert file_name("folder:a/../o") == file_name(f"folder:{tmp_path}/there/o")
    assert file_name("mnist") == "mnist"


def test_strangeness_of_unknown_classes_is_against_the_runs_own_test_images(finished, arrays):
    path, names, framed = arrays
    metrics = evaluate_run(finished, f"npz:{path}").metrics
    trained = load_model(finished)
    inside, outside = trained.predict(load_dataset("digits").test.images), trained.predict(framed)
    unknown = names == "zero"
    stranger = np.repeat([0, 1], [len(inside.labels), unknown.sum()])
    for name in ("entropy", "mutual_information", "variance", "distance"):
        scores = np.concatenate([getattr(inside, name), np.asarray(getattr(outside, name))[unknown]])
        assert metrics["auroc"][name] == pytest.approx(roc_auc_score(stranger, scores))
        false_alarms, found, _ = roc_curve(stranger, scores, drop_intermediate=False)
        assert metrics["fpr95"][name] == pytest.approx(false_alarms[found >= 0.95].min())


def test_without_a_known_class_only_strangeness_is_left(finished, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.random((20, 8, 8, 1)), y=np.array(["cat", "dog"] * 10))
    metrics = evaluate_run(finished, f"npz:{tmp_path / 'noise.npz'}").metrics
    assert metrics["test"] is None
    assert "at most 1 % errors with 95 % confidence" in metrics["unknown"]["reason"]
    assert "hand_over" not in metrics
    assert set(metrics["auroc"]) == {"entropy", "mutual_information", "variance", "distance"}


def test_what_is_handed_over(finished, tmp_path):
    """By hand from the prediction. Images of classes that it does not know are counted apart."""
    trained = load_model(finished)
    digits, rule = load_dataset("digits").test, trained.rule(0.5)
    noise = np.random.default_rng(0).random((20, 8, 8, 1))
    mixed = np.concatenate([noise, digits.images[:20]])
    names = np.array(["cat", "dog"] * 10 + [trained.class_names[label] for label in digits.labels[:20]])
    np.savez(tmp_path / "mixed.npz", x=mixed, y=names)
    parts = evaluate_run(finished, f"npz:{tmp_path}/mixed.npz", max_error=0.5).metrics
    own = evaluate_run(finished, "digits", max_error=0.5).metrics
    assert "unknown" not in own
    for handed, images, labels in (
        (parts["unknown"], mixed[:20], None),
        (parts["hand_over"], mixed[20:], digits.labels[:20]),
        (own["hand_over"], digits.images, digits.labels),
    ):
        assert handed["n"] == len(images)
        said = trained.predict(images)
        unusual = np.asarray(said.distance) > rule.max_distance
        kept = (np.asarray(said.probabilities).max(axis=1) >= rule.threshold.threshold) & ~unusual
        assert handed["unusual"] == pytest.approx(unusual.mean())
        assert handed["share"] == pytest.approx(1 - kept.mean())
        if labels is not None:
            assert handed["error_of_the_rest"] == pytest.approx((np.asarray(said.labels) != labels)[kept].mean())
        assert ("error_of_the_rest" in handed) == (labels is not None)
        assert handed["max_error"] == 0.5
    assert parts["unknown"]["unusual"] == 1


def test_a_folder_of_one_class_is_enough(finished, tmp_path):
    """To ask a model about, known or not; not to train one on."""
    for name, key in {"3": "hand_over", "cat": "unknown"}.items():
        (tmp_path / name / name).mkdir(parents=True)
        Image.new("L", (8, 8), 99).save(tmp_path / name / name / "a.png")
        assert evaluate_run(finished, f"folder:{tmp_path / name}").metrics[key]["n"] == 1


def test_a_data_folder_that_is_not_there_is_said(finished, arrays, tmp_path):
    """Also where it would only be for the run's own images."""
    with pytest.raises(UsageError, match=r"the data folder is .*typo, which is not a folder"):
        evaluate_run(finished, f"npz:{arrays[0]}", data_dir=tmp_path / "typo")


def test_a_data_folder_of_the_environment_is_needed_only_for_what_is_in_it(finished, arrays, tmp_path, monkeypatch):
    monkeypatch.setenv("TICKGP_DATA", str(tmp_path / "gone"))
    for name in ("digits", f"npz:{arrays[0]}"):
        assert evaluate_run(finished, name).metrics["test"]["n"] > 0
    with pytest.raises(UsageError, match=r"\$TICKGP_DATA is .*gone, which is not a folder"):
        evaluate_run(finished, "mnist")


def test_rows_are_those_of_arrays_alone(finished):
    """Only a classifier scales them: 1×1 images of a run are as they are."""
    trained = replace(load_model(finished), image_shape=(1, 1, 5))
    of_arrays = replace(trained, config=replace(trained.config, data=DataConfig(ARRAYS)))
    assert (trained.takes_rows, of_arrays.takes_rows) == (False, True)


def test_its_own_data_are_read_as_they_were_for_training(finished):
    with pytest.raises(UsageError, match="--skip-bad-images was given for the run's own data"):
        evaluate_run(finished, "digits", skip_bad_images=True)


def test_images_that_were_moved(finished, tmp_path):
    """At their new place they are the run's own, where only test images count; on others it says what it lacks."""
    digits = load_dataset("digits").test
    for name, images in {"moved": digits.images, "other": digits.images[::-1]}.items():
        np.savez(tmp_path / f"{name}.npz", x=images, y=digits.labels)
    gone, moved, other = (f"npz:{tmp_path / name}.npz" for name in ("gone", "moved", "other"))
    trained = load_model(finished)
    save_model(tmp_path, replace(trained, config=replace(trained.config, data=DataConfig(gone))))
    own = load_dataset(moved)
    (tmp_path / "manifest.json").write_text(json.dumps({"dataset": {"sha256": own.sha256(), "images": len(digits)}}))
    with pytest.raises(ValueError, match=r"was trained on npz:.*gone\.npz, which is not there any more"):
        evaluate_run(tmp_path, gone)
    assert evaluate_run(tmp_path, moved).metrics["test"]["n"] == len(own.test)
    evaluation = evaluate_run(tmp_path, other)
    assert evaluation.metrics["test"]["n"] == len(digits)
    assert "auroc" not in evaluation.metrics
    assert any("are not here" in note for note in evaluation.notes)
    np.savez(tmp_path / "gone.npz", x=digits.images[:-1], y=digits.labels[:-1])  # they are there, but have changed
    assert evaluate_run(tmp_path, other).metrics == evaluation.metrics
    with pytest.raises(ValueError, match="is no longer what"):
        evaluate_run(tmp_path, gone)
    with pytest.raises(UsageError, match="there is no such file"):
        evaluate_run(tmp_path, "npz:nothing")


def test_images_that_the_threshold_was_chosen_on_are_told(finished, tmp_path):
    """All of its own test images, or some of them among others."""
    said = evaluate_run(finished, "digits", max_error=0.5).notes
    assert any("the threshold was chosen on these very images" in note for note in said)
    digits = load_dataset("digits").test
    images = np.concatenate([digits.images[:7], 1 - digits.images[7:20]])
    np.savez(tmp_path / "some.npz", x=images, y=digits.labels[:20].astype(str))
    said = evaluate_run(finished, f"npz:{tmp_path / 'some.npz'}", max_error=0.5).notes
    assert any("the threshold was chosen on 7 of these images" in note for note in said)


def test_metrics_are_told_where_they_cannot_be_kept(finished, arrays, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(evaluate, "write_json", refuse)
    evaluation = evaluate_run(finished, f"npz:{arrays[0]}")
    assert evaluation.metrics["test"]["n"] > 0
    assert any("not kept with the run" in note and "Permission denied" in note for note in evaluation.notes)


def test_the_runs_own_images_are_found_where_they_were_recorded(tmp_path, monkeypatch):
    """Also when another data folder is named for the other images; and when they are gone, that is said."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("TICKGP_DATA", raising=False)
    (tmp_path / "other").mkdir()
    config = Config(data=DataConfig("mnist", data_dir=mnist_folder(tmp_path / "own")))
    (tmp_path / "config.toml").write_text(format_config(config))
    own = load_own(tmp_path, config, tmp_path / "other")
    assert own.sha256() == load_dataset("mnist", data_dir=tmp_path / "own").sha256()
    shutil.rmtree(tmp_path / "own")
    with pytest.raises(DatasetUnavailableError, match=r"mnist/.*: not in "):
        load_own(tmp_path, config, tmp_path / "other")
