"""The paper's figures from finished runs: each function gives pictures by their names, or none if runs are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jaxtyping import Float, Int

from tickgp.data.contents import Split
from tickgp.evaluation.metrics import Outcomes
from tickgp.experiments.cells import Kernel, Scale, two_against_seven
from tickgp.experiments.drawn import figures_folder, note_drawn
from tickgp.experiments.figures.dropout import Curve, dropout_figure
from tickgp.experiments.figures.full_covariance import SwitchedRun, full_covariance_figure
from tickgp.experiments.figures.insensitivity import Fitted, Sweep, insensitivity_figure
from tickgp.experiments.figures.invariance import invariance_figure, matching_patches
from tickgp.experiments.figures.misclassified import Misclassified, all_misclassified, few_misclassified
from tickgp.experiments.figures.patch_response import patch_response_figure
from tickgp.experiments.figures.traces import Trace, traces_figure
from tickgp.experiments.location_tables import is_learned
from tickgp.experiments.patch_response import patch_response_deviations
from tickgp.experiments.plan import KERNELS, SAMPLERS, SWEPT, swept
from tickgp.experiments.predictions import other_data, read_predictions
from tickgp.experiments.reproduce import Places
from tickgp.experiments.run_cnn import load_cnn_data
from tickgp.experiments.side_tables import step_ms
from tickgp.experiments.tables import DATASETS, MANY, Book
from tickgp.runs.folder import load_data
from tickgp.runs.model_file import load_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pictures = dict[str, "Figure"]
TITLES: dict[Kernel, Literal["Conv", "TICK"]] = {"conv": "Conv", "tick": "TICK"}


def draw(experiments: list[str], scale: Scale, places: Places) -> list[Path]:
    """The figures of these experiments, as far as their runs are there, as PNG files beside the results."""
    book = Book(places.results, scale)
    folder, written = figures_folder(book), list[Path]()
    for name in experiments:
        pictures = _DRAWN.get(name, lambda scale, places: {})(scale, places)
        for picture, figure in pictures.items():
            path = folder / f"{picture}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=130, bbox_inches="tight", metadata={"Software": None})
            written.append(path)
        _remove_other_pages(folder, pictures)
        if pictures:
            note_drawn(book, [picture for picture in pictures if "-all-" not in picture])
    return written


def _remove_other_pages(folder: Path, pictures: Pictures) -> None:
    """Pages of an earlier drawing of a set of images, of which there are now fewer pages."""
    sets = {picture.rpartition("-all-")[0] for picture in pictures if "-all-" in picture}
    for path in [path for name in sets for path in folder.glob(f"{name}-all-*.png")]:
        if path.stem not in pictures:
            path.unlink()


def dropout(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    names = {"TICK-GP": "mnist/tick", "B-CNN, p = 0.25": "mnist/bcnn-0.25", "B-CNN, p = 0.75": "mnist/bcnn-0.75"}
    found = {title: result for title, name in names.items() if (result := book.run(name)) is not None}
    curves = {title: _curve(result) for title, result in found.items()}
    return {"dropout": dropout_figure(curves, _watched(found.values()))} if found else {}


def traces(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    results = {kernel: {depth: book.run(f"mnist/deep-{kernel}-{depth}") for depth in (1, 2, 3)} for kernel in TITLES}
    drawn = [trace for kernel, title in TITLES.items() for trace in _traces(title, results[kernel])]
    found = [result for some in results.values() for result in some.values() if result is not None]
    return {"traces": traces_figure(drawn, _watched(found))} if drawn else {}


def _traces(title: Literal["Conv", "TICK"], results: dict[int, dict[str, Any] | None]) -> list[Trace]:
    """By depth. Three layers start where two end; without those it is not known when."""
    drawn = []
    for depth, result in results.items():
        first = results[2] if depth == 3 else None
        if result is None or (depth == 3 and first is None):
            continue
        before = 0.0 if first is None else _column(first, "seconds")[-1]
        drawn.append(Trace(title, depth, before + _column(result, "seconds"), _column(result, "top1_error")))  # type: ignore[arg-type]
    return drawn


def insensitivity(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    sweeps = [sweep for name in SWEPT if (sweep := _sweep(book, name)) is not None]
    return {"insensitivity": insensitivity_figure(sweeps)} if sweeps else {}


def _sweep(book: Book, dataset: str) -> Sweep | None:
    """The runs on one dataset; None if not all are there."""
    fixed, learned, conv = list[Fitted](), dict[str, list[Fitted]](), list[Fitted]()
    for title, cells in swept(dataset, book.scale).items():
        results = [result for cell in cells if (result := book.run(cell.name)) is not None]
        if len(results) < len(cells):
            return None
        if results[0]["learned"] is None:
            conv += map(_fitted, results)
        elif is_learned(results[0]):
            learned[title] = [*map(_fitted, results)]
        else:
            fixed += map(_fitted, results)
    return Sweep(DATASETS[dataset], fixed, learned, conv) if conv else None


def _fitted(result: dict[str, Any]) -> Fitted:
    lengthscale = np.inf if result["learned"] is None else result["learned"]["lengthscale"]
    nll = result["metrics"]["test"][MANY]["test"]["nll"]
    return Fitted(lengthscale, -result["elbo"] / result["train_images"], nll)


def full_covariance(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    runs = []
    for kernel, title in TITLES.items():
        before = book.run(f"mnist/deep-{kernel}-2")
        after = {how: book.run(f"mnist/deep-{kernel}-2-{how}") for how in SAMPLERS}
        found = {how: result for how, result in after.items() if result is not None}
        if before is None or not found:
            continue
        columns = lambda result: (_column(result, "step"), _column(result, "top1_error"), _column(result, "nll"))
        runs.append(
            SwitchedRun(
                title,
                before=(before["curve"][-1]["top1_error"], before["curve"][-1]["nll"]),
                after={how: columns(result) for how, result in found.items()},
                step_ms={how: step_ms(result) for how, result in found.items()},
                num_images=before["settings"]["training"]["watched_images"],
            )
        )
    return {"full-covariance": full_covariance_figure(runs)} if runs else {}


def misclassified(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    best = book.best_cnn("mnist")
    if best is None or not _are_here(book, places, [best, *(f"mnist/{kernel}" for kernel in KERNELS)]):
        return {}
    cell = book.cells[best]
    data = load_cnn_data(cell, places.data_dir)
    splits = {"test": data.test} | other_data(cell, data.train.images.shape[1:], places.data_dir)
    pictures: Pictures = {}
    for name, split in splits.items():
        models = _models(book, best, name, split, data.class_names, places)
        title = "mnist" if name == "test" else name
        if len(models) == 3:
            pictures[f"misclassified-{title}"] = few_misclassified(models)
            pictures |= {
                f"misclassified-{title}-all-{model.name}-{number}": page
                for model in models
                for number, page in enumerate(all_misclassified(model), start=1)
            }
    return pictures


def _models(
    book: Book, best: str, on: str, split: Split, class_names: tuple[str, ...], places: Places
) -> list[Misclassified]:
    """The CNN as it is, Conv and TICK; those whose predictions are there."""
    runs = {"CNN": (best, "deterministic"), "Conv-GP": ("mnist/conv", "100"), "TICK-GP": ("mnist/tick", "100")}
    found = {title: predictions(book, places, run, on, way, split.labels) for title, (run, way) in runs.items()}
    return [
        Misclassified(title, split.images, split.labels, p, class_names) for title, p in found.items() if p is not None
    ]


def _are_here(book: Book, places: Places, names: Iterable[str]) -> bool:
    """Whether these runs have results and have left predictions, which a `git clone` lacks."""
    return all(book.run(name) and read_predictions(places.folder(book.scale, name)) for name in names)


def predictions(book: Book, places: Places, name: str, on: str, way: str, labels: np.ndarray) -> np.ndarray | None:
    """The probabilities that a run left in its folder; None if they are not those that its result was made from."""
    result = book.run(name)
    found = None if result is None else read_predictions(places.folder(book.scale, name))
    if result is None or found is None:
        return None
    p = found[f"{on}/{way}"]
    then = result["metrics"][on][way]["test"]["nll"]
    same = len(p) == len(labels) and np.isclose(Outcomes.of(p, labels).nll(), then, rtol=1e-4)
    return p if same else None


def patch_response(scale: Scale, places: Places) -> Pictures:
    book = Book(places.results, scale)
    names = {kernel: two_against_seven(kernel, scale).name for kernel in KERNELS}
    if not _are_here(book, places, names.values()):
        return {}
    models = {kernel: load_model(places.folder(scale, name)) for kernel, name in names.items()}
    test = load_data(models["tick"].config, places.data_dir).test
    p = {kernel: predictions(book, places, name, "test", "100", test.labels) for kernel, name in names.items()}
    if p["conv"] is None or p["tick"] is None:
        return {}
    chosen, said = won_by_tick(p["conv"], p["tick"], test.labels)
    samples = {
        f"{title}-GP": patch_response_deviations(models[kernel].model, test.images[chosen], key=jax.random.key(0))
        for kernel, title in TITLES.items()
    }
    notes = {"Conv-GP": "the same response everywhere", "TICK-GP": _learned(book.run(names["tick"]))}
    spread = "standard deviation over all samples and places"
    notes = {name: f"{spread} {samples[name].std():.1f}\n{note}" for name, note in notes.items()}
    two, seven = (test.images[test.labels == label][0, ..., 0] / 255.0 for label in (0, 1))
    boxes = tuple((*corner, 5) for corner in matching_patches(two, seven, 5))
    return {
        "patch-response": patch_response_figure(test.images[chosen, ..., 0] / 255.0, samples, notes, said),
        "invariance": invariance_figure(two, seven, boxes),  # type: ignore[arg-type]
    }


def won_by_tick(
    conv: Float[np.ndarray, "N K"], tick: Float[np.ndarray, "N K"], labels: Int[np.ndarray, " N"]
) -> tuple[Int[np.ndarray, " 2"], str]:
    """Two images that Conv gets wrong and TICK right, those where TICK gains most, and a line that says so.

    If fewer were won, others where it gains most fill up.
    """
    before, after = (p[np.arange(len(labels)), labels] for p in (conv, tick))
    won = (before < 0.5) & (after > 0.5)
    chosen = np.lexsort((before - after, ~won))[:2]
    if won.sum() >= 2:
        return chosen, f"2 of the {won.sum()} images that Conv gets wrong and TICK right, those where TICK gains most"
    number = "No image is" if not won.any() else "Only the first image is"
    return chosen, f"{number} one that Conv gets wrong and TICK right; the others are those where TICK gains most"


def _learned(result: dict[str, Any] | None) -> str:
    learned = result and result["learned"]
    if not learned:
        return ""
    lengthscale, crossings = learned["lengthscale"], learned["zero_crossings"]
    return f"location lengthscale {lengthscale:.1f} pixels, {crossings:.1f} zero crossings between outer patches"


def _watched(results: Iterable[dict[str, Any]]) -> str:
    """How many test images the curves of these runs were measured on."""
    settings = [result["settings"] for result in results]
    numbers = {some.get("training", some)["watched_images"] for some in settings}
    return " or ".join(f"{number:,}" for number in sorted(numbers))


def _curve(result: dict[str, Any]) -> Curve:
    settings = result["settings"]
    batch = settings["training"]["batch_size"] if "training" in settings else settings["batch_size"]
    epochs = _column(result, "step") * batch / result["train_images"]
    return Curve(epochs, _column(result, "train_nll"), _column(result, "nll"))


def _column(result: dict[str, Any], name: str) -> np.ndarray:
    return np.array([np.nan if line[name] is None else line[name] for line in result["curve"]], float)


_DRAWN: dict[str, Callable[[Scale, Places], Pictures]] = {
    "patch-response": patch_response,
    "misclassified": misclassified,
    "dropout": dropout,
    "traces": traces,
    "full-covariance": full_covariance,
    "insensitivity": insensitivity,
}
