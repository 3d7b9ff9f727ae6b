"""Images of other kinds are what they are called, and what is counted of them is what the model says."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from data.written import mnist_folder, put, random_bytes, semeion
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_digits

from benchmarks.unusual import BOXES, FONTS, Kind, judge, layer_distances, make_kinds, markdown, measure, printed
from tickgp.data.dataset import load_dataset
from tickgp.evaluation.familiarity import Familiarity
from tickgp.evaluation.handover import HeldOut, Rule
from tickgp.evaluation.promise import Threshold
from tickgp.gp.predict import Prediction
from tickgp.runs.model_file import TrainedModel, load_model, save_model
from tickgp.training.assemble import build_model
from tickgp.training.config import Config, DataConfig, ModelConfig

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
N = 28

MARKDOWN = """\
|  | images | unusual (%) | for a person (%) | decided | wrong of these (%) |
| --- | --- | --- | --- | --- | --- |
| MNIST | 2,000 | 1.00 | 2.00 | 1,960 | 0.51 |
| noise | 2,000 | 100.00 | 100.00 | 0 |  |
| Semeion | 4 | 100.00 | 100.00 | 0 |  |
| an empty image | 1 | 0.00 | 0.00 | 1 |  |
"""


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Sixty test images of MNIST, ten of Fashion-MNIST, fifteen of Semeion."""
    folder = mnist_folder(tmp_path_factory.mktemp("data"), test=60)
    mnist_folder(folder, "fashion-mnist")
    lines = semeion(random_bytes(15, 16, 16) // 128, np.arange(15) % 10)
    put(folder / "semeion" / "semeion.data", lines.encode())
    return folder


@pytest.fixture(scope="module")
def kinds(data_dir):
    return make_kinds(data_dir, 50, seed=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory, data_dir):
    """A deep model that was not trained, sure of its held-out images and right: 60, of which 20 are copies."""
    data, images = DataConfig("mnist", data_dir=data_dir), random_bytes(20, N, N, 1)
    settings = ModelConfig(name="deep-se", width=5, num_inducing=6)
    config = Config(prediction_samples=3, max_error=0.1, data=data, model=settings)
    model = build_model(settings, images, 10, key=jax.random.key(0))
    held_out = HeldOut("test", np.ones(40, np.float32), np.ones(40, bool), np.linspace(0.5, 1.5, 40))
    familiarity = Familiarity.of(model, images, np.arange(20) % 10, 10)
    folder = tmp_path_factory.mktemp("run")
    save_model(folder, TrainedModel(model, config, tuple("0123456789"), (N, N, 1), familiarity, held_out))
    return folder


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("MNIST", lambda row, column: (row, column)),
        ("upside down", lambda row, column: (N - 1 - row, N - 1 - column)),
        ("mirrored", lambda row, column: (row, N - 1 - column)),
        ("turned by a quarter", lambda row, column: (column, N - 1 - row)),
        ("transposed", lambda row, column: (column, row)),
    ],
)
def test_where_each_pixel_comes_from(data_dir, kinds, name, source):
    test = load_dataset("mnist", data_dir=data_dir).test
    places = [(row, column) for row in range(N) for column in range(N)]
    for image, original in zip(kinds[name].images, test.images[:50], strict=True):
        assert all(image[place] == original[source(*place)] for place in places)
    assert (kinds[name].digits == test.labels[:50]).all()


def test_shifts_go_four_ways_and_lose_what_goes_out(kinds):
    ways = {(4, 0), (-4, 0), (0, 4), (0, -4)}
    found = set()
    for image, original in zip(kinds["shifted by 4 pixels"].images, kinds["MNIST"].images, strict=True):
        (way,) = (way for way in ways if (image == moved(original, *way)).all())
        found.add(way)
    assert found == ways


def moved(image, down, right):
    new = np.zeros_like(image)
    for row in range(max(0, down), N + min(0, down)):
        for column in range(max(0, right), N + min(0, right)):
            new[row, column] = image[row - down, column - right]
    return new


def test_brightness(kinds):
    x = kinds["MNIST"].images.astype(int)
    assert (kinds["half the contrast"].images == np.floor(x / 2)).all()
    assert (kinds["a tenth of the contrast"].images == np.floor(x / 10)).all()
    assert (kinds["dark on light"].images + x == 255).all()
    assert kinds["an empty image"].images.shape == (1, N, N, 1)
    assert not kinds["an empty image"].images.any()
    noise = kinds["noise"].images
    assert len({image.tobytes() for image in noise}) == 50
    assert np.bincount(noise.ravel(), minlength=256).min() > 0
    assert noise.mean() == pytest.approx(127.5, abs=1.5)


