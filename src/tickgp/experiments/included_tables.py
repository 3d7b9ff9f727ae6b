"""The model that comes with the library: what it scores, and what it makes of images of other kinds."""

from __future__ import annotations

from typing import Any

from tickgp.experiments.cells import PRETRAINED
from tickgp.experiments.tables import METRICS, Book, by_draws, gp_cells, markdown, section
from tickgp.gp.predict import DOUBTS
from tickgp.runs.folder import read_json

_INCLUDED = """`tickgp predict mnist-tick IMAGE` needs no training: a small TICK-GP, trained on nine tenths of its
training images; the rest set when it decides alone. S is that of the other tables; what users get has S = 6,400."""
_STRANGERS = """What the model that comes with the library hands over to a person: images that it is not sure of, and
those that are further from its training images than all but one in a hundred held-out ones. And how well entropy,
mutual information, the variance of the latent functions and this distance tell other images from MNIST's test images:
AUROC is 1 if always, 0.5 if by chance. Predictions: S = 6,400. Not in the paper."""


def pretrained_table(book: Book) -> str:
    """The model that comes with the library, on its own test images and on Semeion; empty if there is none."""
    if PRETRAINED not in book.cells or book.run(PRETRAINED) is None:
        return ""
    heads = ["", "MNIST", "Semeion"]
    rows = []
    for metric, words in METRICS.items():
        rows += by_draws([words], [gp_cells(book, PRETRAINED, metric, on=on) for on in ("test", "semeion")])
    return section("The model that comes with the library", markdown(heads, rows), _INCLUDED)


def strangers_table(book: Book) -> str:
    """What the model that comes with the library makes of images of other kinds; empty if that was not asked."""
    names = {"MNIST": "mnist", "Semeion": "semeion", "Fashion-MNIST": "fashion-mnist"}
    paths = {title: book.results / "included" / f"{name}.json" for title, name in names.items()}
    found = {title: read_json(path) for title, path in paths.items() if path.is_file()}
    if book.scale != "fast" or not found:  # that of other scales is not the one that comes with the library
        return ""
    heads = ["", "for a person (%)", "… as unlike what it knows (%)", "error of the rest (%)"]
    handed = {title: result.get("hand_over") or result["unknown"] for title, result in found.items()}
    rows = [[title, *_handed(handed[title]), *_told(result)] for title, result in found.items()]
    heads += [f"AUROC, {name.replace('_', ' ')}" for name in DOUBTS]
    return section("Images of another kind", markdown(heads, rows), _STRANGERS)


def _handed(handed: dict[str, Any]) -> list[str]:
    shares = (handed.get(name) for name in ("share", "unusual", "error_of_the_rest"))
    return ["" if share is None else f"{100 * share:.2f}" for share in shares]


def _told(result: dict[str, Any]) -> list[str]:
    """How well each score tells these images from the model's own test images."""
    return [f"{result['auroc'][name]:.3f}" if "auroc" in result else "" for name in DOUBTS]
