"""A trained model on other data: its metrics there, and whether it notices that the data are of another kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tickgp.data.dataset import Dataset, load_dataset
from tickgp.errors import UsageError
from tickgp.evaluation.handover import Rule, share_and_error
from tickgp.evaluation.metrics import auroc, evaluate, fpr95, intervals
from tickgp.gp.predict import DOUBTS, Prediction
from tickgp.runs.folder import own_data, read_json, recorded_data, trained_on, write_json
from tickgp.runs.model_file import ARRAYS, TrainedModel, load_model
from tickgp.runs.places import file_name, whole_name


@dataclass(frozen=True)
class Evaluation:
    """The content of evaluations/<dataset>.json, and what a person should know of it."""

    metrics: dict[str, Any]
    notes: tuple[str, ...]


def evaluate_run(
    folder: Path,
    dataset: str | None = None,
    *,
    data_dir: Path | None = None,
    skip_bad_images: bool = False,
    max_error: float | None = None,
    level: float | None = None,
    max_unusual: float | None = None,
) -> Evaluation:
    """Metrics of a finished run on a dataset, by default its own; those on other data are also left in its folder.

    On the data it was trained on: the test images. On other data: all images, or the test images where the source has
    such; classes are matched by their names. Where the model knows none of the classes there are no `test` metrics.

    `hand_over` is how many images of known classes go to a person with the threshold of `max_error`, `level` and
    `max_unusual`, by default the run's, and how many of the others are labelled wrongly; or the `reason` why there is
    no threshold. With both it says how many are unusual. `unknown` says the same of images of unknown classes, of which
    whatever the model decides is wrong. On other data `auroc` and `fpr95` say how well entropy, mutual information,
    variance and distance tell these images, or those of unknown classes if there are such, from the run's own test
    images; they are left out where these are not there any more.
    """
    trained = load_model(folder)
    before = recorded_data(folder) or trained.config.data
    dataset = dataset or before.dataset
    if dataset == ARRAYS:
        raise UsageError(f"the model in {folder} was fitted on arrays; name a dataset with --dataset")
    if trained.takes_rows:
        raise UsageError(
            f"the model in {folder} was fitted to rows of {trained.image_shape[2]} features, which its TickClassifier "
            "scales; in Python use TickClassifier.load, and then score or predict_proba"
        )
    rule = trained.rule(max_error, level, max_unusual)
    own, is_named = own_data(folder, trained.config, dataset, data_dir)
    if own is not None and is_named:
        if skip_bad_images:
            raise UsageError(
                "--skip-bad-images was given for the run's own data, which are read as they were for training; leave "
                "it out"
            )
        scores = _scores(trained, trained.predict(own.test.images), own.test.labels, rule)
        return Evaluation({**_header(folder, trained, own), **scores}, (*own.notes, *_chosen_on(own, own, rule)))
    other = load_dataset(
        dataset,
        data_dir=(data_dir, before.data_dir),
        fit=trained.config.data.fit,
        skip_bad_images=skip_bad_images,
        test_share=1.0,
        seed=trained.config.seed,
        like=trained.image_shape,
    )
    return _on_other(folder, trained, other, own, rule)


def _on_other(folder: Path, trained: TrainedModel, data: Dataset, own: Dataset | None, rule: Rule) -> Evaluation:
    """On data that are not the run's own, which these are told from if they are there."""
    other, seen = _without_training(data, _digests(folder, own))
    known, notes = _known(other, trained.class_names)
    outside = trained.predict(other.test.images)
    metrics = {**_header(folder, trained, other), **_scores(trained, outside, known, rule)}
    if own is not None:
        strange = known < 0 if (known < 0).any() else known >= 0
        metrics |= _strangeness(trained.predict(own.test.images), outside, strange)
        notes += _chosen_on(other, own, rule)
    else:
        notes += (
            "how well it tells these from its own images is left out: those are not here, or have changed; so it is "
            "not known either whether the threshold was chosen on some of these",
        )
    if folder.is_dir():  # not a model that comes with the library
        try:
            write_json(folder / "evaluations" / f"{file_name(other.name)}.json", metrics)
        except OSError as error:
            notes += (f"these metrics are not kept with the run: {error}",)
    return Evaluation(metrics, (*other.notes, *seen, *notes))


def _digests(folder: Path, own: Dataset | None) -> np.ndarray | None:
    """Of the images that the model was trained on, if it is known."""
    kept = trained_on(folder)
    return own.train.digests if kept is None and own is not None else kept


