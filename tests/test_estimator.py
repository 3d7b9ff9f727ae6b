"""`TickClassifier` as scikit-learn, its data and a person use it. Most tests share one problem, so little compiles."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Never

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from tickgp.estimator import TickClassifier
from tickgp.estimator import classifier as estimator_module
from tickgp.estimator.inputs import warn_of_little_range
from tickgp.estimator.settings import run_config
from tickgp.runs.model_file import load_model

N = 60
FITTING = {
    "check_estimators_pickle",
    "check_n_features_in_after_fitting",
}
"""Some of scikit-learn's checks that fit, beside those that do not. All of them together are slow."""
NOT_FITTING = {
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_repr",
    "check_estimator_sparse_array",
    "check_estimator_sparse_tag",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1sample",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_requires_y_none",
    "check_set_params",
    "check_supervised_y_no_nan",
    "check_valid_tag_types",
}


def problem(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 6, 5) with a bright bar that lies (label 0) or stands (label 1), amid noise."""
    rng = np.random.default_rng(seed)
    images, labels = 0.2 * rng.random((n, 6, 5)), np.arange(n) % 2
    for image, label, place in zip(images, labels, rng.integers(1, 4, n), strict=True):
        image[(slice(None), place) if label else (place, slice(None))] += 0.7
    return images, labels


def classifier(**params: object) -> TickClassifier:
    given = {"num_inducing": 10, "max_steps": 100, "learning_rate": 0.05, "prediction_samples": 20, "random_state": 0}
    return TickClassifier(**given | params)


@pytest.fixture(scope="module")
def fitted() -> TickClassifier:
    return classifier().fit(*problem())


def test_passes_scikit_learns_checks() -> None:
    small = TickClassifier(max_steps=20, num_inducing=5, prediction_samples=10)
    seen = set()
    for estimator, check in estimator_checks_generator(small):
        if (name := check.func.__name__) in FITTING | NOT_FITTING:
            check(estimator)
            seen.add(name)
    assert seen == FITTING | NOT_FITTING


@pytest.mark.slow
def test_passes_all_of_scikit_learns_checks() -> None:
    results = check_estimator(TickClassifier(max_steps=300), on_skip=None)
    skipped = {result["check_name"] for result in results if result["status"] != "passed"}
    assert skipped <= {"check_array_api_input", "check_classifier_data_not_an_array"}  # these ask for other libraries


def test_learns_and_tells_probabilities(fitted: TickClassifier) -> None:
    images, labels = problem(40, seed=1)
    p = fitted.predict_proba(images)
    assert fitted.score(images, labels) > 0.9
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(images), p.argmax(axis=1))
    np.testing.assert_array_equal(fitted.predict_log_proba(images), np.log(p))
    assert (fitted.n_features_in_, fitted.n_iter_, len(fitted.elbo_)) == (30, 100, 1)


def test_the_shape_of_the_array_does_not_matter(fitted: TickClassifier) -> None:
    images, labels = problem()
    expected = fitted.predict_proba(images)
    np.testing.assert_array_equal(fitted.predict_proba(images[..., None]), expected)
    np.testing.assert_array_equal(fitted.predict_proba(images.reshape(N, 30)), expected)
    for X, shape in ((images[..., None], None), (images.reshape(N, 30), (6, 5)), (images.reshape(N, 30), [6, 5, 1])):
        again = classifier(image_shape=shape).fit(X, labels)
        np.testing.assert_array_equal(again.predict_proba(X), expected)


def test_bytes_are_fractions_of_255(fitted: TickClassifier) -> None:
    pixels = np.round(255 * problem()[0]).astype(np.uint8)
    np.testing.assert_allclose(fitted.predict_proba(pixels), fitted.predict_proba(pixels / 255), atol=1e-5)


def test_what_stands_beside_an_image_does_not_matter(fitted: TickClassifier) -> None:
    images, _ = problem()
    order = np.random.default_rng(0).permutation(N)
    whole = fitted.predict_proba(images)
    np.testing.assert_allclose(fitted.predict_proba(images[order]), whole[order], atol=1e-7)
    np.testing.assert_allclose(fitted.predict_proba(images[7:8]), whole[7:8], atol=1e-7)


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["lying", "standing"]),
        np.array(["b", "aa"], object),
        np.array([False, True]),
        np.array([-1.0, 3.0]),
        np.array([7, 3], np.int8),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_labels_of_any_kind_come_back_from_a_folder_too(classes: np.ndarray, tmp_path: Path) -> None:
    images, labels = problem()
    model = classifier().fit(images, classes[labels])
    assert model.classes_.dtype == classes.dtype
    assert model.score(images, classes[labels]) > 0.9
    model.save(tmp_path)
    back = TickClassifier.load(tmp_path)
    np.testing.assert_array_equal(back.classes_, np.unique(classes))
    assert back.classes_.dtype == classes.dtype
    np.testing.assert_array_equal(back.predict(images), model.predict(images))


def test_the_same_seed_gives_the_same_and_none_does_not(fitted: TickClassifier) -> None:
    images, labels = problem()
    p = fitted.predict_proba(images)
    np.testing.assert_array_equal(clone(fitted).fit(images, labels).predict_proba(images), p)
    drawn = [classifier(random_state=np.random.RandomState(5)).fit(images, labels).predict_proba(images) for _ in "ab"]
    np.testing.assert_array_equal(*drawn)
    assert not np.array_equal(drawn[0], p)


@pytest.mark.slow
def test_double_precision_if_jax_computes_in_it(tmp_path: Path, float64: None) -> None:
    images, labels = problem()
    model = classifier().fit(images, labels)
    assert all(a.dtype == np.float64 for a in jax.tree.leaves(model.trained_.model))
    assert model.score(images, labels) > 0.9
    model.save(tmp_path)
    np.testing.assert_array_equal(TickClassifier.load(tmp_path).predict_proba(images), model.predict_proba(images))
    with jax.enable_x64(False), pytest.raises(ValueError, match="double precision"):
        TickClassifier.load(tmp_path)


def test_works_with_scikit_learns_tools() -> None:
    images, labels = problem()
    rows, folds = images.reshape(N, 30), StratifiedKFold(2)
    scores = cross_val_score(classifier(), images, labels, cv=folds)
    assert scores.shape == (2,)
    assert scores.min() > 0.8
    steps = [("brighten", FunctionTransformer(lambda x: x + 0.05)), ("gp", classifier(image_shape=(6, 5)))]
    grid = {"gp__max_steps": np.array([1, 100])}
    search = GridSearchCV(Pipeline(steps), grid, cv=folds, scoring="neg_log_loss").fit(rows, labels)
    assert search.best_params_ == {"gp__max_steps": 100}
    assert search.best_estimator_["gp"].trained_.config.training.max_steps == 100


def test_rows_that_are_no_images_are_scaled(tmp_path: Path) -> None:
    rng, labels = np.random.default_rng(0), np.arange(N) % 2
    rows = 1e6 + labels[:, None] + 0.5 * rng.random((N, 36))
    rows[:, 30:], rows[:, 35] = 1e-9 * rng.random((N, 6)), 7
    with pytest.warns(UserWarning, match=r"rows of 36 numbers are taken as features; .* image_shape=\(6, 6\)"):
        model = classifier().fit(rows, labels)
    assert model.trained_.config.model.name == "se"
    assert model.score(rows, labels) == 1
    other_units = classifier(model="se").fit(8 * rows - 3, labels).predict_proba(8 * rows - 3)
    np.testing.assert_allclose(other_units, model.predict_proba(rows), atol=0.01)
    assert np.isfinite(model.predict_proba(1e9 * rows)).all()
    model.save(tmp_path)
    np.testing.assert_array_equal(TickClassifier.load(tmp_path).predict_proba(rows), model.predict_proba(rows))


def test_more_inducing_points_than_rows_become_as_many_as_differ() -> None:
    rows = np.repeat([[0.0, 1.0], [-0.0, 1.0], [2.0, 1.0], [3.0, 4.0]], 5, axis=0)
    params = TickClassifier(num_inducing=1000).get_params()
    assert run_config(params, "se", rows[:, None, :, None], 0).model.num_inducing == 3


@pytest.mark.parametrize(("params", "expected"), [({}, None), ({"stride": 3}, 3), ({"stride": np.int64(2)}, 2)])
def test_the_stride_is_left_to_the_images_or_set(params: dict[str, int], expected: int | None) -> None:
    images = np.zeros((2, 28, 28, 1), np.float32)
    assert run_config(TickClassifier(**params).get_params(), "tick", images, 0).model.stride == expected


def test_saved_and_loaded_it_is_the_same(fitted: TickClassifier, tmp_path: Path) -> None:
    images, _ = problem()
    fitted.save(tmp_path / "new" / "folder")
    back = TickClassifier.load(str(tmp_path / "new" / "folder"))
    assert back.get_params() == fitted.get_params()
    np.testing.assert_array_equal(back.predict_proba(images), fitted.predict_proba(images))
    assert (back.n_features_in_, back.n_iter_, back.elbo_) == (30, 100, fitted.elbo_)
    (tmp_path / "new" / "folder" / "evaluations").mkdir()  # what `tickgp evaluate` leaves, of another model
    back.save(tmp_path / "new" / "folder")
    files = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    assert files == ["estimator.json", "model.safetensors"]
    json.loads((tmp_path / "new" / "folder" / "estimator.json").read_text())


def test_the_command_line_can_use_its_folder(tmp_path: Path) -> None:
    images, labels = problem()
    model = classifier().fit(images, np.array(["lying", "standing"])[labels])
    model.save(tmp_path)
    trained = load_model(tmp_path)
    assert trained.class_names == ("lying", "standing")
    assert trained.image_shape == (6, 5, 1)
    p = trained.predict(images[..., None].astype(np.float32)).probabilities
    np.testing.assert_allclose(p, model.predict_proba(images), atol=1e-6)


def test_folders_that_are_not_its_own_are_refused(fitted: TickClassifier, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none holds no saved classifier; give a folder written by"):
        TickClassifier.load(tmp_path / "none")
    (tmp_path / "config.toml").touch()
    with pytest.raises(ValueError, match="holds a run of `tickgp train`"):
        fitted.save(tmp_path)
    with pytest.raises(NotFittedError):
        TickClassifier().save(tmp_path)


def test_damage_is_found(fitted: TickClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path)
    words, tensors = tmp_path / "estimator.json", tmp_path / "model.safetensors"
    whole, content = words.read_text(), tensors.read_bytes()
    for broken in (whole[:50], "[]", json.dumps(json.loads(whole) | {"classes": {}})):
        words.write_text(broken)
        with pytest.raises(ValueError, match=r"estimator.json is damaged .*; use another copy"):
            TickClassifier.load(tmp_path)
    words.write_text(whole)
    tensors.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"not the one that .*estimator.json was saved with; save both again"):
        TickClassifier.load(tmp_path)


def test_hands_over_what_it_is_not_sure_of() -> None:
    images, labels = problem(100)
    model = classifier(validation_share=0.4, max_error=0.1, batch_size=30).fit(images, labels)
    held_out = model.trained_.held_out
    assert (held_out.source, len(held_out.right)) == ("validation", 40)
    prediction, person = model._prediction(images), model.hand_over(images)
    p, distance = np.asarray(prediction.probabilities).max(axis=1), np.asarray(prediction.distance)
    unusual = distance >= held_out.distance.max()
    assert p[~person].min() > p[person & ~unusual].max(initial=0)
    np.testing.assert_array_equal(person, (p < held_out.rule(0.1, 0.95).threshold.threshold) | unusual)
    assert model.hand_over(np.indices(images.shape).sum(axis=0) % 2.0).all()
    np.testing.assert_array_equal(model.hand_over(images, max_error=0.1), person)
    with pytest.raises(ValueError, match="images that are not unusual, even if all are right; there are 39 of 40"):
        model.hand_over(images, max_error=0.01)
    with pytest.raises(ValueError, match="max-error 0"):
        model.hand_over(images, max_error=0.0)


def test_more_images_can_be_unusual() -> None:
    images, labels = problem(100)
    model = classifier(validation_share=0.4, max_error=0.4, max_unusual=0.5, max_steps=5).fit(images, labels)
    distance = model.trained_.held_out.distance
    furthest = np.asarray(model._prediction(images).distance, np.float32) >= np.sort(distance)[20]
    assert model.hand_over(images)[furthest].all()
    assert 20 <= furthest.sum() < 80


def test_a_fit_that_does_not_end_leaves_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, or stopped while it trains; with other names for the classes the old model would be wrong."""
    images, labels = problem()
    model = classifier(max_steps=10).fit(images, labels)
    before, names = model.predict(images), np.array(["stands", "lies"])[labels]
    with pytest.raises(ValueError, match="patch"):
        model.set_params(patch_size=9).fit(np.pad(images, ((0, 0), (0, 2), (0, 2))), names)
    monkeypatch.setattr(estimator_module, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(patch_size=None).fit(images, names)
    np.testing.assert_array_equal(model.predict(images), before)
    assert (model.n_iter_, len(model.elbo_)) == (10, 1)


def test_copies_are_not_held_out() -> None:
    images, labels = problem(20)
    model = classifier(validation_share=0.4, max_steps=2)
    with pytest.warns(UserWarning, match="images that are no copies are set aside"):
        model.fit(np.tile(images, (3, 1, 1)), np.tile(labels, 3))
    assert model.trained_.held_out is not None
    assert len(model.trained_.held_out.right) < 10  # of 24, and of 20 different images at all


def stopped(*_: object, **__: object) -> Iterator[Never]:
    raise KeyboardInterrupt
    yield


def test_too_few_held_out_images_are_said_before_training() -> None:
    with pytest.warns(
        UserWarning, match="10 images that are no copies are set aside, and `hand_over` needs at least 30 to promise"
    ):
        classifier(validation_share=0.25, max_error=0.1, max_steps=1).fit(*problem(40))


def test_without_held_out_images_it_hands_nothing_over(fitted: TickClassifier) -> None:
    with pytest.raises(ValueError, match=r"no images were held out.* TickClassifier\(validation_share=0\.2\)"):
        fitted.hand_over(problem()[0])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model": "cnn"}, "model is 'cnn'; give one of auto, se, conv, tick, deep-se, deep-conv, deep-tick$"),
        ({"model": None}, "model is None; give one of auto"),
        ({"num_inducing": 0}, "num_inducing is 0; give a whole number of at least 1$"),
        ({"num_inducing": True}, "num_inducing is True; give a whole number"),
        ({"max_steps": 10.0}, r"max_steps is 10\.0; give a whole number"),
        ({"stride": 0}, "stride is 0; give a whole number of at least 1, or None"),
        ({"patience": 10}, "patience is 10; give a whole number of at least 100, or None"),
        ({"likelihood": "bernouilli"}, "likelihood is 'bernouilli'; give one of softmax, robustmax, bernoulli"),
        ({"learning_rate": np.nan}, "learning_rate is nan; give a number above 0"),
        ({"max_error": 1}, "max_error is 1; give a number above 0 and below 1"),
        ({"max_unusual": 1.0}, r"max_unusual is 1\.0; give a number from 0 to below 1"),
        ({"validation_share": "0.2"}, r"validation_share is '0\.2'; give a number from 0"),
        ({"verbose": 2}, "verbose is 2; give True or False"),
        ({"image_shape": 7}, "image_shape is 7; give a tuple, or None"),
        ({"random_state": "x"}, "'x' cannot be used to seed"),
        ({"image_shape": (7, 7)}, r"images of 6×5×1, and image_shape is \(7, 7\)"),
        ({"image_shape": (6,)}, r"image_shape \(6,\) was given; it must be \(height, width\)"),
        ({"patch_size": 9}, "patch 9x9 does not fit"),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused_in_fit(params: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        classifier(**params).fit(*problem())


def test_pixels_of_little_range_are_warned_of() -> None:
    images, labels = problem()
    with pytest.warns(UserWarning, match=r"pixels go from .* to 0\.00899\d* only, and models are made for 0 to 1"):
        classifier(max_steps=2).fit(0.01 * images, labels)


def test_what_cannot_be_images_is_refused(fitted: TickClassifier) -> None:
    images, labels = problem()
    rows = images.reshape(N, 30)
    with pytest.raises(
        ValueError, match=r"'tick' looks at patches .* rows of 30 numbers; give image_shape=\(height, w"
    ):
        classifier(model="tick").fit(rows, labels)
    with pytest.raises(ValueError, match="rows of 30 numbers, and images of 5×5×1 have 25"):
        classifier(image_shape=(5, 5)).fit(rows, labels)
    with pytest.raises(ValueError, match=r"pixels go from .* divide them by the largest value"):
        classifier().fit(100 * images, labels)
    for shifted in (images - 0.5, rows - 0.5):
        with pytest.raises(ValueError, match=r"from -0\.[45].* between 0 and 1.*: shift and divide them, \(X - low\)"):
            classifier(image_shape=(6, 5)).fit(shifted, labels)
    with pytest.raises(ValueError, match=r"give floats between 0 and 1.*: divide them by the largest value"):
        fitted.predict(5 * images)
    beyond = images.copy()
    beyond[0, 0, :2] = -1e-4, 1.0001
    assert len(fitted.predict(beyond)) == N
    with pytest.raises(ValueError, match="have type int64; give bytes"):
        classifier().fit(images.astype(np.int64), labels)
    with pytest.raises(ValueError, match=r"X has shape \(1, 60, 6, 5, 1\); give images"):
        classifier().fit(images[None, ..., None], labels)
    with pytest.raises(ValueError, match="images of 5×6×1 were given, and the model was fitted to images of 6×5×1"):
        fitted.predict(images.swapaxes(1, 2))
    with pytest.raises(ValueError, match="X has 29 features, but TickClassifier is expecting 30"):
        fitted.predict(rows[:, 1:])


def test_says_where_it_stands_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    classifier(verbose=True).fit(*problem())
    assert capsys.readouterr().out.startswith("step 100 of 100: ELBO -")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "likelihood"),
    [
        ("conv", "bernoulli"),
        ("se", "robustmax"),
        ("deep-tick", "robustmax"),
        ("deep-conv", "bernoulli"),
        ("deep-se", "softmax"),
    ],
)
def test_every_model_learns_and_comes_back(model: str, likelihood: str, tmp_path: Path) -> None:
    images, labels = problem()
    deep = {"patch_size": 2} if model in ("deep-tick", "deep-conv") else {}
    fitted = classifier(model=model, likelihood=likelihood, num_inducing=40, max_steps=300, **deep).fit(images, labels)
    assert fitted.score(images, labels) > 0.9
    fitted.save(tmp_path)
    back = TickClassifier.load(tmp_path)
    np.testing.assert_array_equal(back.predict_proba(images), fitted.predict_proba(images))


