"""The paper's figures from finished runs: each function gives pictures by their names, or none if runs are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np

from tickgp.data.dataset import Split
from tickgp.experiments.cells import Cell, Kernel, Scale, cnn, shallow, two_against_seven
from tickgp.experiments.figures.dropout import Curve, dropout_figure
from tickgp.experiments.figures.full_covariance import SwitchedRun, full_covariance_figure
from tickgp.experiments.figures.invariance import invariance_figure, matching_patches
from tickgp.experiments.figures.misclassified import Misclassified, all_misclassified, few_misclassified
from tickgp.experiments.figures.patch_response import patch_response_figure
from tickgp.experiments.figures.traces import Trace, traces_figure
from tickgp.experiments.patch_response import patch_response_deviations
from tickgp.experiments.plan import KERNELS, SAMPLERS
from tickgp.experiments.predictions import read_predictions
from tickgp.experiments.reproduce import Places
from tickgp.experiments.run_cnn import load_cnn_data, other_data
from tickgp.experiments.tables import Book
from tickgp.runs.folder import load_data
from tickgp.runs.model_file import load_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pictures = dict[str, "Figure"]
TITLES: dict[Kernel, Literal["Conv", "TICK"]] = {"conv": "Conv", "tick": "TICK"}


def draw(experiments: list[str], scale: Scale, places: Places) -> list[Path]:
    """The figures of these experiments, as far as their runs are there, as PNG files beside the results."""
    written = []
    for name in experiments:
        for picture, figure in _DRAWN.get(name, lambda scale, places: {})(scale, places).items():
            path = places.results / scale / "figures" / f"{picture}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=130, bbox_inches="tight", metadata={"Software": None})
            written.append(path)
    return written


def dropout(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    names = {"TICK-GP": "mnist/tick", "B-CNN, p = 0.25": "mnist/bcnn-0.25", "B-CNN, p = 0.75": "mnist/bcnn-0.75"}
    found = {title: result for title, name in names.items() if (result := book.run(name)) is not None}
    return {"dropout": dropout_figure({title: _curve(result) for title, result in found.items()})} if found else {}


def traces(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    drawn = []
    for kernel, title in TITLES.items():
        results = {depth: book.run(f"mnist/deep-{kernel}-{depth}") for depth in (1, 2, 3)}
        for depth, result in results.items():
            if result is None:
                continue
            before = results[2]["seconds"] if depth == 3 and results[2] else 0.0
            drawn.append(Trace(title, depth, before + _column(result, "seconds"), _column(result, "top1_error")))  # type: ignore[arg-type]
    return {"traces": traces_figure(drawn)} if drawn else {}


def full_covariance(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    runs = []
    for kernel, title in TITLES.items():
        before = book.run(f"mnist/deep-{kernel}-2")
        after = {how: book.run(f"mnist/deep-{kernel}-2-{how}") for how in SAMPLERS}
        found = {how: result for how, result in after.items() if result is not None}
        if before is None or not found:
            continue
        last = before["steps"]
        runs.append(
            SwitchedRun(
                title,
                _column(before, "step"),
                _column(before, "top1_error"),
                _column(before, "nll"),
                after={
                    how: (last + _column(result, "step"), _column(result, "top1_error"), _column(result, "nll"))
                    for how, result in found.items()
                },
                step_ms={how: _step_ms(result) for how, result in found.items()},
            )
        )
    return {"full-covariance": full_covariance_figure(runs)} if runs else {}


def misclassified(scale: Scale, places: Places) -> Pictures:
    best = Book(places.results, scale).best_cnn("mnist")
    if best is None:
        return {}
    cell = next(c for c in (cnn("mnist", scale, dropout=rate) for rate in (0.25, 0.5, 0.75)) if c.name == best)
    data = load_cnn_data(cell, places.data_dir)
    splits = {"test": data.test} | other_data(cell, data.train.images.shape[1:], places.data_dir)
    pictures: Pictures = {}
    for name, split in splits.items():
        models = _models(cell, name, split, data.class_names, scale, places)
        title = "mnist" if name == "test" else name
        if len(models) == 3:
            pictures[f"misclassified-{title}"] = few_misclassified(models)
            pictures |= {f"misclassified-{title}-all-{model.name}": all_misclassified(model) for model in models}
    return pictures


def _models(
    best: Cell, name: str, split: Split, class_names: tuple[str, ...], scale: Scale, places: Places
) -> list[Misclassified]:
    """The CNN as it is, Conv and TICK; those whose predictions are there."""
    runs = {
        "CNN": (best.name, f"{name}/deterministic"),
        "Conv-GP": (shallow("mnist", "conv", scale).name, f"{name}/100"),
        "TICK-GP": (shallow("mnist", "tick", scale).name, f"{name}/100"),
    }
    found = {title: (read_predictions(places.folder(scale, run)), kind) for title, (run, kind) in runs.items()}
    return [
        Misclassified(title, split.images, split.labels, predictions[kind], class_names)
        for title, (predictions, kind) in found.items()
        if predictions is not None
    ]


def patch_response(scale: Scale, places: Places) -> Pictures:
    folders = {kernel: places.folder(scale, two_against_seven(kernel, scale).name) for kernel in KERNELS}
    predictions = {kernel: read_predictions(folder) for kernel, folder in folders.items()}
    if any(found is None for found in predictions.values()):
        return {}
    models = {kernel: load_model(folder) for kernel, folder in folders.items()}
    test = load_data(models["tick"].config).test
    images = test.images[_won_by_tick({k: p["test/100"] for k, p in predictions.items() if p}, test.labels)]
    samples = {
        f"{title}-GP": patch_response_deviations(models[kernel].model, images, key=jax.random.key(0))
        for kernel, title in TITLES.items()
    }
    two, seven = (test.images[test.labels == label][0, ..., 0] / 1.0 for label in (0, 1))
    corners = matching_patches(two, seven, 5)
    boxes = tuple((*corner, 5) for corner in corners)
    return {
        "patch-response": patch_response_figure(images[..., 0] / 1.0, samples),
        "invariance": invariance_figure(two, seven, boxes),  # type: ignore[arg-type]
    }


def _won_by_tick(predictions: dict[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    """Two images that Conv gets wrong and TICK right; if there are fewer, those where TICK gains most."""
    own = {kernel: p[np.arange(len(labels)), labels] for kernel, p in predictions.items()}
    return np.argsort(-(own["tick"] - own["conv"]), kind="stable")[:2]


def _curve(result: dict[str, Any]) -> Curve:
    settings = result["settings"]
    batch = settings["training"]["batch_size"] if "training" in settings else settings["batch_size"]
    epochs = _column(result, "step") * batch / result["train_images"]
    return Curve(epochs, _column(result, "train_nll"), _column(result, "nll"))


def _column(result: dict[str, Any], name: str) -> np.ndarray:
    return np.array([np.nan if line[name] is None else line[name] for line in result["curve"]], float)


def _step_ms(result: dict[str, Any]) -> float:
    """Milliseconds of a step, from the first report on: what was before has compiled."""
    steps, seconds = _column(result, "step"), _column(result, "seconds")
    return float(1000 * (seconds[-1] - seconds[0]) / (steps[-1] - steps[0])) if len(steps) > 1 else float("nan")


_DRAWN: dict[str, Callable[[Scale, Places], Pictures]] = {
    "patch-response": patch_response,
    "misclassified": misclassified,
    "dropout": dropout,
    "traces": traces,
    "full-covariance": full_covariance,
}
