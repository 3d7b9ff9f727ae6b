"""What stands beside the paper's tables: NLL of hits, seeds, what was learned, the price of a sampler, …"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tickgp.experiments import paper_numbers as paper
from tickgp.experiments.cells import (
    ENSEMBLE_SEEDS,
    MANY,
    SEEDS,
    TRAINING_IMAGES,
    WEIGHTS,
    cnn,
    few_images,
    growing_cnn,
    shallow,
    small_deep,
)
from tickgp.experiments.plan import (
    DATASETS,
    DEEP_DATASETS,
    FEW_IMAGES,
    KERNELS,
    SAMPLERS,
    SHALLOW,
    with_channels,
    with_samplers,
    with_weights,
)
from tickgp.experiments.tables import (
    METRICS,
    NEGATIVE_ELBO,
    Book,
    Scores,
    beside,
    error_and_nll,
    error_and_nll_of,
    markdown,
    negative_elbo,
    paragraphs,
    section,
    spread,
)
from tickgp.training.config import ModelConfig

_CATCHING_UP = """The paper does not say how long its CNNs were trained; ours for {max_steps:,} steps of {batch_size}
images. The step at which the error and the NLL of {watched_images:,} test images, with dropout at test, are first no
higher than the paper's, in brackets: the median over seeds, the least and the greatest."""
_HITS = """NLL = e · NLL of misses + (1 − e) · NLL of hits, with the error e: what of table 1's NLL comes from images
that a model classifies correctly. In brackets what follows from the paper's numbers. Predictions of GPs: S = 100."""
_TRAINING = """Of the training images on which a run measures itself, 2,000 at most, at its end; of GPs that are judged
on {images:,} training images, where this is said, of these. GPs: S = 100. In brackets the paper's NLL, by its caption
of the test images: [docs/claims.md](docs/claims.md#the-nll-of-table-1) says why they stand side by side."""
_SEEDED = """Mean ± standard deviation over seeds, each of all randomness of a run, and each number. The first
seed is that of tables 1 and 3. Predictions: S = 100."""
_CNNS_SEEDED = """Table 1's CNN at the paper's dropout rate, with dropout at test: mean ± standard deviation over seeds,
and each number. The first seed is that of tables 1 and 3."""
_CALIBRATED = """Expected calibration error: how far confidence and accuracy are apart, averaged over 15 bins of
confidence. In small print where 95 % of it would lie by chance alone if the model were right just as often as it says;
files of earlier runs do not have that. Predictions of GPs: S = 100. Not in the paper."""
_CHANNELS = """TICK-GPs of two layers by the defaults of `tickgp train`, but for the number of channels between them and
without a prior on patch weights, for {train_images:,} training images and tested on {test_images:,}. One seed, S = 100.
Not in the paper, which does not say how many channels it has; the tables above have 10."""
_FROM_THE_START = """The models of the table before with {channels} channels, trained from the first step on with each
way to draw the hidden layer: every patch on its own (marginal), all jointly (full), jointly through u (correlated);
predictions are made with the same. ELBOs of different ways are not to be compared: with marginal samples it is a bound
of no model. Where there are several seeds: mean ± standard deviation over them, and each number. S = 100. Not in the
paper."""
_WEIGHTS = """TICK-GPs by the defaults of `tickgp train`, but for the weights of patches, for {images} training images.
Learned weights raise the ELBO, which is taken at their values and does not pay for them; a prior, normal with mean 1
and deviation 1, is to keep them from fitting so few images too closely. Mean ± standard deviation over seeds, each of
all randomness of a run, and each number. Predictions: S = 100. Not in the paper."""
_SAMPLED = """The model of two layers before, and after further training with each way to draw its hidden layer: every
patch on its own (marginal), all jointly (full), jointly through u (correlated). ELBOs of different ways are not to be
compared: with marginal samples it is a bound of no model. Predictions: S = 100."""


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
    heads = ["B-CNN, rate 0.5", "seeds", "steps to the paper's error (%)", "steps to its NLL"]
    about = _CATCHING_UP.format(**asdict(cnn("mnist", book.scale).settings))
    return section("How long CNNs are trained", markdown(heads, rows), about)


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
        ours: dict[str, Scores] = {name: book.scores(f"{dataset}/{name}") for name in SHALLOW}
        ours["bcnn"] = book.chosen_cnn(dataset, "dropout")
        theirs = {name: {metric: float(n) for metric, n in paper.TABLE1[dataset][name].items()} for name in ours}
        theirs = {name: numbers | {"top1_error": numbers["top1_error"] / 100} for name, numbers in theirs.items()}
        cells = [beside("" if s is None else _of_hits(s["test"]), _of_hits(theirs[name])) for name, s in ours.items()]
        rows.append([title, *cells])
    table = markdown(["NLL of hits", *SHALLOW.values(), "B-CNN"], rows)
    return section("Table 1, correctly classified images", table, _HITS)


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
            beside("" if result is None else _of_training(result), paper.TABLE1[dataset][name]["nll"])
            for name, result in ours.items()
        ]
        rows.append([title, *cells])
    table = markdown(["NLL of training images", *SHALLOW.values(), "B-CNN"], rows)
    return section("Table 1, training images", table, _TRAINING.format(images=TRAINING_IMAGES))


