"""What TICK-GPs learn of places: their lengthscales, what fixed ones do instead, and 2 against 7."""

from __future__ import annotations

from typing import Any

from tickgp.experiments.cells import two_against_seven
from tickgp.experiments.plan import DATASETS, EXPERIMENTS, KERNELS, SWEPT, swept
from tickgp.experiments.tables import (
    METRICS,
    NEGATIVE_ELBO,
    Book,
    error_and_nll,
    error_and_nll_of,
    markdown,
    spread,
)


def learned_locations(book: Book) -> str:
    """The location kernel that each TICK-GP of the paper's tables has learned; empty if there is none yet."""
    others = {cell.name for cell in EXPERIMENTS["insensitivity"].cells(book.scale)}
    names = [name for name in book.cells if name not in others]
    found = {name: result for name in names if (result := book.run(name)) and result.get("learned")}
    heads = ["run", "location kernel", "lengthscale (pixels)", "width of its image (pixels)", "zero crossings"]
    rows = [
        [f"{name}{book.mark(name)}", result["settings"]["model"]["location"], *_learned(result["learned"])]
        for name, result in found.items()
    ]
    return markdown(heads, rows) if rows else ""


def _learned(learned: dict[str, float]) -> list[str]:
    return [
        f"{learned['lengthscale']:.2f}",
        f"{learned['width']:.0f}",
        f"{learned['zero_crossings']:.2f}",
    ]


def insensitivity_table(book: Book) -> str:
    """ELBO, error and NLL with fixed and learned lengthscales of the location kernel; a table for each dataset."""
    return "\n\n".join(filter(None, (_swept_table(book, dataset) for dataset in SWEPT)))


def _swept_table(book: Book, dataset: str) -> str:
    """Empty until all runs are there."""
    rows = []
    for title, cells in swept(dataset, book.scale).items():
        runs = [run for cell in cells if (run := book.run(cell.name)) is not None]
        if len(runs) < len(cells):
            return ""
        learned = [run["learned"]["lengthscale"] for run in runs if is_learned(run)]
        elbo = spread([-run["elbo"] / 1000 for run in runs], 3)
        rows.append([title, spread(learned, 2) if learned else "", elbo, *error_and_nll(runs, "test")])
    heads = [DATASETS[dataset], "lengthscale learned", NEGATIVE_ELBO, METRICS["top1_error"], METRICS["nll"]]
    return markdown(heads, rows) if rows else ""


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
    return (
        markdown(["2 against 7", METRICS["top1_error"], METRICS["nll"], "− ELBO (nats)"], rows)
        if len(rows) == 2
        else ""
    )
