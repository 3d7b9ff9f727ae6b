"""RESULTS.md: every table and figure, from the files under results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tickgp.experiments.cells import Scale
from tickgp.experiments.plan import EXPERIMENTS, cells_of
from tickgp.experiments.results import read_result
from tickgp.experiments.tables import Book, depth_baselines, table1, table2, table3

HEAD = """# Results

Made by `tickgp reproduce` from the files under `results/`: do not edit. In each cell stands our number, its 95 %
bootstrap interval over the test images, and in square brackets the paper's (Dutordoir et al., AISTATS 2020). A cell
without a number of ours is a run still to be made. Errors in per cent, NLL in nats per image; predictions of GPs are
averaged over 100 draws where no S is given (the paper: 5). What the paper leaves open, and what is done here:
[docs/experiments.md](docs/experiments.md).
"""
SCALES: dict[Scale, str] = {
    "paper": "## The paper's settings",
    "fast": "## Settings that get there sooner (`--scale fast`)",
    "smoke": "## Smoke runs (`--scale smoke`): tiny models on a few images, only to show that every command works",
}
FIGURES = {
    "invariance": "Why invariance is unrealistic: the same stroke in a 2 and in a 7",
    "patch-response": "Five samples of the patch response, as deviations from its mean",
    "misclassified-mnist": "Misclassified images of MNIST",
    "misclassified-semeion": "Misclassified images of Semeion",
    "dropout": "Train and test NLL",
    "traces": "Error against time",
    "full-covariance": "Hidden layers drawn from marginals, jointly, and through u",
}


def results_page(results: Path) -> str:
    """The page. Scales without any result are left out."""
    parts = [_scale(results, scale) for scale in SCALES if (results / scale).is_dir()]
    return "\n".join([HEAD, *(parts or ["No run has been finished yet.\n"])])


def _scale(results: Path, scale: Scale) -> str:
    book = Book(results, scale)
    sections = {
        "Table 1": table1(book),
        "Table 2": table2(book),
        "Table 3": table3(book),
        "Depth baselines": depth_baselines(book),
    }
    tables = "\n\n".join(f"### {title}\n\n{table}" for title, table in sections.items())
    return f"{SCALES[scale]}\n\n{tables}\n\n{_figures(results, scale)}{_made_with(results, scale)}"


def _figures(results: Path, scale: Scale) -> str:
    found = [name for name in FIGURES if (results / scale / "figures" / f"{name}.png").is_file()]
    picture = lambda name: f"### {FIGURES[name]}\n\n![{FIGURES[name]}](results/{scale}/figures/{name}.png)\n\n"
    return "".join(map(picture, found))


def _made_with(results: Path, scale: Scale) -> str:
    names = [cell.name for cell in cells_of(list(EXPERIMENTS), scale)]
    done = [result for name in names if (result := read_result(results, scale, name)) is not None]
    seconds = sum(result["seconds"] or 0 for result in done)
    devices = ", ".join(sorted({_machine(result) for result in done}))
    return f"{len(done)} of {len(names)} runs are done, {seconds / 60:.0f} minutes in all, on: {devices}.\n"


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    return f"{machine['device']} (Python {machine['python']}, jax {machine['libraries']['jax']})"
