"""What stands beside the paper's tables: NLL of hits, seeds, what was learned, the price of a sampler, …"""

from __future__ import annotations

from typing import Any

import numpy as np

from tickgp.experiments import paper_numbers as paper
from tickgp.experiments.cells import (
    DROPOUT_RATES,
    ENSEMBLE_SEEDS,
    PRETRAINED,
    SEEDS,
    CnnConfig,
    cnn,
    growing_cnn,
    shallow,
)
from tickgp.experiments.plan import DATASETS, KERNELS, SAMPLERS, SHALLOW
from tickgp.experiments.tables import (
    FEW,
    METRICS,
    NEGATIVE_ELBO,
    Book,
    Scores,
    beside,
    cell,
    error_and_nll,
    error_and_nll_of,
    few_and_many,
    gp_cells,
    markdown,
    negative_elbo,
    spread,
)
from tickgp.gp.predict import DOUBTS
from tickgp.runs.folder import read_json


def pretrained_table(book: Book) -> str:
    """The model that comes with the library, on its own test images and on Semeion; empty if there is none."""
    if PRETRAINED not in book.cells or book.run(PRETRAINED) is None:
        return ""
    heads = ["", "MNIST", "Semeion"]
    rows = []
    for metric, words in METRICS.items():
        rows += few_and_many([words], [gp_cells(book, PRETRAINED, metric, on=on) for on in ("test", "semeion")])
    return markdown(heads, rows)


def strangers_table(book: Book) -> str:
    """What the model that comes with the library makes of images of other kinds; empty if that was not asked."""
    names = {"MNIST": "mnist", "Semeion": "semeion", "Fashion-MNIST": "fashion-mnist"}
    paths = {title: book.results / "included" / f"{name}.json" for title, name in names.items()}
    found = {title: read_json(path) for title, path in paths.items() if path.is_file()}
    if book.scale != "fast" or not found:  # that of other scales is not the one that comes with the library
        return ""
    heads = ["", "for a person (%)", "… as unlike what it knows (%)", "error of the rest (%)"]
    rows = [[title, *_handed(result["hand_over"]), *_told(result)] for title, result in found.items()]
    return markdown([*heads, *(f"AUROC, {name.replace('_', ' ')}" for name in DOUBTS)], rows)


def _handed(handed: dict[str, Any]) -> list[str]:
    shares = (handed.get(name) for name in ("share", "unusual", "error_of_the_rest"))
    return ["" if share is None else f"{100 * share:.2f}" for share in shares]


def _told(result: dict[str, Any]) -> list[str]:
    """How well each score tells these images from the model's own test images."""
    return [f"{result['auroc'][name]:.3f}" if "auroc" in result else "" for name in DOUBTS]


def about_cnns(book: Book) -> str:
    """Which CNNs the tables show."""
    rates = ", ".join(f"{rate:g}" for rate in DROPOUT_RATES)
    chosen = "; ".join(f"{title}: {_rate(book, dataset)}" for dataset, title in DATASETS.items())
    return (
        f"CNNs: of the dropout rates {rates} the one with the least NLL on the validation images; the paper chose 0.5 "
        f"in this way, from a grid that it does not give. {chosen}. 5 CNNs: the mean probabilities of five that "
        "differ in their seeds, trained with a rate of 0.5, without dropout at test."
    )


def _rate(book: Book, dataset: str) -> str:
    name = book.best_cnn(dataset)
    if name is None:
        return "still to be chosen"
    settings = book.cells[name].settings
    assert isinstance(settings, CnnConfig)
    return f"{settings.dropout:g}"


def catching_up_table(book: Book) -> str:
    """After how many steps our CNNs are first as good as the paper's; empty at a scale that trains none."""
    if cnn("mnist", book.scale).scale != book.scale:
        return ""
    seeds = {name: [cnn(name, book.scale, seed=seed).name for seed in ENSEMBLE_SEEDS] for name in DATASETS}
    kinds = [(f"{title}, table 1", seeds[name], paper.TABLE1[name]["bcnn"]) for name, title in DATASETS.items()]
    for depth, theirs in paper.GROWING_CNN.items():
        name = growing_cnn(depth, book.scale).name
        growing = f"MNIST, {depth} convolution{'s' if depth > 1 else ''}"
        kinds.append((growing, seeds["mnist"] if name in seeds["mnist"] else [name], theirs))
    rows = []
    for title, names, theirs in kinds:
        curves = [result["curve"] for name in names if (result := book.run(name)) is not None]
        cells = [
            beside(_first_steps(curves, metric, float(theirs[metric]) / unit), theirs[metric])
            for metric, unit in {"top1_error": 100, "nll": 1}.items()
        ]
        rows.append([title, str(len(curves)), *cells])
    return markdown(["B-CNN, rate 0.5", "seeds", "steps to the paper's error (%)", "steps to its NLL"], rows)


def _first_steps(curves: list[list[dict[str, Any]]], metric: str, goal: float) -> str:
    """The first step at which each curve is at or below the goal: their median, the least and the greatest."""
    first = [next((line["step"] for line in curve if line[metric] <= goal), np.inf) for curve in curves]
    if not first:
        return ""
    show = lambda step: f"{step:,.0f}" if np.isfinite(step) else "never"
    between = f" <sub>{show(min(first))}–{show(max(first))}</sub>" if len(first) > 1 else ""
    return f"{show(np.median(first))}{between}"


