"""What TICK-GPs learn of places: their lengthscales, what fixed ones do instead, and 2 against 7."""

from __future__ import annotations

from typing import Any

from tickgp.experiments.cells import STARTS, insensitivity, two_against_seven
from tickgp.experiments.plan import DATASETS, EXPERIMENTS, KERNELS, SWEPT, swept
from tickgp.experiments.tables import (
    METRICS,
    NEGATIVE_ELBO,
    Book,
    error_and_nll,
    error_and_nll_of,
    markdown,
    paragraphs,
    section,
    spread,
)
from tickgp.training.config import Config

_LEARNED = """The location kernel of each TICK-GP's last layer after training: its lengthscale, the width of the image
that this layer sees, and how often a draw of the location process is expected to cross zero on the way from the
leftmost patch to the rightmost. An invariant response would never cross it."""
_INSENSITIVE = """Smaller GPs ({patches} patches, {stride} pixels apart) for {images:,} training images, with the
lengthscale of the location kernel fixed, or learned from a start at {starts} pixels, of which the first is the paper's.
If the ELBO can choose it, the fixed one with the best ELBO has about the best NLL; if gradients find it, a learned one
has as good an ELBO. Mean ± standard deviation over seeds, and each number. Predictions: S = 100. Not in the paper."""
_TWO_AGAINST_SEVEN = """The models behind the figure of patch responses. Predictions: S = 100."""


def learned_locations(book: Book) -> str:
    """The location kernel that each TICK-GP of the paper's tables has learned; empty if there is none yet."""
    small = ("insensitivity", "channels", "weights")
    others = {cell.name for name in small for cell in EXPERIMENTS[name].cells(book.scale)}
    names = [name for name in book.cells if name not in others]
    found = {name: result for name in names if (result := book.run(name)) and result.get("learned")}
    heads = ["run", "location kernel", "lengthscale (pixels)", "width of its image (pixels)", "zero crossings"]
    rows = [
        [f"{name}{book.mark(name)}", result["settings"]["model"]["location"], *_learned(result["learned"])]
        for name, result in found.items()
    ]
    return section("Learned translation insensitivity", markdown(heads, rows), _LEARNED)


def _learned(learned: dict[str, float]) -> list[str]:
    return [
        f"{learned['lengthscale']:.2f}",
        f"{learned['width']:.0f}",
        f"{learned['zero_crossings']:.2f}",
    ]


def insensitivity_table(book: Book) -> str:
    """ELBO, error and NLL with fixed and learned lengthscales of the location kernel; a table for each dataset."""
    settings = insensitivity("mnist", "tick", book.scale).settings
    assert isinstance(settings, Config)
    model, images, starts = settings.model, settings.data.train_images, " or ".join(map(str, STARTS))
    about = _INSENSITIVE.format(patches=model.num_inducing, stride=model.stride, images=images, starts=starts)
    tables = paragraphs(*(_swept_table(book, dataset) for dataset in SWEPT))
    return section("Fixed and learned translation insensitivity", tables, about)


def _swept_table(book: Book, dataset: str) -> str:
    rows = []
    for title, runs in swept_runs(book, dataset).items():
        learned = [run["learned"]["lengthscale"] for run in runs if is_learned(run)]
        elbo = spread([-run["elbo"] / 1000 for run in runs], 3)
        rows.append([title, spread(learned, 2) if learned else "", elbo, *error_and_nll(runs, "test")])
    heads = [DATASETS[dataset], "lengthscale learned", NEGATIVE_ELBO, METRICS["top1_error"], METRICS["nll"]]
    return markdown(heads, rows)


def swept_runs(book: Book, dataset: str) -> dict[str, list[dict[str, Any]]]:
    """The results with each seed, by the names of their models; none until all are there."""
    found = {title: [book.run(cell.name) for cell in cells] for title, cells in swept(dataset, book.scale).items()}
    runs = {title: [run for run in some if run is not None] for title, some in found.items()}
    return runs if runs == found else {}


def is_learned(run: dict[str, Any]) -> bool:
    """Whether it is a TICK-GP of which the location kernel was trained."""
    return run["learned"] is not None and run["settings"]["model"]["learn_location"]


def two_against_seven_table(book: Book) -> str:
    """Conv and TICK on MNIST's 2 against 7; empty without both."""
    runs = {title: two_against_seven(kernel, book.scale).name for kernel, title in KERNELS.items()}
    rows = [
        [title, *error_and_nll_of(book, name), f"{-result['elbo']:.1f}{book.mark(name)}"]
        for title, name in runs.items()
        if (result := book.run(name)) is not None
    ]
    heads = ["2 against 7", METRICS["top1_error"], METRICS["nll"], "− ELBO (nats)"]
    return section("2 against 7", markdown(heads, rows) if len(rows) == 2 else "", _TWO_AGAINST_SEVEN)
