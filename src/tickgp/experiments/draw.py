"""The figures of each experiment, drawn as far as their runs are there, and whether they show the results of today."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tickgp.experiments.cells import Scale
from tickgp.experiments.figures import dropout, full_covariance, insensitivity, misclassified, patch_response, traces
from tickgp.experiments.figures.looks import Pictures
from tickgp.experiments.plan import EXPERIMENTS, KERNELS
from tickgp.experiments.results import Places
from tickgp.experiments.tables import Book
from tickgp.runs.folder import read_json, write_json


@dataclass(frozen=True)
class Drawn:
    """The pictures of an experiment."""

    draw: Callable[[Book, Places], Pictures]
    """As far as their runs are there."""
    captions: dict[str, tuple[str, str]]
    """Title and caption of each."""


FIGURES = {
    "patch-response": Drawn(patch_response.patch_response, patch_response.CAPTIONS),
    "misclassified": Drawn(misclassified.misclassified, misclassified.CAPTIONS),
    "dropout": Drawn(lambda book, _: dropout.dropout(book), dropout.CAPTIONS),
    "traces": Drawn(lambda book, _: traces.traces(book), traces.CAPTIONS),
    "insensitivity": Drawn(lambda book, _: insensitivity.insensitivity(book), insensitivity.CAPTIONS),
    "full-covariance": Drawn(lambda book, _: full_covariance.full_covariance(book), full_covariance.CAPTIONS),
}
"""By experiment, as they follow each other on the page."""


_FOUND = ("metrics", "curve", "learned", "elbo")
"""Of a result: what a run has found. Two runs of other settings do not find the same."""


def draw(experiments: list[str], scale: Scale, places: Places) -> list[Path]:
    """The figures of these experiments, as far as their runs are there, as PNG files beside the results."""
    book = Book(places.results, scale)
    folder, written = figures_folder(book), list[Path]()
    for name in experiments:
        pictures = FIGURES[name].draw(book, places) if name in FIGURES else {}
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


def figures_folder(book: Book) -> Path:
    return book.results / book.scale / "figures"


def note_drawn(book: Book, pictures: Iterable[str]) -> None:
    """These pictures have just been drawn from the results of today."""
    write_json(_path(book), _noted(book) | {picture: _marks(book, picture) for picture in pictures})


def is_current(book: Book, picture: str) -> bool:
    """Whether a picture is there, and was drawn from the results of today."""
    is_there = (figures_folder(book) / f"{picture}.png").is_file()
    return is_there and _noted(book).get(picture) == _marks(book, picture)


def _path(book: Book) -> Path:
    return figures_folder(book).with_suffix(".json")


def _noted(book: Book) -> dict[str, Any]:
    return read_json(_path(book)) if _path(book).is_file() else {}


def _marks(book: Book, picture: str) -> dict[str, str]:
    """Of each run that a picture shows and that has a result, what tells this result from another."""
    results = {name: result for name in _shown(book, picture) if (result := book.run(name)) is not None}
    return {name: _digest({part: result.get(part) for part in _FOUND}) for name, result in results.items()}


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _shown(book: Book, picture: str) -> list[str]:
    (experiment,) = (name for name, drawn in FIGURES.items() if picture in drawn.captions)
    if experiment == "misclassified":
        best = book.best_cnn("mnist")
        return [*(f"mnist/{kernel}" for kernel in KERNELS), *([best] if best else [])]
    return [cell.name for cell in EXPERIMENTS[experiment].cells(book.scale)]