def test_two_digits_stand_side_by_side(kinds):
    """Each row of a half is about as bright as that row of the whole digit."""
    images, x = kinds["two digits in one image"].images, kinds["MNIST"].images
    for image, first, second in zip(images, x, [x[-1], *x[:-1]], strict=True):
        for half, whole in ((image[:, :14], first), (image[:, 14:], second)):
            np.testing.assert_allclose(half.mean(axis=1), whole.mean(axis=1), atol=6)


def test_digits_of_half_the_size_are_in_the_middle(kinds):
    """With a quarter of the ink."""
    images, x = kinds["half the size"].images, kinds["MNIST"].images
    assert not images[:, outside_of(7, 21)].any()
    np.testing.assert_allclose(images.sum(axis=(1, 2, 3)), x.sum(axis=(1, 2, 3), dtype=int) / 4, rtol=0.02)
    assert (kinds["half the size"].digits == kinds["MNIST"].digits).all()


def test_small_digits_are_as_they_are(kinds):
    kind, small = kinds["8×8 digits in a black frame"], load_digits()
    assert not kind.images[:, outside_of(10, 18)].any()
    np.testing.assert_allclose(kind.images[:, 10:18, 10:18, 0], small.images[:50] * 255 / 16, atol=0.5)
    assert (kind.digits == small.target[:50]).all()


def outside_of(first, last):
    """Of the square of these rows and columns."""
    outside = np.ones((N, N), bool)
    outside[first:last, first:last] = False
    return outside


def test_enlarged_digits_are_in_the_middle(kinds):
    """By another library's bilinear interpolation."""
    kind, small = kinds["enlarged 8×8 digits"], load_digits()
    assert not kind.images[:, outside_of(4, 24)].any()
    places = np.meshgrid(*2 * [(np.arange(20) + 0.5) * 8 / 20 - 0.5], indexing="ij")
    for image, original in zip(kind.images[:, 4:24, 4:24, 0], small.images, strict=False):
        exact = map_coordinates(original * 255 / 16, places, order=1, mode="nearest")
        np.testing.assert_allclose(image, exact, atol=1.5)
    assert (kind.digits == small.target[:50]).all()


def test_printed_characters_fill_their_boxes_in_the_middle(kinds):
    kind = kinds["printed digits"]
    assert (kind.images == printed("0123456789")).all()
    assert len(kind.images) == len(kind.digits) == 10 * len(FONTS) * len(BOXES)
    assert len(kinds["printed capital letters"].images) == 26 * len(FONTS) * len(BOXES)
    assert (kind.images[::10] == printed("0")).all()
    assert not kind.digits[::10].any()
    for image, box in zip(kind.images[..., 0], np.tile(np.repeat(BOXES, 10), len(FONTS)), strict=True):
        rows, columns = (np.flatnonzero(image.any(axis=axis)) for axis in (1, 0))
        assert max(lines[-1] - lines[0] + 1 for lines in (rows, columns)) == box
        assert all(abs(lines[0] + lines[-1] - (N - 1)) <= 1 for lines in (rows, columns))


def test_sizes(kinds):
    assert {len(kind.images) for name, kind in kinds.items() if "printed" not in name} == {1, 10, 15, 50}
    assert (len(kinds["Semeion"].images), len(kinds["Fashion-MNIST"].images)) == (15, 10)
    for kind in kinds.values():
        assert (kind.images.shape[1:], kind.images.dtype) == ((N, N, 1), np.uint8)
        assert kind.digits is None or len(kind.digits) == len(kind.images)
    assert not kinds["Semeion"].images[:, :6].any()


def test_what_is_counted():
    """Seven images: two far away, one of these unsure; one unsure; of the four that it decides one wrong."""
    confidence = np.array([0.99, 0.5, 0.6, 0.8, 0.8, 0.9, 0.9])
    said, distance = np.array([1, 2, 3, 4, 5, 6, 6]), np.array([1.6, 9.0, 1.0, 1.5, 1.0, 0.1, 1.0])
    p = np.tile(((1 - confidence) / 9)[:, None], (1, 10))
    p[np.arange(7), said] = confidence
    prediction = Prediction(jax.numpy.asarray(p), jax.numpy.zeros(7), jax.numpy.zeros(7), jax.numpy.asarray(distance))
    rule = Rule(1.5, Threshold(0.75, 0.01, 0.95, 1.0, 400, 0, 0.01))
    images = np.zeros((7, N, N, 1), np.uint8)
    found = {"images": 7, "unusual": 2 / 7, "handed_over": 3 / 7, "decided": 4}
    assert judge(prediction, rule, Kind(images)) == pytest.approx(found)
    digits = np.array([0, 0, 0, 4, 5, 6, 9])
    wrong = judge(prediction, rule, Kind(images, digits))
    assert wrong == {**found, "wrong": 1, "mistakes": {"9 as 6": 1}}


