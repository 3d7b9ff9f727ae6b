"""A run and its folder: what is written, what is refused, and how a run goes on."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from runs.small import SMALL, untimed

import tickgp
from tickgp.data.dataset import load_dataset
from tickgp.errors import UsageError
from tickgp.evaluation import bound
from tickgp.evaluation.promise import share_interval
from tickgp.gp import layer_builders
from tickgp.gp import predict as gp_predict
from tickgp.runs import judge
from tickgp.runs import run as running
from tickgp.runs.evaluate import evaluate_run
from tickgp.runs.events import Finished, Note, Report, Stopped
from tickgp.runs.execute import Limits, execute
from tickgp.runs.folder import PREVIOUS, prepare, read_history, write_history
from tickgp.runs.model_file import load_model
from tickgp.runs.report import make_report, write_predictions, write_report
from tickgp.training import loop
from tickgp.training.config import DataConfig, ModelConfig
from tickgp.training.tensors import read_words
from tickgp.training.toml import format_config, read_config


def times(folder: Path) -> list[float]:
    return [json.loads(line)["seconds"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_folder_holds_what_the_contract_says(finished):
    names = {"config.toml", "metrics.jsonl", "model.safetensors", "manifest.json", "report.html"}
    results = {"metrics.json", "predictions.csv", "trained-on.safetensors"}
    assert {path.name for path in finished.iterdir()} - {"evaluations"} == {*names, *results, "checkpoint"}
    metrics = json.loads((finished / "metrics.json").read_text())
    assert set(metrics) == {"model", "dataset", "steps", "elbo", "test", "interval"}
    assert (metrics["model"], metrics["dataset"], metrics["steps"]) == ("tick", "digits", 30)
    keys = ["n", "top1_error", "top2_error", "top3_error", "nll", "nll_misses", "ece", "brier", "aurc"]
    assert list(metrics["test"]) == keys
    assert metrics["test"]["n"] == 360
    wrong = round(360 * metrics["test"]["top1_error"])
    assert metrics["interval"]["top1_error"] == pytest.approx(share_interval(wrong, 360))
    lines = untimed(finished)
    assert [line["step"] for line in lines] == [5, 10, 15, 20, 25, 30]
    assert all(set(line) == {"step", "elbo", "nll", "top1_error", "train_nll", "jitter", "skipped"} for line in lines)
    assert lines[-1]["nll"] < lines[0]["nll"]
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["command"] == "a command"
    assert manifest["seconds"] > 0
    assert len(manifest["dataset"]["sha256"]) == 64
    assert manifest["git"] is None or len(manifest["git"].rstrip("+")) == 40


def test_the_saved_model_predicts_as_the_metrics_say(finished):
    trained = tickgp.load_model(str(finished))
    data = load_dataset("digits")
    assert trained.class_names == data.class_names
    assert trained.config == SMALL
    labels = trained.predict(data.test.images).labels
    metrics = json.loads((finished / "metrics.json").read_text())
    assert np.mean(np.asarray(labels) != data.test.labels) == pytest.approx(metrics["test"]["top1_error"])


def rows(folder: Path) -> list[dict[str, str]]:
    """The lines of predictions.csv."""
    with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def unfinished(finished: Path, run: Path) -> Path:
    """A copy that was killed after its last step."""
    shutil.copytree(finished, run)
    for name in ("metrics.json", "model.safetensors", "predictions.csv"):
        (run / name).unlink()
    return run


@pytest.mark.slow
def test_a_trained_model_without_a_finite_elbo_is_kept_and_can_be_judged_again(finished, tmp_path, monkeypatch):
    run, explained = unfinished(finished, tmp_path / "run"), bound._explained
    with monkeypatch.context() as patch:
        patch.setattr(bound, "_explained", lambda *inputs: explained(*inputs).at[7].set(np.nan))
        notes = [event.text for event in execute(run) if isinstance(event, Note)]
    assert re.search(r"log p\(y \| f\) of \d+ of 1437 images.*; the run is kept without it", notes[-1])
    assert json.loads((run / "metrics.json").read_text())["elbo"] is None
    assert load_model(run).class_names == load_model(finished).class_names
    (*_, event) = execute(run)
    assert event == Finished(json.loads((finished / "metrics.json").read_text()))


def spoilt(prediction):
    """Of the fourth image of each batch."""
    return jax.tree.map(lambda a: a.at[3].set(np.nan), prediction)


def test_a_model_that_predicts_no_numbers_is_not_kept(finished, tmp_path, monkeypatch):
    run, summed = unfinished(finished, tmp_path / "run"), gp_predict._sum_samples
    monkeypatch.setattr(gp_predict, "_sum_samples", lambda *given: spoilt(summed(*given)))
    with pytest.raises(ArithmeticError, match="no finite probabilities for 3 of 360 inputs; give it a larger jitter"):
        list(execute(run))
    assert not (run / "model.safetensors").exists()
    assert not (run / "predictions.csv").exists()


def test_too_few_held_out_images_and_copies_are_noticed_before_training(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 8, 8), np.uint8)
    twice = {"x": np.concatenate([images, images[:20]]), "y": np.arange(80) % 2}
    np.savez(tmp_path / "data.npz", **twice)
    name = f"npz:{tmp_path / 'data.npz'}"
    config, data = replace(SMALL, data=DataConfig(dataset=name)), load_dataset(name)
    notes = [event.text for event in execute(tmp_path / "run", config, stop=lambda: True) if isinstance(event, Note)]
    train, test = (part.images.reshape(-1, 64).tolist() for part in (data.train, data.test))
    number = len({*map(tuple, test)} - {*map(tuple, train)})
    assert 0 < number < len(test) == 16
    assert notes[1].startswith(
        f"with {number} held-out images that are no copies the model will leave all decisions to"
    )
    assert notes[2].startswith(f"copies of training images among the held-out ones: {sum(x in train for x in test)};")


def test_what_the_model_decides_alone_is_chosen_on_no_copies(tmp_path):
    """Noise with labels at random, each image three times: it knows most test images by heart, and new ones not."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (100, 6, 6), np.uint8), rng.integers(2, size=100)
    np.savez(tmp_path / "data.npz", x=np.repeat(images, 3, axis=0), y=np.repeat(labels, 3))
    data = DataConfig(dataset=f"npz:{tmp_path / 'data.npz'}")
    list(execute(tmp_path / "run", replace(SMALL, data=data, model=ModelConfig("se", num_inducing=20))))
    own = load_dataset(data.dataset)
    train, test = ({image.tobytes() for image in part.images} for part in (own.train, own.test))
    trained = load_model(tmp_path / "run")
    assert len(trained.held_out.right) == len(test - train) < 20
    p = np.asarray(trained.predict(own.test.take(np.flatnonzero(own.is_counted())).images).probabilities)
    np.testing.assert_allclose(trained.held_out.confidence, p.max(axis=1), rtol=1e-5)


