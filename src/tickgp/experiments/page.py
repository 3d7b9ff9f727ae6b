"""RESULTS.md: every table and figure, from the files under results/."""

from __future__ import annotations

import os
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from tickgp.experiments import included_tables, location_tables, side_tables, tables
from tickgp.experiments.cells import Scale
from tickgp.experiments.cost import cost_table, progress
from tickgp.experiments.draw import FIGURES, figures_folder, is_current
from tickgp.experiments.standing import standing
from tickgp.experiments.tables import Book, paragraphs

HEAD = """# Results

Made by `tickgp reproduce` from the files under `results/`: do not edit. A cell holds our number, its 95 % interval over
the test images (errors: exact binomial; the rest: bootstrap), and in square brackets the paper's number (Dutordoir et
al., AISTATS 2020) as it is printed there. An empty cell is a run not yet made, or a quantity that does not exist: a CNN
has no ELBO. Errors are in per cent, NLL in nats per image. Lower is better.

GPs predict from S = 100 draws; a row below has S = 5. The paper says five, but its numbers look like those of more
([docs/claims.md](docs/claims.md#draws)). All images share the draws, and the chance in them is not in the
intervals.

What the paper leaves open, and what is done here: [docs/experiments.md](docs/experiments.md). What the numbers say
about the paper's claims: [docs/findings.md](docs/findings.md).
"""
SCALES: dict[Scale, str] = {
    "fast": "## Our settings (`--scale fast`)",
    "paper": "## The paper's settings (`--scale paper`)",
    "smoke": "## Smoke runs (`--scale smoke`): tiny models on a few images, only to show that every command works",
}
SECTIONS = (
    standing,
    tables.table1,
    side_tables.hits_table,
    side_tables.training_table,
    side_tables.calibration_table,
    tables.table2,
    tables.table3,
    tables.depth_baselines,
    side_tables.sampler_table,
    side_tables.channels_table,
    side_tables.from_the_start_table,
    side_tables.weights_table,
    location_tables.two_against_seven_table,
    side_tables.catching_up_table,
    side_tables.seeds_table,
    side_tables.cnn_seeds_table,
    location_tables.learned_locations,
    location_tables.insensitivity_table,
    included_tables.pretrained_table,
    included_tables.strangers_table,
    cost_table,
)
"""Each gives its title, what is to be said of it, and its table; nothing without runs."""


def is_page(path: Path) -> bool:
    """Whether the file is a page that was made here."""
    return path.is_file() and "Made by `tickgp reproduce`" in path.read_text(errors="replace")


def results_page(results: Path, page: Path) -> str:
    """What the file `page` is to hold, with links from there. Scales without any result are left out."""
    parts = [_scale(Book(results, scale), page) for scale in SCALES if (results / scale).is_dir()]
    return "\n".join([HEAD, *(parts or ["No run has been finished yet.\n"])])


def _scale(book: Book, page: Path) -> str:
    sections = [section(book) for section in SECTIONS]
    captions = {name: caption for drawn in FIGURES.values() for name, caption in drawn.captions.items()}
    figures = [_figure(book, name, caption, page) for name, caption in captions.items() if is_current(book, name)]
    return paragraphs(SCALES[book.scale], progress(book), *sections, *figures) + "\n"


def _figure(book: Book, name: str, words: tuple[str, str], page: Path) -> str:
    """A picture with its title and caption, and links to those with the complete set."""
    address = quote(Path(os.path.relpath(figures_folder(book) / name, page.parent)).as_posix())
    title, caption = words
    picture = paragraphs(f"### {title}", caption, f"![{title}]({address}.png)")
    pages = sorted(_numbered(path, name) for path in figures_folder(book).glob(f"{name}-all-*-*.png"))
    links = [
        f"{model} " + ", ".join(f"[{number}]({address}-all-{model}-{number}.png)" for _, number in numbers)
        for model, numbers in groupby(pages, key=lambda page: page[0])
    ]
    return paragraphs(picture, f"All of them, page by page: {'; '.join(links)}." if links else "")


def _numbered(path: Path, name: str) -> tuple[str, int]:
    """Model and number of a page."""
    model, _, number = path.stem.removeprefix(f"{name}-all-").rpartition("-")
    return model, int(number)