def test_a_deep_model_has_shares_for_each_layer(run, data_dir, kinds):
    """In each layer as far as the furthest of its own test images, which are its held-out ones."""
    some = {name: kinds[name] for name in ("MNIST", "dark on light")}
    found, trained = measure(run, some, data_dir)["kinds"], load_model(run)
    said = lambda images: np.asarray(trained.predict(images).labels)
    data = load_dataset("mnist", data_dir=data_dir)
    own = data.test.images[data.is_counted()]
    limits = [distance.max() for distance in layer_distances(trained, own, said(own))]
    assert len(limits) == 2
    for name, kind in some.items():
        alone = layer_distances(trained, kind.images, said(kind.images))
        np.testing.assert_allclose(np.max(alone, axis=0), trained.predict(kind.images).distance, rtol=1e-5)
        shares = [np.mean(distance >= 0.9999 * limit) for distance, limit in zip(alone, limits, strict=True)]
        assert found[name]["unusual_by_layer"] == pytest.approx(shares)
    assert markdown({"kinds": found}).startswith("|  | images | unusual (%) | … in layer 1 alone (%) |")


def test_only_models_of_such_digits_are_asked(run, tmp_path, kinds):
    save_model(tmp_path, replace(load_model(run), class_names=tuple("abcdefghij")))
    with pytest.raises(ValueError, match="is no model of digits of 28×28 pixels; give a run on mnist, or mnist-tick"):
        measure(tmp_path, kinds, None)


def test_without_held_out_images_there_is_nothing_to_count(run, tmp_path, kinds):
    save_model(tmp_path, replace(load_model(run), held_out=None))
    with pytest.raises(ValueError, match="has seen no held-out images"):
        measure(tmp_path, kinds, None)


def test_markdown():
    counts = {
        "MNIST": {"images": 2000, "unusual": 0.01, "handed_over": 0.02, "decided": 1960, "wrong": 10},
        "noise": {"images": 2000, "unusual": 1.0, "handed_over": 1.0, "decided": 0},
        "Semeion": {"images": 4, "unusual": 1.0, "handed_over": 1.0, "decided": 0, "wrong": 0},
        "an empty image": {"images": 1, "unusual": 0.0, "handed_over": 0.0, "decided": 1},
    }
    assert markdown({"kinds": counts}) == MARKDOWN


def test_the_results_agree_with_those_of_evaluate():
    """Of the model that comes with the library, on whole datasets; and its counts with one another."""
    document = json.loads((RESULTS / "benchmarks/unusual-mnist-tick.json").read_text())
    kinds = document["runs"]["mnist-tick"]["kinds"]
    for title, name in {"MNIST": "mnist", "Semeion": "semeion", "Fashion-MNIST": "fashion-mnist"}.items():
        found = json.loads((RESULTS / f"included/{name}.json").read_text())
        handed = found["unknown" if name == "fashion-mnist" else "hand_over"]
        assert kinds[title]["handed_over"] == pytest.approx(handed["share"], abs=0.001)
        assert kinds[title]["unusual"] == pytest.approx(handed["unusual"], abs=0.001)
    for kind in kinds.values():
        assert kind["decided"] == pytest.approx((1 - kind["handed_over"]) * kind["images"])
        assert sum(kind.get("mistakes", {}).values()) <= kind.get("wrong", 0) <= kind["decided"]
        assert all(first >= second for first, second in pairwise(kind.get("mistakes", {}).values()))


@pytest.mark.slow
def test_the_command(tmp_path, data_dir):
    options = ["--images", "4", "--data-dir", str(data_dir), "--device", "cpu", "--out", str(tmp_path / "unusual.json")]
    command = [sys.executable, "-m", "benchmarks", "unusual", "mnist-tick", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    document = json.loads((tmp_path / "unusual.json").read_text())
    committed = json.loads((RESULTS / "benchmarks/unusual-mnist-tick.json").read_text())
    assert (document["kind"], document["settings"]) == ("unusual", {"images": 4, "seed": 0})
    assert document["machine"]["device"] == "cpu"
    found, before = (d["runs"]["mnist-tick"] for d in (document, committed))
    assert (found["model"], found["threshold"]) == (before["model"], before["threshold"])
    assert list(found["kinds"]) == list(before["kinds"])
    printed_shares = [found["kinds"]["printed digits"][name] for name in ("unusual", "handed_over")]
    assert f"│ {100 * printed_shares[0]:.2f} " in ended.stdout
