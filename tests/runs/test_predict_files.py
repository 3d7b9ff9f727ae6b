"""New images: the same answers as for the arrays they were made from, and who decides."""

from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console

from tickgp.cli.tables import answers_table, comparison_table, metrics_table, strangeness_table
from tickgp.data.dataset import load_dataset
from tickgp.evaluation.handover import HeldOut, Rule
from tickgp.evaluation.promise import Threshold
from tickgp.experiments.cells import pretrained
from tickgp.experiments.results import agree, settings_of
from tickgp.runs import model_file
from tickgp.runs.compare import Compared
from tickgp.runs.model_file import included, load_config, load_model, load_rule, save_model
from tickgp.runs.predict import Answer, find_pictures, other_sizes, predict_files
from tickgp.training import tensors


@pytest.fixture(scope="module")
def trained(finished):
    return load_model(finished)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Six test digits as PNG files, in two folders; and their pixels, as the files hold them."""
    folder = tmp_path_factory.mktemp("pictures")
    pixels = np.round(255 * load_dataset("digits").test.images[:6]).astype(np.uint8)
    for i, image in enumerate(pixels):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        Image.fromarray(image[..., 0]).save(folder / "ab"[i % 2] / f"{i}.png")
    (folder / "a" / "notes.txt").write_text("not an image")
    return folder, pixels


def test_pictures_of_another_size_are_noticed_unless_training_scaled_them_too(trained, pictures, tmp_path):
    files = find_pictures([pictures[0]])
    assert other_sizes(trained, files) is None
    Image.new("L", (30, 8)).save(tmp_path / "wide.png")
    wide = [*files, tmp_path / "wide.png"]
    assert other_sizes(trained, wide).startswith("1 image was scaled to 8×8 pixels")
    of_folder = replace(trained.config, data=replace(trained.config.data, dataset="folder:photos"))
    assert other_sizes(replace(trained, config=of_folder), wide) is not None
    scaled = replace(of_folder, data=replace(of_folder.data, image_size=8))
    assert other_sizes(replace(trained, config=scaled), wide) is None


def test_answers_are_those_of_the_pixels(trained, pictures):
    folder, pixels = pictures
    files = find_pictures([folder / "b", folder / "a" / "0.png"])
    assert [file.name for file in files] == ["1.png", "3.png", "5.png", "0.png"]
    answers, problems = predict_files(trained, files, rule=Rule())
    expected = trained.predict(pixels[[1, 3, 5, 0]])
    assert problems == []
    for i, answer in enumerate(answers):
        p = np.asarray(expected.probabilities[i])
        np.testing.assert_allclose(list(answer.probabilities.values()), p, rtol=1e-6)
        assert answer.label == trained.class_names[p.argmax()]
        assert answer.probability == pytest.approx(p.max())
        assert answer.entropy == pytest.approx(-np.sum(p * np.log(p)), rel=1e-5)
        assert answer.variance == pytest.approx(float(expected.variance[i]), rel=1e-5)
        assert answer.distance == pytest.approx(float(expected.distance[i]), rel=1e-5)
        assert answer.hand_over is True  # nothing is promised


def test_below_the_threshold_a_person_decides(trained, pictures):
    files = find_pictures([pictures[0]])
    sure = sorted(answer.probability for answer in predict_files(trained, files)[0])
    rule = Rule(threshold=Threshold(sure[3], 0.1, 0.95, 0.5, 50, 0, 0.1))
    answers, _ = predict_files(trained, files, rule=rule)
    assert sorted(answer.probability for answer in answers if answer.hand_over) == sure[:3]
    assert shown(answers_table(answers, promised=True)).count("a person: unsure") == 3


def test_an_unusual_image_is_for_a_person(trained, pictures):
    """However sure the model is of it; and it is said why."""
    files = find_pictures([pictures[0]])
    distance = sorted(answer.distance for answer in predict_files(trained, files)[0])
    limit = replace(trained.held_out, distance=np.full(360, distance[3])).max_distance()
    rule = Rule(limit, Threshold(0.0, 0.1, 0.95, 1.0, 50, 0, 0.1))
    answers, _ = predict_files(trained, files, rule=rule)
    unusual = [answer for answer in answers if answer.unusual]
    assert sorted(answer.distance for answer in unusual) == distance[3:]
    assert [answer.hand_over for answer in answers] == [answer.unusual for answer in answers]
    assert shown(answers_table(answers, promised=True)).count("a person: unusual") == len(unusual)


@pytest.mark.parametrize("as_path", [str, Path])
def test_without_a_threshold_the_share_of_unusual_images_is_still_a_choice(trained, pictures, as_path):
    files = [*map(as_path, find_pictures([pictures[0]]))]
    rules = [trained.rule(max_error=1e-9, max_unusual=share) for share in (0.0, 0.5, 0.99)]
    assert all(rule.threshold is None for rule in rules)
    answers = [predict_files(trained, files, rule=rule)[0] for rule in rules]
    limits = [trained.held_out.max_distance(share) for share in (0.0, 0.5, 0.99)]
    for answered, limit in zip(answers, limits, strict=True):
        assert [a.unusual for a in answered] == [a.distance > limit for a in answered]
    assert sum(a.unusual for a in answers[0]) < sum(a.unusual for a in answers[2])


def test_by_default_the_model_has_its_own_rule(trained, pictures):
    """And one file needs no list."""
    lax = replace(trained, config=replace(trained.config, max_error=0.9))
    file = pictures[0] / "a" / "0.png"
    for path in (file, str(file)):
        (answer,), _ = predict_files(lax, path)
        assert answer == predict_files(lax, [file], rule=lax.rule())[0][0]
        assert answer.hand_over == lax.rule().hand_over([answer.probability], [answer.distance])[0]
    assert predict_files(trained, file)[0][0].hand_over  # too few images for 1 %


def test_a_trained_model_is_shown_in_a_few_lines(trained):
    assert len(repr(trained)) < 4000
    assert "class_names=('0', '1'" in repr(trained)


def shown(table, width=200):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


@pytest.mark.parametrize("name", ["cat[old].png", "a[/b].png", ":cat: [red].png", "end\\"])
def test_names_are_shown_as_they_are(name):
    """Not read as markup, nor as emoji."""
    answers = [Answer(name, f"label {name}", 0.9, 0.1, 0.0, 1.0, 1.0, False, person, {}) for person in (True, False)]
    first, second = [line for line in shown(answers_table(answers, promised=False)).splitlines() if name in line]
    assert f"label {name}" in first
    assert "a person" in first
    assert "the model" in second
    scores = dict.fromkeys(("top1_error", "nll", "ece"), 0.1)
    assert name in shown(
        comparison_table([Compared(run=name, model="tick", images="", steps=10, sampling=None, elbo=None, test=scores)])
    )
    by = {"entropy": 0.5, "mutual_information": 0.5, "variance": 0.5, "distance": 0.5}
    assert name in shown(strangeness_table({"dataset": name, "trained_on": "digits", "auroc": by, "fpr95": by}))
    undefined = dict.fromkeys(("top1_error", "top2_error", "top3_error", "nll", "nll_misses", "ece", "brier"))
    assert name in shown(metrics_table(name, {"test": {"n": 5} | undefined, "interval": {}}))


def test_long_paths_are_folded_not_cut():
    """Two images of one folder differ in the end of their names."""
    files = [f"{'folder/' * 20}{number}.png" for number in (1, 2)]
    answers = [Answer(file, "cat", 0.9, 0.1, 0.0, 1.0, 1.0, False, True, {}) for file in files]
    lines = shown(answers_table(answers, promised=True), width=70).splitlines()
    image = "".join(line.strip("│").split("│")[0].strip() for line in lines if line.startswith("│"))
    assert image == "".join(files)


def test_a_bad_image_is_named_or_left_out(trained, pictures, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    files = [*find_pictures([pictures[0] / "a"]), tmp_path / "broken.png"]
    with pytest.raises(
        ValueError, match=r"broken\.png cannot be .* --skip-bad-images \(in Python: skip_bad_images=True"
    ):
        predict_files(trained, files)
    answers, (problem,) = predict_files(trained, files, skip_bad_images=True)
    assert len(answers) == 3
    assert "broken.png" in problem


def test_a_model_of_rows_takes_no_pictures(trained, pictures):
    with pytest.raises(ValueError, match="takes inputs of 1×1×5 numbers, which are no pictures"):
        predict_files(replace(trained, image_shape=(1, 1, 5)), find_pictures([pictures[0]]))


def test_missing_and_empty_places_are_said(tmp_path):
    with pytest.raises(ValueError, match="there is no file or folder"):
        find_pictures([tmp_path / "nothing.png"])
    with pytest.raises(ValueError, match="there are no images in"):
        find_pictures([tmp_path])


def test_the_model_file_does_not_say_where_folders_were(trained, tmp_path):
    """It is for other machines too, where one may not even be allowed to look there."""
    config = replace(trained.config, data=replace(trained.config.data, data_dir=tmp_path / "data"))
    config = replace(config, training=replace(config.training, start_from=tmp_path / "other-run"))
    save_model(tmp_path, replace(trained, config=config))
    assert str(tmp_path).encode() not in (tmp_path / "model.safetensors").read_bytes()
    assert load_config(tmp_path) == trained.config
    for name in included():
        assert load_config(Path(name)).data.data_dir is None


def test_the_model_file_keeps_what_thresholds_come_from(trained, tmp_path):
    """Also to the last digit: an image that is as sure as the threshold is kept."""
    rng = np.random.default_rng(0)
    confidence = np.float32(rng.uniform(0.5, 1, 400)).astype(float)
    right, distance = confidence > 0.6, np.float32(rng.gamma(2.0, size=400)).astype(float)
    save_model(tmp_path, replace(trained, held_out=HeldOut("test", confidence, right, distance)))
    loaded = load_model(tmp_path)
    np.testing.assert_array_equal(loaded.held_out.confidence, confidence)
    np.testing.assert_array_equal(loaded.held_out.right, right)
    np.testing.assert_array_equal(loaded.held_out.distance, distance)
    rule = loaded.rule(0.02)
    kept = (confidence >= rule.threshold.threshold) & (distance <= rule.max_distance)
    assert np.sum(kept) == round(rule.threshold.kept * 400)
    assert load_rule(tmp_path) == loaded.rule()
    assert "held-out images" in loaded.rule(0.001).reason
    save_model(tmp_path, replace(trained, familiarity=None, held_out=None))
    assert "no held-out images" in load_model(tmp_path).rule().reason
    assert load_rule(tmp_path) == load_model(tmp_path).rule() == Rule(reason=load_rule(tmp_path).reason)


@pytest.mark.parametrize("load", [load_model, load_config, load_rule])
@pytest.mark.parametrize(("change", "which"), [(-1, "an earlier"), (1, "a later")])
def test_a_model_of_another_version(trained, tmp_path, monkeypatch, load, change, which):
    with monkeypatch.context() as then:
        then.setattr(tensors, "FORMAT", tensors.FORMAT + change)
        save_model(tmp_path, trained)
    with pytest.raises(ValueError, match=rf"model\.safetensors was made by {which} version .* train again"):
        load(tmp_path)


def test_a_model_file_without_a_format_is_an_early_one(trained, tmp_path, monkeypatch):
    save = tensors.save
    less = lambda arrays, metadata: save(arrays, {k: v for k, v in metadata.items() if k != "format"})
    monkeypatch.setattr(tensors, "save", less)
    save_model(tmp_path, trained)
    with pytest.raises(ValueError, match="made by an earlier version"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "two"},
        {"class_names": '["0", '},
        {"class_names": "3"},
        {"image_shape": '["x"]'},
        {"hand_over": "{}"},
    ],
    ids=str,
)
def test_damage_in_the_words_of_a_model_is_told(trained, tmp_path, monkeypatch, damage):
    save = tensors.save
    monkeypatch.setattr(tensors, "save", lambda arrays, metadata: save(arrays, {**metadata, **damage}))
    save_model(tmp_path, trained)
    with pytest.raises(
        ValueError, match=r"model\.safetensors is damaged: its words cannot be read .*; use another copy"
    ):
        load_model(tmp_path)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(ValueError, match="is not the folder of a run: it has no model"):
        load_model(tmp_path)
    with pytest.raises(ValueError, match="there is no folder"):
        load_model(tmp_path / "nothing")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    with pytest.raises(ValueError, match="is no complete safetensors file"):
        load_model(tmp_path)


def test_an_included_model_is_found_by_its_name(tmp_path, finished, monkeypatch):
    folder = tmp_path / "some-digits"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes((finished / "model.safetensors").read_bytes())
    monkeypatch.setattr("tickgp.runs.model_file._INCLUDED", tmp_path)
    assert load_model(Path("some-digits")).class_names == load_model(finished).class_names
    with pytest.raises(ValueError, match="give that of a run, or some-digits, which comes with tickgp"):
        load_model(Path("other-digits"))


def test_the_model_that_comes_with_the_library():
    """It is small, and reads even printed digits; what is no digit, or dark on light, it leaves to a person."""
    assert included() == ["mnist-tick"]
    trained = load_model(Path("mnist-tick"))
    cell = pretrained("fast")
    assert agree(settings_of(replace(cell, settings=trained.config)), cell)
    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", 26)
    printed = np.stack([_drawn(str(digit), font) for digit in range(10)])[..., None]
    said, rule = trained.predict(printed), trained.rule()
    assert said.labels.tolist() == list(range(10))
    assert np.flatnonzero(said.distance > rule.max_distance).tolist() == [1]  # with a foot, as few have by hand
    noise = np.random.default_rng(0).integers(256, size=printed.shape).astype(np.uint8)
    strange = trained.predict(np.concatenate([255 - printed, noise]))
    assert (strange.distance > rule.max_distance).all()
    assert (
        strange.probabilities.max(axis=1)[10:].min() > rule.threshold.threshold
    )  # by its probabilities it would decide
    assert sum(path.stat().st_size for path in model_file._INCLUDED.rglob("*")) < 3_000_000


def test_the_example_of_the_readme():
    root = Path(__file__).parents[2]
    lines = [line for line in (root / "README.md").read_text().splitlines() if line.startswith("│ docs/examples/")]
    trained = load_model(Path("mnist-tick"))
    answers, _ = predict_files(trained, [root / line.split()[1] for line in lines])
    decided = [("the model", "a person")[answer.hand_over] + ": unusual" * answer.unusual for answer in answers]
    assert decided == ["the model", "a person", "a person: unusual"]
    for line, answer in zip(lines, answers, strict=True):
        _, label, probability, *_ = (cell.strip() for cell in line.strip("│").split("│"))
        assert label == answer.label
        assert float(probability.removesuffix(" %")) == pytest.approx(100 * answer.probability, abs=0.1)


def test_the_included_model_leaves_thick_soft_digits_to_a_person():
    """Enlarged from 8×8 pixels they are legible and well placed; it takes nearly all for an 8, and is sure of most."""
    digits = load_dataset("digits").test
    soft = np.zeros((100, 28, 28, 1), np.uint8)
    for image, small in zip(soft, np.round(255 * digits.images[:100, ..., 0]).astype(np.uint8), strict=True):
        image[4:24, 4:24, 0] = Image.fromarray(small).resize((20, 20), Image.Resampling.BICUBIC)
    trained = load_model(Path("mnist-tick"))
    said, rule = trained.predict(soft), trained.rule()
    sure = np.asarray(said.probabilities).max(axis=1) >= rule.threshold.threshold
    assert np.mean((said.labels != digits.labels[:100])[sure]) > 0.5
    assert np.mean(np.asarray(said.distance) > rule.max_distance) > 0.9


def _drawn(text, font):
    image = Image.new("L", (28, 28))
    ImageDraw.Draw(image).text((14, 14), text, fill=255, font=font, anchor="mm")
    return np.asarray(image)
