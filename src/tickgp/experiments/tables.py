"""The paper's tables with our numbers beside the paper's, as Markdown, from result files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tickgp.experiments import paper_numbers as paper
from tickgp.experiments.cells import DRAWS, DROPOUT_RATES, MANY, CnnConfig, Scale, growing_cnn
from tickgp.experiments.plan import DATASETS, DEEP_DATASETS, DEPTHS, EXPERIMENTS, KERNELS, SHALLOW, cells_of
from tickgp.experiments.results import is_outdated, read_result

METRICS = {
    "top1_error": "top-1 error (%)",
    "top2_error": "top-2 error (%)",
    "top3_error": "top-3 error (%)",
    "nll": "NLL",
    "nll_misses": "NLL of misses",
}
NEGATIVE_ELBO = "− ELBO (×10³)"
Scores = dict[str, Any] | None
"""Metrics and their intervals; None if there is no such run yet."""
_BOUNDS = """ELBOs have no interval. Those of two and three layers are made of marginal samples, and so bounds of no
model."""


class Book:
    """The results of one scale, as the tables ask for them: only of runs made with the settings of today."""

    def __init__(self, results: Path, scale: Scale):
        self.results, self.scale = results, scale
        self.cells = {cell.name: cell for cell in cells_of([*EXPERIMENTS], scale)}
        self._read: dict[str, dict[str, Any] | None] = {}

    def run(self, name: str) -> dict[str, Any] | None:
        """The result of a run; None if it is not there, or was made with other settings or at another scale."""
        if name not in self._read:
            self._read[name] = read_result(self.results, self.cells[name])
        return self._read[name]

    def mark(self, name: str) -> str:
        """What stands behind a number of this run: † if an earlier version made it."""
        result = self.run(name)
        return "†" if result is not None and is_outdated(result) else ""

    def scores(self, name: str, way: str = MANY, *, on: str = "test") -> Scores:
        """Of one kind of prediction of a run.

        A GP's by its draws (`DRAWS`), of which earlier runs lack some; a CNN's `dropout` at test, `deterministic`, or
        with a `temperature`; an `ensemble`.
        """
        result = self.run(name)
        return None if result is None else result["metrics"][on].get(way)

    def best_cnn(self, dataset: str) -> str | None:
        """The CNN of the dropout rate with the least NLL on its validation images; None until all of them are there."""
        names = [f"{dataset}/bcnn-{rate:g}" for rate in DROPOUT_RATES]
        scores = [self.scores(name, "dropout", on="validation") for name in names]
        if any(score is None for score in scores):
            return None
        return names[int(np.argmin([score["test"]["nll"] for score in scores if score is not None]))]

    def chosen_cnn(self, dataset: str, way: str, *, on: str = "test") -> Scores:
        name = self.best_cnn(dataset)
        return None if name is None else self.scores(name, way, on=on)


def table1(book: Book) -> str:
    parts = (_table1_part(book, dataset, title) for dataset, title in DATASETS.items())
    return section("Table 1", paragraphs(*parts, about_cnns(book)))


def _table1_part(book: Book, dataset: str, title: str) -> str:
    theirs = paper.TABLE1[dataset]
    more = {
        "B-CNN, rate 0.5": book.scores(f"{dataset}/bcnn-0.5", "dropout"),
        "CNN, temperature": book.chosen_cnn(dataset, "temperature"),
        "5 CNNs": book.scores(f"{dataset}/ensemble", "ensemble"),
    }
    rows = []
    for metric, words in METRICS.items():
        gps = [gp_cells(book, f"{dataset}/{name}", metric, theirs[name][metric]) for name in SHALLOW]
        bcnn = cell(book.chosen_cnn(dataset, "dropout"), metric, theirs["bcnn"][metric])
        rows += by_draws([words], gps, [bcnn, *(cell(scores, metric) for scores in more.values())])
    elbos = [negative_elbo(book, f"{dataset}/{name}") for name in SHALLOW]
    rows.append([NEGATIVE_ELBO, *elbos, *[""] * (1 + len(more))])
    return markdown([title, *SHALLOW.values(), "B-CNN", *more], rows)


def about_cnns(book: Book) -> str:
    """Which CNNs the tables show."""
    rates = ", ".join(f"{rate:g}" for rate in DROPOUT_RATES)
    chosen = "; ".join(f"{title}: {_rate(book, dataset)}" for dataset, title in DATASETS.items())
    return (
        f"CNNs: of the dropout rates {rates} the one with the least NLL on the validation images; the paper chose 0.5 "
        f"in this way, from a grid that it does not give. {chosen}. Higher rates were not tried. 5 CNNs: the mean "
        "probabilities of five that differ in their seeds, trained with a rate of 0.5, without dropout at test."
    )


def _rate(book: Book, dataset: str) -> str:
    name = book.best_cnn(dataset)
    if name is None:
        return "still to be chosen"
    settings = book.cells[name].settings
    assert isinstance(settings, CnnConfig)
    return f"{settings.dropout:g}"


def table2(book: Book) -> str:
    columns = {
        f"{dataset_title} {title}": (dataset, kernel)
        for dataset, dataset_title in DEEP_DATASETS.items()
        for kernel, title in KERNELS.items()
    }
    rows = []
    for depth in DEPTHS:
        runs = [
            (f"{dataset}/deep-{kernel}-{depth}", paper.TABLE2[dataset][kernel][depth])
            for dataset, kernel in columns.values()
        ]
        for metric in ("top1_error", "nll"):
            cells = [gp_cells(book, name, metric, theirs[metric]) for name, theirs in runs]
            rows += by_draws([str(depth), METRICS[metric]], cells)
        elbos = [beside(negative_elbo(book, name), theirs["negative_elbo"]) for name, theirs in runs]
        rows.append([str(depth), NEGATIVE_ELBO, *elbos])
    return section("Table 2", markdown(["depth", "metric", *columns], rows), _BOUNDS)


def negative_elbo(book: Book, name: str) -> str:
    """In thousands, as the paper has it."""
    result = book.run(name)
    return "" if result is None else f"{-result['elbo'] / 1000:.3f}{book.mark(name)}"


def table3(book: Book) -> str:
    columns = {
        "CNN": (book.chosen_cnn("mnist", "deterministic", on="semeion"), "cnn"),
        "CNN, dropout at test": (book.chosen_cnn("mnist", "dropout", on="semeion"), None),
        "CNN, rate 0.5, dropout at test": (book.scores("mnist/bcnn-0.5", "dropout", on="semeion"), None),
        "CNN, temperature": (book.chosen_cnn("mnist", "temperature", on="semeion"), None),
        "5 CNNs": (book.scores("mnist/ensemble", "ensemble", on="semeion"), None),
    }
    rows = []
    for metric, words in METRICS.items():
        gps = [
            gp_cells(book, f"mnist/{kernel}", metric, paper.TABLE3[kernel][metric], on="semeion") for kernel in KERNELS
        ]
        cnns = [cell(ours, metric, paper.TABLE3[name][metric] if name else None) for ours, name in columns.values()]
        rows += by_draws([words], gps, cnns)
    heads = ["trained on MNIST, tested on Semeion", *KERNELS.values(), *columns]
    return section("Table 3", markdown(heads, rows))


def depth_baselines(book: Book) -> str:
    metrics = ("top1_error", "nll", "nll_misses")
    rows = [
        [
            f"B-CNN, {depth} convolution{'s' if depth > 1 else ''}, MNIST",
            *(
                cell(book.scores(growing_cnn(depth, book.scale).name, "dropout"), metric, theirs.get(metric))
                for metric in metrics
            ),
            "",
        ]
        for depth, theirs in paper.GROWING_CNN.items()
    ]
    for dataset, title in DEEP_DATASETS.items():
        name, theirs = f"{dataset}/deep-se", paper.DEEP_SE[dataset]
        cells = [gp_cells(book, name, metric, theirs.get(metric)) for metric in metrics]
        rows += by_draws([f"deep SE-GP, 2 layers, {title}"], cells, [negative_elbo(book, name)])
    heads = ["model", *(METRICS[metric] for metric in metrics), NEGATIVE_ELBO]
    return section("Depth baselines", markdown(heads, rows))


def section(title: str, table: str, about: str = "") -> str:
    """A part of the page; empty without a table."""
    return paragraphs(f"### {title}", about, table) if table else ""


def paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def gp_cells(book: Book, name: str, metric: str, theirs: str | None = None, *, on: str = "test") -> tuple[str, ...]:
    """A GP's number by its draws, the first beside the paper's."""
    first, *others = (cell(book.scores(name, way, on=on), metric, mark=book.mark(name)) for way in DRAWS)
    return beside(first, theirs), *others


def by_draws(heads: list[str], gps: list[tuple[str, ...]], others: Iterable[str] = ()) -> list[list[str]]:
    """A row of GPs with many draws and of other models, and one for each other number of draws that any GP has."""
    (_, first), *more = zip(DRAWS, zip(*gps, strict=True), strict=True)
    others = list(others)
    rest = [[*heads[:-1], f"… S = {_said(way)}", *cells, *[""] * len(others)] for way, cells in more if any(cells)]
    return [[*heads, *first, *others], *rest]


def _said(way: str) -> str:
    return way.replace("x", " × ")


def cell(scores: Scores, metric: str, theirs: str | None = None, *, mark: str = "") -> str:
    """Our number with its interval, and the paper's in brackets; where there is no run, only the paper's."""
    value = None if scores is None else scores["test"][metric]
    if scores is None or value is None:
        return beside("", theirs)
    show = _percent if metric.endswith("error") else _nats
    between = "–".join(map(show, scores["interval"].get(metric, ())))
    ours = f"{show(value)}{mark}"
    return beside(f"{ours} <sub>{between}</sub>" if between else ours, theirs)


def beside(ours: str, theirs: str | None) -> str:
    return ours if theirs is None else f"{ours} [{theirs}]".strip()


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def _nats(value: float) -> str:
    return f"{value:.3f}"


def markdown(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; empty without rows."""
    line: Callable[[Iterable[str]], str] = lambda cells: "| " + " | ".join(cells) + " |"
    heads, rows = list(heads), list(rows)
    return "\n".join([line(heads), line("---" for _ in heads), *map(line, rows)]) if rows else ""


def error_and_nll_of(book: Book, name: str) -> list[str]:
    """Of one GP, from many draws."""
    return [cell(book.scores(name), metric, mark=book.mark(name)) for metric in ("top1_error", "nll")]


def error_and_nll(runs: list[dict[str, Any]], on: str = "test", way: str = MANY) -> tuple[str, str]:
    """Of runs that differ in their seeds."""
    metrics = [run["metrics"][on][way]["test"] for run in runs]
    error, nll = ([some[name] for some in metrics] for name in ("top1_error", "nll"))
    return spread([100 * value for value in error], 2), spread(nll, 3)


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation, and each value."""
    shown = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f} <sub>{shown}</sub>"