def _without_training(other: Dataset, seen: np.ndarray | None) -> tuple[Dataset, tuple[str, ...]]:
    """`other` without the images that the run was trained on, and a sentence if there were such, or may be."""
    if seen is None:
        return other, (
            "the images that the model was trained on are not known: any of them among these are counted too",
        )
    new = ~np.isin(other.test.digests, seen)
    if new.all():
        return other, ()
    if not new.any():
        raise UsageError(f"the run was trained on every image of {other.name}; evaluate it on others")
    kept = replace(other, test=other.test.take(new))
    return kept, (f"{(~new).sum()} images that the run was trained on are left out",)


def _chosen_on(data: Dataset, own: Dataset, rule: Rule) -> tuple[str, ...]:
    """A sentence if the threshold was chosen on images that are counted now."""
    number = int(data.test.is_in(own.held_out.take(own.is_counted())).sum())
    if rule.threshold is None or not number:
        return ()
    which = "these very images" if number == len(data.test) else f"{number} of these images"
    return (f"the threshold was chosen on {which}, so that of new ones more may be labelled wrongly",)


def _header(folder: Path, trained: TrainedModel, data: Dataset) -> dict[str, Any]:
    """Which model, after how many steps where a run says so, and which data."""
    path, config = folder / "metrics.json", trained.config
    steps = read_json(path)["steps"] if path.is_file() else None
    names = {"trained_on": config.data.dataset, "dataset": whole_name(data.name)}
    return {"model": config.model.name, "steps": steps, **names}


def _known(data: Dataset, class_names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels in the model's numbering, −1 for classes that it does not know, and a sentence if there are such."""
    strangers = [name for name in data.class_names if name not in class_names]
    numbers = np.array([-1 if name in strangers else class_names.index(name) for name in data.class_names])
    labels = numbers[data.test.labels]
    if not strangers:
        return labels, ()
    shown = ", ".join(strangers[:5]) + (", …" if len(strangers) > 5 else "")
    left = int((labels >= 0).sum())
    which = f"error and NLL are of the {left} other images" if left else "no error can be measured"
    return labels, (f"the model does not know the {'class' if len(strangers) == 1 else 'classes'} {shown}, so {which}",)


def _scores(trained: TrainedModel, prediction: Prediction, labels: np.ndarray, rule: Rule) -> dict[str, Any]:
    """Metrics of the images whose label is known, null where there are none, and what is handed over."""
    known, seed = labels >= 0, trained.config.seed
    p = np.asarray(prediction.probabilities, float)
    of = {"hand_over": known, "unknown": ~known}
    handed = {name: _handed_over(prediction, labels, rule, which) for name, which in of.items() if which.any()}
    if not known.any():
        return {"test": None, "interval": None, **handed}
    y = labels[known]
    return {"test": evaluate(p[known], y), "interval": intervals(p[known], y, seed=seed), **handed}


def _handed_over(prediction: Prediction, labels: np.ndarray, rule: Rule, which: np.ndarray) -> dict[str, Any]:
    """How many of `which` images go to a person, or why all do, and how many are unusual, if the model knows that."""
    p, d = np.asarray(prediction.probabilities, float)[which], prediction.distance
    distance = None if d is None else np.asarray(d)[which]
    unusual = {} if distance is None else {"unusual": float(rule.unusual(distance).mean())}
    if rule.threshold is None:
        return {"n": len(p), "reason": rule.reason, **unusual}
    share, error = share_and_error(rule.hand_over(p.max(axis=1), distance), p.argmax(axis=1) == labels[which])
    rest = {"error_of_the_rest": error} if (labels[which] >= 0).all() else {}
    return {"n": len(p), "share": share, **rest, "max_error": rule.threshold.max_error, **unusual}


def _strangeness(inside: Prediction, outside: Prediction, strange: np.ndarray) -> dict[str, Any]:
    """How well `strange` ones of the images outside are told from those inside."""
    pairs = {name: (getattr(inside, name), getattr(outside, name)) for name in DOUBTS}
    scores = {name: (a, np.asarray(b)[strange]) for name, (a, b) in pairs.items() if a is not None}
    return {
        "auroc": {name: auroc(*pair) for name, pair in scores.items()},
        "fpr95": {name: fpr95(*pair) for name, pair in scores.items()},
    }