def hits_table(book: Book) -> str:
    """The NLL of the images that table 1's models get right; the paper's follows from three of its numbers."""
    rows = []
    for dataset, title in DATASETS.items():
        ours: dict[str, Scores] = {name: book.scores(f"{dataset}/{name}", FEW) for name in SHALLOW}
        ours["bcnn"] = book.chosen_cnn(dataset, "dropout")
        theirs = {name: {metric: float(n) for metric, n in paper.TABLE1[dataset][name].items()} for name in ours}
        theirs = {name: numbers | {"top1_error": numbers["top1_error"] / 100} for name, numbers in theirs.items()}
        cells = [beside("" if s is None else _of_hits(s["test"]), _of_hits(theirs[name])) for name, s in ours.items()]
        rows.append([title, *cells])
    return markdown(["NLL of hits", *SHALLOW.values(), "B-CNN"], rows)


def _of_hits(metrics: dict[str, Any]) -> str:
    """From NLL = e · (NLL of misses) + (1 − e) · (NLL of hits), with the error e."""
    error = metrics["top1_error"]
    of_misses = error * metrics["nll_misses"] if error else 0.0
    return f"{(metrics['nll'] - of_misses) / (1 - error):.3f}"


def training_table(book: Book) -> str:
    """The NLL of the training images that table 1's runs watch, at their end, beside the paper's NLL of test images."""
    rows = []
    for dataset, title in DATASETS.items():
        runs: dict[str, str | None] = {name: f"{dataset}/{name}" for name in SHALLOW}
        runs["bcnn"] = book.best_cnn(dataset)
        ours = {name: None if run is None else book.run(run) for name, run in runs.items()}
        cells = [
            beside("" if result is None else _nll(result["curve"][-1]["train_nll"]), paper.TABLE1[dataset][name]["nll"])
            for name, result in ours.items()
        ]
        rows.append([title, *cells])
    return markdown(["NLL of training images", *SHALLOW.values(), "B-CNN"], rows)


def seeds_table(book: Book) -> str:
    """MNIST's GPs of table 1 with each seed, and their spread; empty until one of them has two."""
    both = [f"{METRICS[metric]}{where}" for where in ("", ", Semeion") for metric in ("top1_error", "nll")]
    heads = ["trained on MNIST", *both, NEGATIVE_ELBO]
    rows = []
    for model, title in SHALLOW.items():
        runs = [book.run(shallow("mnist", model, book.scale, seed=seed).name) for seed in SEEDS]
        found = [run for run in runs if run is not None]
        if len(found) > 1:
            scores = [error_and_nll(found, on) for on in ("test", "semeion")]
            rows.append([title, *scores[0], *scores[1], spread([-run["elbo"] / 1000 for run in found], 3)])
    return markdown(heads, rows) if rows else ""


def cnn_seeds_table(book: Book) -> str:
    """The dropout CNN of table 1 at the paper's rate with each seed; empty until one of them has two."""
    kinds = [*((title, name, "test") for name, title in DATASETS.items()), ("MNIST, on Semeion", "mnist", "semeion")]
    rows = []
    for title, dataset, on in kinds:
        runs = [book.run(cnn(dataset, book.scale, seed=seed).name) for seed in ENSEMBLE_SEEDS]
        found = [run for run in runs if run is not None]
        if len(found) > 1:
            rows.append([title, *error_and_nll(found, on, "dropout")])
    return markdown(["B-CNN, rate 0.5", METRICS["top1_error"], METRICS["nll"]], rows) if rows else ""


def calibration_table(book: Book) -> str:
    """The expected calibration error of table 1's models."""
    rows = []
    for dataset, title in DATASETS.items():
        gps = [book.scores(f"{dataset}/{name}") for name in SHALLOW]
        others = {"bcnn-0.5": "dropout", "ensemble": "ensemble"}
        cnns = [book.chosen_cnn(dataset, "dropout"), *(book.scores(f"{dataset}/{n}", way) for n, way in others.items())]
        rows.append([title, *(cell(scores, "ece") for scores in [*gps, *cnns])])
    return markdown(["ECE", *SHALLOW.values(), "B-CNN", "B-CNN, rate 0.5", "5 CNNs"], rows)


def sampler_table(book: Book) -> str:
    """Two layers before, and after further training with each sampler: price and gain; empty without such runs."""
    heads = ["two layers, MNIST", "ms per step", METRICS["top1_error"], METRICS["nll"], NEGATIVE_ELBO]
    rows = []
    for kernel, title in KERNELS.items():
        before = f"mnist/deep-{kernel}-2"
        rows.append([f"{title}, before", "", *_gain(book, before)])
        for how in SAMPLERS:
            name = f"{before}-{how}"
            rows.append([f"{title}, then {how}", _price(book, name), *_gain(book, name)])
    names = [f"mnist/deep-{kernel}-2-{how}" for kernel in KERNELS for how in SAMPLERS]
    return markdown(heads, rows) if any(book.run(name) for name in names) else ""


def _price(book: Book, name: str) -> str:
    result = book.run(name)
    price = float("nan") if result is None else step_ms(result)
    return "" if np.isnan(price) else f"{price:.3g}"


def _gain(book: Book, name: str) -> list[str]:
    return [*error_and_nll_of(book, name), negative_elbo(book, name)]


def step_ms(result: dict[str, Any]) -> float:
    """Milliseconds of a step: the median over the intervals between reports, without the first, which may compile."""
    steps, seconds = (np.array([line[name] for line in result["curve"]], float) for name in ("step", "seconds"))
    each = np.diff(seconds)[1:] / np.diff(steps)[1:]
    return float(1000 * np.median(each)) if len(each) else float("nan")


def _nll(value: float | None) -> str:
    """Empty where it was not finite."""
    return "" if value is None else f"{value:.3f}"