def _of_training(result: dict[str, Any]) -> str:
    if "train" not in result["metrics"]:
        return _nll(result["curve"][-1]["train_nll"])
    judged = result["metrics"]["train"][MANY]["test"]
    return f"{_nll(judged['nll'])} <sub>of {judged['n']:,}</sub>"


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
    return section("MNIST with other seeds", markdown(heads, rows), _SEEDED)


def cnn_seeds_table(book: Book) -> str:
    """The dropout CNN of table 1 at the paper's rate with each seed; empty until one of them has two."""
    kinds = [*((title, name, "test") for name, title in DATASETS.items()), ("MNIST, on Semeion", "mnist", "semeion")]
    rows = []
    for title, dataset, on in kinds:
        runs = [book.run(cnn(dataset, book.scale, seed=seed).name) for seed in ENSEMBLE_SEEDS]
        found = [run for run in runs if run is not None]
        if len(found) > 1:
            rows.append([title, *error_and_nll(found, on, "dropout")])
    table = markdown(["B-CNN, rate 0.5", METRICS["top1_error"], METRICS["nll"]], rows)
    return section("CNNs with other seeds", table, _CNNS_SEEDED)


def calibration_table(book: Book) -> str:
    """The expected calibration error of table 1's models."""
    rows = []
    for dataset, title in DATASETS.items():
        gps = [book.scores(f"{dataset}/{name}") for name in SHALLOW]
        others = {"bcnn-0.5": "dropout", "ensemble": "ensemble"}
        cnns = [book.chosen_cnn(dataset, "dropout"), *(book.scores(f"{dataset}/{n}", way) for n, way in others.items())]
        rows.append([title, *(_ece(scores) for scores in [*gps, *cnns])])
    heads = ["ECE", *SHALLOW.values(), "B-CNN", "B-CNN, rate 0.5", "5 CNNs"]
    return section("Table 1, calibration", markdown(heads, rows), _CALIBRATED)


def _ece(scores: Scores) -> str:
    """With where it would lie by chance alone, where that is known."""
    if scores is None:
        return ""
    by_chance = "–".join(f"{bound:.3f}" for bound in scores["interval"].get("ece_if_calibrated", ()))
    return f"{scores['test']['ece']:.3f}" + (f" <sub>{by_chance}</sub>" if by_chance else "")


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
    table = markdown(heads, rows) if any(book.run(name) for name in names) else ""
    return section("The price of joint samples", table, _SAMPLED)


def channels_table(book: Book) -> str:
    """Two layers with few and with many channels between them."""
    parts, data = [], small_deep("mnist", book.scale).settings.data
    for dataset, title in DEEP_DATASETS.items():
        rows = [
            [str(number), negative_elbo(book, cell.name), *error_and_nll_of(book, cell.name)]
            for number, cell in with_channels(dataset, book.scale).items()
            if book.run(cell.name) is not None
        ]
        parts.append(markdown([f"{title}, channels", NEGATIVE_ELBO, METRICS["top1_error"], METRICS["nll"]], rows))
    about = _CHANNELS.format(train_images=data.train_images, test_images=data.test_images)
    return section("Channels between two layers", paragraphs(*parts), about)


def from_the_start_table(book: Book) -> str:
    """Two small layers, trained with each sampler; empty without such runs."""
    parts = []
    for dataset, title in DEEP_DATASETS.items():
        rows = []
        for how, cells in with_samplers(dataset, book.scale).items():
            found = [cell.name for cell in cells if book.run(cell.name) is not None]
            if found:
                rows.append([how, *_gain_of_seeds(book, found)])
        heads = [f"{title}, samples", METRICS["top1_error"], METRICS["nll"], NEGATIVE_ELBO]
        parts.append(markdown(heads, rows))
    about = _FROM_THE_START.format(channels=ModelConfig.channels)
    return section("Joint samples from the start", paragraphs(*parts), about)


def _gain_of_seeds(book: Book, names: list[str]) -> list[str]:
    """Error, NLL and ELBO of runs that differ in their seeds; of a single one with its intervals."""
    runs = [run for name in names if (run := book.run(name)) is not None]
    if len(runs) == 1:
        return _gain(book, names[0])
    return [*error_and_nll(runs), spread([-run["elbo"] / 1000 for run in runs], 3)]


def weights_table(book: Book) -> str:
    """Learned patch weights with and without a prior, and none, for few images; empty without such runs."""
    heads = ["weights", "− ELBO (nats)", METRICS["top1_error"], METRICS["nll"]]
    parts, images = [], few_images("mnist", "prior", book.scale).settings.data.train_images
    for dataset, title in FEW_IMAGES.items():
        rows = []
        for weights, cells in with_weights(dataset, book.scale).items():
            runs = [run for cell in cells if (run := book.run(cell.name)) is not None]
            if len(runs) > 1:
                rows.append([WEIGHTS[weights], spread([-run["elbo"] for run in runs], 0), *error_and_nll(runs, "test")])
        parts.append(markdown([f"{title}, {heads[0]}", *heads[1:]], rows))
    return section("Weights of patches, few images", paragraphs(*parts), _WEIGHTS.format(images=f"{images:,}"))


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