def test_true_and_false_are_pixels_too(fitted: TickClassifier) -> None:
    bright = problem()[0] > 0.5
    np.testing.assert_array_equal(fitted.predict_proba(bright), fitted.predict_proba(bright.astype(float)))


@pytest.mark.parametrize(
    ("top", "said"),
    [
        (1, "bytes from 0 to 1 only, and 255 is white; multiply them by 255, or give floats from 0 to 1, or set st"),
        (25, "bytes from 0 to 25 only, and 255 is white; stretch them, all in the same way, or set standardise=True"),
        (26, None),
    ],
)
def test_bytes_of_little_range_are_warned_of(top: int, said: str | None, recwarn: pytest.WarningsRecorder) -> None:
    images, _ = problem(10)
    warn_of_little_range(np.where(images > 0.5, top, 0).astype(np.uint8))
    texts = [str(warning.message) for warning in recwarn]
    assert len(texts) == (said is not None)
    assert said is None or f"pixels are {said}" in texts[0]


def test_parameters_that_a_model_does_not_use_are_ignored() -> None:
    images = np.zeros((3, 8, 8, 1), np.float32)
    params = TickClassifier(depth=3, patch_size=4, hidden_stride=2).get_params()
    chosen = {name: run_config(params, name, images, 0).model for name in ("se", "tick", "deep-se", "deep-tick")}
    assert [model.depth for model in chosen.values()] == [2, 2, 3, 3]
    assert [model.patch_size for model in chosen.values()] == [None, 4, None, 4]
    assert [model.hidden_stride for model in chosen.values()] == [None, None, None, 2]


