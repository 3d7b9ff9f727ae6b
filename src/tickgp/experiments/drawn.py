"""Which runs each figure shows, noted beside the pictures: a figure of runs that were made anew is out of date."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tickgp.experiments.plan import EXPERIMENTS, KERNELS
from tickgp.experiments.tables import Book
from tickgp.runs.folder import read_json, write_json


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
    digest = lambda result: hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()[:16]
    return {name: digest(result) for name, result in results.items()}


def _shown(book: Book, picture: str) -> list[str]:
    match picture:
        case "misclassified-mnist" | "misclassified-semeion":
            best = book.best_cnn("mnist")
            return [*(f"mnist/{kernel}" for kernel in KERNELS), *([best] if best else [])]
        case "invariance" | "patch-response":
            experiment = "patch-response"
        case other:
            experiment = other
    return [cell.name for cell in EXPERIMENTS[experiment].cells(book.scale)]