def test_a_report_is_kept_when_nobody_listens_to_the_note_before_it(tmp_path, monkeypatch):
    progress = loop.Progress
    monkeypatch.setattr(loop, "Progress", lambda *fields: replace(progress(*fields), skipped=1))
    events = execute(tmp_path / "run", SMALL)
    next(event for event in events if isinstance(event, Note) and event.text.endswith("up to step 5: 1"))
    events.close()
    assert [line["step"] for line in untimed(tmp_path / "run")] == [5]


def test_the_table_of_test_images_agrees_with_the_metrics(finished):
    lines, data = rows(finished), load_dataset("digits")
    metrics = json.loads((finished / "metrics.json").read_text())["test"]
    assert [line["image"] for line in lines] == [str(i) for i in range(360)]
    assert [line["true"] for line in lines] == [data.class_names[label] for label in data.test.labels]
    p = np.array([[float(line[f"p({name})"]) for name in data.class_names] for line in lines])
    assert np.mean([line["true"] != line["predicted"] for line in lines]) == pytest.approx(metrics["top1_error"])
    assert np.mean(-np.log(p[np.arange(360), data.test.labels])) == pytest.approx(metrics["nll"])
    assert [line["predicted"] for line in lines] == [data.class_names[k] for k in p.argmax(axis=1)]
    assert [float(line["probability"]) for line in lines] == p.max(axis=1).tolist()
    np.testing.assert_allclose([float(line["entropy"]) for line in lines], -(p * np.log(p)).sum(axis=1), rtol=1e-4)
    distance = np.array([float(line["distance"]) for line in lines])
    rule = load_model(finished).rule()
    assert [line["unusual"] for line in lines] == [str(far) for far in distance > rule.max_distance]
    assert [line["hand_over"] for line in lines] == [str(person) for person in rule.hand_over(p.max(axis=1), distance)]