@pytest.mark.slow
def test_a_grid_goes_over_models() -> None:
    images, labels = problem(20)
    grid = {"model": ["tick", "se"], "depth": [3], "patch_size": [2]}
    search = GridSearchCV(classifier(max_steps=1), grid, cv=StratifiedKFold(2), error_score="raise", refit=False)
    assert len(search.fit(images, labels).cv_results_["mean_test_score"]) == 2


@pytest.mark.parametrize("kind", [list, lambda images: np.array(images, object)])
def test_images_of_different_sizes_are_refused(kind: Callable[[list[np.ndarray]], object]) -> None:
    images = kind([np.zeros((8, 8)), np.zeros((9, 7)), np.zeros((8, 8))])
    with pytest.raises(
        ValueError, match=r"different sizes, among them 8×8 and 9×7; .* tickgp\.load_dataset\(\"folder:"
    ):
        classifier().fit(images, [0, 1, 0])


CHANNELS_FIRST = """
import warnings
import numpy as np
from tickgp import TickClassifier
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    X = np.random.default_rng(0).random((8, 3, 8, 8))
    TickClassifier("se", num_inducing=2, max_steps=1, validation_share=0.5).fit(X, [0, 1] * 4)  # here
for warning in caught:
    print(warning.filename, warning.lineno, warning.message)
"""


@pytest.mark.slow
def test_channels_that_come_first_are_warned_of_once_where_it_was_called() -> None:
    """In a process of its own: here the checks of types stand between the caller and the library."""
    done = subprocess.run([sys.executable, "-c", CHANNELS_FIRST], capture_output=True, text=True, check=True)
    line = CHANNELS_FIRST.splitlines().index(next(line for line in CHANNELS_FIRST.splitlines() if "# here" in line)) + 1
    too_few, first = done.stdout.splitlines()
    assert too_few.startswith(f"<string> {line} 4 images that are no copies are set aside")
    assert first.startswith(f"<string> {line} images of shape (3, 8, 8) look as if their channels came first")