def test_test_images_are_called_by_their_files(finished, tmp_path):
    """Also where a file's name has commas, quotes, and bytes that are no UTF-8, which Python reads as surrogates."""
    shutil.copytree(finished, tmp_path / "run")
    trained, whole = load_model(finished), load_dataset("digits")
    names = ("0/a, b.png", '1/"c" & d.png', "2/café.png", "3/caf\udce9.png")
    data = replace(whole, test=replace(whole.test.take(np.arange(4)), names=names))
    prediction = trained.predict(data.test.images)
    metrics = json.loads((finished / "metrics.json").read_text())
    write_predictions(tmp_path / "run", data, prediction, trained.rule())
    write_report(tmp_path / "run", trained, data, prediction, metrics)
    assert [line["image"] for line in rows(tmp_path / "run")] == [*names[:3], r"3/caf\udce9.png"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    for shown in ("0/a, b.png", "1/&quot;c&quot; &amp; d.png", "2/café.png", r"3/caf\udce9.png"):
        assert f'<span class="file">{shown}</span>' in page
        assert f'alt="Test image {shown} and its' in page


def test_a_folder_that_holds_something_is_refused(finished, tmp_path):
    with pytest.raises(UsageError, match=r"holds a run; give another --out, --overwrite it, or continue it"):
        prepare(SMALL, finished)
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not empty and holds no run, so nothing is written there"):
        prepare(SMALL, tmp_path, overwrite=True)
    (tmp_path / "config.toml").write_text('title = "my site"')
    with pytest.raises(UsageError, match=r"may hold a run of another version \(.*no setting is called title"):
        prepare(SMALL, tmp_path, overwrite=True)
    assert (tmp_path / "config.toml").read_text() == 'title = "my site"'


def test_an_overwritten_run_leaves_what_is_not_of_a_run(tmp_path):
    prepare(SMALL, tmp_path)
    for name in ("metrics.json", "predictions.csv", "notes.txt"):
        (tmp_path / name).write_text("{}")
    for _ in range(2):  # the second time it overwrites an unfinished run, which is not kept
        prepare(SMALL, tmp_path, overwrite=True)
        assert {path.name for path in tmp_path.iterdir()} == {"config.toml", "notes.txt", PREVIOUS}
        kept = {path.name for path in (tmp_path / PREVIOUS).iterdir()}
        assert kept == {"config.toml", "metrics.json", "predictions.csv"}


def test_a_run_knows_the_whole_paths_of_its_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare(replace(SMALL, data=DataConfig("folder:photos", data_dir=Path("data"))), tmp_path / "run")
    data = read_config(tmp_path / "run" / "config.toml").data
    assert (data.dataset, data.data_dir) == (f"folder:{tmp_path / 'photos'}", tmp_path / "data")
    with pytest.raises(ValueError, match=r"run was trained on folder:.*photos, which is not there any more"):
        list(execute(tmp_path / "run"))


def test_a_run_that_cannot_begin_spoils_nothing(finished, tmp_path):
    """A wrong dataset, and a model that does not fit the images."""
    before = {path: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    for wrong in (
        replace(SMALL, data=DataConfig("mnsit")),
        replace(SMALL, model=replace(SMALL.model, patch_size=9)),
    ):
        for folder in (finished, tmp_path / "new"):
            with pytest.raises(ValueError, match=r"there is no dataset|does not fit"):
                list(execute(folder, wrong, overwrite=True))
    assert before == {path: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    assert not (tmp_path / "new").exists()


def test_a_finished_run_is_left_as_it_is(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.iterdir() if path.name.startswith(("m", "r"))}
    (*_, event) = execute(finished)
    assert event == Finished(json.loads((finished / "metrics.json").read_text()))
    assert before.keys() == {path for path in finished.iterdir() if path.name.startswith(("m", "r"))}
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"metrics.jsonl"}


def test_a_run_killed_while_it_writes_its_report_is_not_finished(finished, tmp_path, monkeypatch):
    """Nor is anything left that was said of the model before: its metrics, its metrics on other data."""
    run, longer = tmp_path / "run", Limits(35, None)
    shutil.copytree(finished, run)
    (run / "evaluations").mkdir(exist_ok=True)
    (run / "evaluations" / "mnist.json").write_text("{}")
    with monkeypatch.context() as killed:
        killed.setattr(running, "write_report", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(execute(run, limits=longer))
    assert not (run / "metrics.json").exists()
    assert not (run / "evaluations").exists()
    assert "after 30 training steps" in (run / "report.html").read_text()
    *_, event = execute(run)
    assert isinstance(event, Finished)
    assert event.metrics == json.loads((run / "metrics.json").read_text())
    assert "after 35 training steps" in (run / "report.html").read_text()


def test_a_report_that_cannot_be_written_costs_no_step(tmp_path):
    events = execute(tmp_path / "run", SMALL)
    next(event for event in events if isinstance(event, Report))
    (tmp_path / "run" / "metrics.jsonl").unlink()
    (tmp_path / "run" / "metrics.jsonl").mkdir()
    with pytest.raises(OSError, match=r"metrics\.jsonl cannot be written .* make that possible, or use another folder"):
        list(events)
    assert [path.name for path in (tmp_path / "run" / "checkpoint").iterdir()] == ["step-00000010.safetensors"]


def test_a_finished_run_without_its_checkpoints_is_not_begun_anew(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(UsageError, match="its checkpoints are gone: there is nothing to go on from"):
        list(execute(tmp_path / "run", limits=Limits(max_steps=99, max_seconds=None)))
    assert (tmp_path / "run" / "config.toml").read_bytes() == (finished / "config.toml").read_bytes()
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.toml.1.tmp").write_text("seed = 0")  # killed while its settings were written
    prepare(SMALL, tmp_path / "run")
    (tmp_path / "run" / ".config.toml.1.tmp").unlink()
    (tmp_path / "run" / "checkpoint").mkdir()
    (tmp_path / "run" / "checkpoint" / ".step-00000010.safetensors.1.tmp").write_bytes(b"half")
    first, *_, event = execute(tmp_path / "run")
    assert first == Note("removed .step-00000010.safetensors.1.tmp, which was cut short")
    assert isinstance(event, Finished)


def test_data_that_changed_are_noticed(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 8, 8, 1)), np.arange(60) % 2
    np.savez(tmp_path / "data.npz", x=x, y=y)
    prepare(replace(SMALL, data=DataConfig(f"npz:{tmp_path / 'data.npz'}")), tmp_path / "run")
    asked = iter(range(1, 100))
    *_, event = execute(tmp_path / "run", stop=lambda: next(asked) == 12)
    assert event == Stopped(11)
    *_, event = execute(tmp_path / "run", stop=lambda: True)
    assert event == Stopped(11)
    np.savez(tmp_path / "data.npz", x=x[::-1], y=y)
    with pytest.raises(ValueError, match=r"is no longer what .* was trained on: images or labels have changed"):
        list(execute(tmp_path / "run"))
    np.savez(tmp_path / "data.npz", x=x[:58], y=y[:58])
    with pytest.raises(ValueError, match="it had 60 images and has 58 now; restore them"):
        list(execute(tmp_path / "run"))


def test_a_run_goes_on_with_images_that_were_moved(tmp_path):
    """If they are the same; and it knows their place from then on."""
    run, old, new = tmp_path / "run", tmp_path / "old.npz", tmp_path / "new.npz"
    x, y = np.random.default_rng(0).random((60, 8, 8, 1)), np.arange(60) % 2
    np.savez(old, x=x, y=y)
    np.savez(tmp_path / "other.npz", x=1 - x, y=y)
    assert list(execute(run, replace(SMALL, data=DataConfig(f"npz:{old}")), stop=lambda: True))[-1] == Stopped(0)
    prepare(replace(SMALL, data=DataConfig(f"npz:{old}")), run)
    asked = iter(range(100))
    assert list(execute(run, stop=lambda: next(asked) == 5, command="begin"))[-1] == Stopped(5)
    old.rename(new)
    with pytest.raises(ValueError, match=r"not there any more; put it back, or .* `tickgp train --resume`"):
        list(execute(run))
    with pytest.raises(ValueError, match="is no longer what"):
        list(execute(run, dataset=f"npz:{tmp_path}/other.npz"))
    assert read_config(run / "config.toml").data == DataConfig(f"npz:{old}")
    *_, event = execute(run, dataset=f"npz:{tmp_path}/run/../new.npz", command="go on")
    assert json.loads((run / "manifest.json").read_text())["command"] == "begin && go on"
    assert event.metrics["dataset"] == f"npz:{new}"
    assert read_config(run / "config.toml").data == DataConfig(f"npz:{new}")
    new.rename(old)  # and also when it has been finished
    *_, again = execute(run, dataset=f"npz:{old}")
    assert again == event
    assert evaluate_run(run).metrics["test"] == event.metrics["test"]
    assert make_report(run) == run / "report.html"


def test_when_nobody_listens_any_more_a_checkpoint_is_kept(tmp_path):
    prepare(SMALL, tmp_path / "run")
    events = execute(tmp_path / "run")
    reports = (event for event in events if isinstance(event, Report))
    assert next(reports).step == 5
    events.close()
    assert [path.name for path in (tmp_path / "run" / "checkpoint").iterdir()] == ["step-00000005.safetensors"]


@pytest.mark.slow
def test_a_deeper_model_starts_from_a_trained_one(tmp_path):
    """Layers of the deep run are found again, and the sampler may change; another shape is refused."""
    model = ModelConfig(name="deep-tick", num_inducing=5, channels=2, stride=2, initialiser="kmeans", hidden_q_mu=0.0)
    shallow = replace(SMALL, model=model, training=replace(SMALL.training, max_steps=2, report_every=2))
    prepare(shallow, tmp_path / "two")
    list(execute(tmp_path / "two"))
    first = load_model(tmp_path / "two").model.layers[0]
    still = replace(shallow.training, learning_rate=1e-12, start_from=tmp_path / "two")
    for name, change in {"three": {"depth": 3}, "again": {"sampling": "correlated"}}.items():
        prepare(replace(shallow, model=replace(model, **change), training=still), tmp_path / name)
        events = list(execute(tmp_path / name))
        setting, value = next(iter(change.items()))
        assert any(f"{setting} {getattr(model, setting)} there, {value} here" in getattr(e, "text", "") for e in events)
        found = load_model(tmp_path / name).model
        assert len(found.layers) == {"three": 3, "again": 2}[name]
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(found.layers[0]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        if name == "three":  # the new layer has the settings of its run
            np.testing.assert_allclose(found.layers[1].gp.q.q_mu.value, 0, atol=1e-6)
    prepare(replace(shallow, model=replace(model, num_inducing=6), training=still), tmp_path / "other")
    with pytest.raises(UsageError, match=r"does not fit these settings \(num-inducing 5 there, 6 here\)"):
        list(execute(tmp_path / "other"))
    prepare(replace(shallow, model=replace(model, hidden_stride=2, stride=1), training=still), tmp_path / "wider")
    with pytest.raises(UsageError, match="stand 1, 2 pixels apart, layer by layer, and 2, 1 with these settings"):
        list(execute(tmp_path / "wider"))
    with pytest.raises(UsageError, match="is to be overwritten by a run that starts from it"):
        list(execute(tmp_path / "two", replace(shallow, training=still), overwrite=True))


@pytest.mark.slow
def test_images_that_were_trained_on_are_not_held_out_later(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((60, 8, 8, 1)), y=np.arange(60) % 2)
    training = replace(SMALL.training, max_steps=1)
    first = replace(SMALL, data=DataConfig(f"npz:{tmp_path / 'data.npz'}"), training=training)
    list(execute(tmp_path / "run", first))
    again = replace(first, training=replace(training, start_from=tmp_path / "run"))
    for change in ({"seed": 7}, {"data": replace(first.data, validation_share=0.5)}):
        with pytest.raises(UsageError, match=r"was trained on \d+ of the \d+ images that are held out now"):
            list(execute(tmp_path / "other", replace(again, **change)))
    shutil.copy(tmp_path / "data.npz", tmp_path / "copy.npz")
    copied = DataConfig(f"npz:{tmp_path / 'copy.npz'}")
    with pytest.raises(UsageError, match=r"was trained on \d+ of the \d+ images that are held out now"):
        list(execute(tmp_path / "other", replace(again, data=copied, seed=7)))
    assert not (tmp_path / "other").exists()
    *_, event = execute(tmp_path / "other", again)
    assert isinstance(event, Finished)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((70, 8, 8, 1)), y=np.arange(70) % 2)
    with pytest.raises(UsageError, match="or, if there are more images than then, put those to train on and those to"):
        list(execute(tmp_path / "more", again))
    (tmp_path / "data.npz").unlink()
    *_, event = execute(tmp_path / "more", replace(again, data=copied))
    assert isinstance(event, Finished)
    np.savez(tmp_path / "b.npz", x=np.random.default_rng(2).random((60, 8, 8, 1)), y=np.arange(60) % 2)
    second = replace(again, data=DataConfig(f"npz:{tmp_path / 'b.npz'}"))
    list(execute(tmp_path / "second", second))
    evaluation = evaluate_run(tmp_path / "second", f"npz:{tmp_path / 'copy.npz'}")
    assert evaluation.metrics["test"]["n"] == 12, "it knows what the run before it was trained on"
    deep = replace(again, model=ModelConfig(name="deep-tick", num_inducing=5), data=copied)
    with pytest.raises(UsageError, match="has a single layer, and a deep one starts from a deep one"):
        list(execute(tmp_path / "deep", deep))
    (tmp_path / "run" / "trained-on.safetensors").unlink()  # as of a saved classifier
    np.savez(tmp_path / "copy.npz", x=np.random.default_rng(1).random((60, 8, 8, 1)), y=np.arange(60) % 2)
    said = [event.text for event in execute(tmp_path / "new", replace(again, data=copied)) if isinstance(event, Note)]
    assert any("its own are not here to tell" in text for text in said)


def test_a_model_of_images_of_another_shape_is_no_start(finished, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((20, 6, 7, 1)), y=np.arange(20) % 2)
    training = replace(SMALL.training, start_from=finished)
    with pytest.raises(UsageError, match="is for images of 8×8×1, and these are of 6×7×1"):
        list(
            execute(
                tmp_path / "run", replace(SMALL, data=DataConfig(f"npz:{tmp_path / 'data.npz'}"), training=training)
            )
        )


def test_settings_that_do_not_go_with_the_images_are_wrong_use(tmp_path):
    with pytest.raises(UsageError, match="bernoulli is for 2 classes and there are 10"):
        list(execute(tmp_path / "run", replace(SMALL, model=ModelConfig(likelihood="bernoulli"))))


@pytest.mark.slow
def test_without_natural_gradients_it_goes_on_too(tmp_path):
    config = replace(SMALL, training=replace(SMALL.training, natural_gradients=False))
    asked = iter(range(100))
    *_, event = execute(tmp_path / "run", config, stop=lambda: next(asked) == 12)
    assert event == Stopped(12)
    *_, event = execute(tmp_path / "run")
    assert isinstance(event, Finished)
    *_, whole = execute(tmp_path / "whole", config)
    assert event.metrics == whole.metrics


def test_a_stopped_run_says_where_and_keeps_the_one_it_overwrites_until_it_has_finished(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    before = (finished / "metrics.jsonl").read_bytes()
    asked = iter(range(100))  # before the first step, and after each
    *_, event = execute(tmp_path / "run", SMALL, overwrite=True, stop=lambda: next(asked) == 12)
    assert event == Stopped(12)
    found, last = read_words(tmp_path / "run/checkpoint/step-00000012.safetensors"), times(tmp_path / "run")[-1]
    assert float(found["seconds"]) > last
    with pytest.raises(ValueError, match=r"has no model\.safetensors yet; finish the run with"):
        load_model(tmp_path / "run")
    assert load_model(tmp_path / "run" / PREVIOUS).config == SMALL
    assert (tmp_path / "run" / PREVIOUS / "metrics.jsonl").read_bytes() == before
    *_, event = execute(tmp_path / "run")
    assert event == Finished(json.loads((finished / "metrics.json").read_text()))
    assert times(tmp_path / "run")[2] > float(found["seconds"])  # of step 15; the time of 11 and 12 is not lost
    assert not (tmp_path / "run" / PREVIOUS).exists()


def test_max_seconds_stops_with_a_checkpoint(tmp_path):
    prepare(replace(SMALL, training=replace(SMALL.training, max_seconds=1e-6)), tmp_path / "run")
    *_, event = execute(tmp_path / "run")
    assert event == Stopped(1)
    assert [path.name for path in (tmp_path / "run" / "checkpoint").iterdir()] == ["step-00000001.safetensors"]


@pytest.mark.slow
def test_an_elbo_at_rest_ends_training_and_stays_at_rest(tmp_path):
    """With a rate of next to nothing the ELBO is noise around a constant, which soon fails to rise."""
    training = replace(SMALL.training, learning_rate=1e-12, patience=10, max_steps=500)
    prepare(replace(SMALL, training=training), tmp_path / "run")
    *events, event = execute(tmp_path / "run")
    assert isinstance(event, Finished)
    assert 20 <= event.metrics["steps"] < 500
    assert Note(f"the ELBO came to rest: training ends after {event.metrics['steps']} of 500 steps") in events
    notes = [event.text for event in events if isinstance(event, Note)]
    assert any("that of guessing by the shares of the classes: too low to choose a model by" in note for note in notes)
    assert list(execute(tmp_path / "run")) == [events[0], event]
    with pytest.raises(UsageError, match=r"came to rest at step \d+, .* begin another run from it: --start-from"):
        list(execute(tmp_path / "run", limits=Limits(600, None)))
    assert read_config(tmp_path / "run/config.toml").training.max_steps == 500


def test_another_precision_than_that_of_the_settings_is_refused(tmp_path):
    """Otherwise the file would say double of a model in single precision, which nothing can read."""
    with pytest.raises(ValueError, match=r'double precision; set jax.config.update\("jax_enable_x64", True\) first'):
        list(execute(tmp_path / "run", replace(SMALL, model=replace(SMALL.model, float64=True))))
    assert not (tmp_path / "run").exists()


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


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run = tmp_path / "run"
    first = execute(run, SMALL)
    next(event for event in first if isinstance(event, Report))
    for second in (execute(run), execute(run, SMALL, overwrite=True), execute(run, limits=Limits(77, None))):
        with pytest.raises(UsageError, match="another process is training in"):
            list(second)
    first.close()
    with pytest.raises(UsageError, match="the run has reached step 5; give --max-steps of at least that"):
        list(execute(run, limits=Limits(4, None)))
    assert read_config(run / "config.toml") == SMALL
    *events, event = execute(run, limits=Limits(10, 60.0))
    assert isinstance(event, Finished)
    assert event.metrics["steps"] == 10
    assert read_config(run / "config.toml").training == replace(SMALL.training, max_steps=10, max_seconds=60.0)
    falls = "its learning rate falls to 0 at the last step, now 10, and so goes on from 0.015 instead of 0.025"
    assert Note(falls) in events


def test_probabilities_that_are_not_finite_end_no_training(tmp_path, monkeypatch):
    summed, asked = gp_predict._sum_samples, iter(range(10_000))

    def sum_samples(*given):
        """That of the first report is spoilt: two sets of 256 images, in four batches of 128."""
        return (spoilt if next(asked) < 4 else lambda prediction: prediction)(summed(*given))

    monkeypatch.setattr(gp_predict, "_sum_samples", sum_samples)
    *_, event = execute(tmp_path / "run", replace(SMALL, training=replace(SMALL.training, max_steps=10)))
    assert isinstance(event, Finished)
    first, second = read_history(tmp_path / "run")
    assert [first[name] for name in ("nll", "top1_error", "train_nll")] == [None] * 3
    assert second["nll"] > 0


def test_new_runs_leave_no_pixel_out(tmp_path):
    with pytest.raises(UsageError, match="patches of 3×3 pixels in steps of 4×4 leave pixels out"):
        list(execute(tmp_path / "run", replace(SMALL, model=replace(SMALL.model, stride=4))))
    assert not (tmp_path / "run").exists()


def test_a_model_says_how_far_apart_its_patches_stand(finished, monkeypatch):
    """What the settings leave to a default is not left to that of another version."""
    monkeypatch.setattr(layer_builders, "_PATCHES", 2)
    with pytest.raises(ValueError, match="whose default strides were 1 for such images, and are 3 now; train it again"):
        load_model(finished)


def test_where_nothing_can_be_written_is_said_before_the_data_are_read(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file is a file; give another --out"):
        list(execute(tmp_path / "file" / "run", SMALL))
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UsageError, match=f"nothing may be written into {tmp_path}; give another --out"):
        list(execute(tmp_path / "a" / "run", SMALL))


def test_the_report_of_a_run_that_is_trained_further_is_of_one_state(finished, tmp_path):
    run, data = tmp_path / "run", load_dataset("digits")
    shutil.copytree(finished, run)
    before = (run / "report.html").read_text()
    longer = replace(SMALL, training=replace(SMALL.training, max_steps=60))
    (run / "config.toml").write_text(format_config(longer))
    history = read_history(run)
    write_history(run, [*history, {**history[-1], "step": 35}])
    trained, metrics = load_model(run), json.loads((run / "metrics.json").read_text())
    write_report(run, trained, data, trained.predict(data.test.images), metrics)
    assert (run / "report.html").read_text() == before


def lines_of(nll: list[float | None], train_nll: list[float]) -> list[dict]:
    return [
        {"step": 10 * i, "nll": a, "train_nll": b} for i, (a, b) in enumerate(zip(nll, train_nll, strict=True), start=1)
    ]


@pytest.mark.parametrize(
    ("nll", "train_nll", "step"),
    [
        ([0.9, 0.5, 0.8], [0.9, 0.4, 0.1], 20),
        ([0.9, None, 0.5, 0.8], [0.9, 0.5, 0.4, 0.1], 30),
        ([0.9, 0.5, 0.59], [0.9, 0.4, 0.1], None),  # a little, as curves go
        ([0.9, 0.03, 0.06], [0.9, 0.4, 0.1], None),
        ([0.9, 0.5, 0.8], [0.9, 0.4, 0.6], None),  # training images too: it is something else
        ([], [], None),
    ],
)
def test_a_model_that_fits_its_training_images_too_closely(nll, train_nll, step):
    assert judge.overfitting(lines_of(nll, train_nll)) == step


@pytest.mark.parametrize(
    ("prior", "advice"), [(True, "(--max-steps 10)"), (False, "(--max-steps 10, or with --weight-prior)")]
)
def test_it_is_said_what_to_do_about_it(prior, advice, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "overfitting", lambda history: 10)
    config = replace(SMALL, model=replace(SMALL.model, weight_prior=prior))
    notes = [event.text for event in execute(tmp_path / "run", config) if isinstance(event, Note)]
    (said,) = [text for text in notes if "least at step 10" in text]
    assert advice in said
