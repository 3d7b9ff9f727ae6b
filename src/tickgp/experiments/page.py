"""RESULTS.md: every table and figure, from the files under results/."""

from __future__ import annotations

import os
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from tickgp.experiments.cells import STARTS, Scale, cnn, insensitivity
from tickgp.experiments.cost import cost_table, progress
from tickgp.experiments.draw import FIGURES, figures_folder, is_current
from tickgp.experiments.location_tables import insensitivity_table, learned_locations, two_against_seven_table
from tickgp.experiments.side_tables import (
    about_cnns,
    calibration_table,
    catching_up_table,
    cnn_seeds_table,
    hits_table,
    pretrained_table,
    sampler_table,
    seeds_table,
    strangers_table,
    training_table,
)
from tickgp.experiments.standing import counts_table, standing_table
from tickgp.experiments.tables import Book, depth_baselines, table1, table2, table3
from tickgp.training.config import Config

HEAD = """# Results

Made by `tickgp reproduce` from the files under `results/`: do not edit. A cell holds our number, its 95 % interval over
the test images (errors: exact binomial; the rest: bootstrap), and in square brackets the paper's number (Dutordoir et
al., AISTATS 2020) as it is printed there. An empty cell is a run not yet made, or a quantity that does not exist: a CNN
has no ELBO. Errors are in per cent, NLL in nats per image. Lower is better.

GPs predict from S = 5 draws, as in the paper; the row below has S = 100. All images share the draws, and the chance in
them is not in the intervals.

What the paper leaves open, and what is done here: [docs/experiments.md](docs/experiments.md). What the numbers say
about the paper's claims: [docs/findings.md](docs/findings.md).
"""
SCALES: dict[Scale, str] = {
    "fast": "## Our settings (`--scale fast`)",
    "paper": "## The paper's settings (`--scale paper`)",
    "smoke": "## Smoke runs (`--scale smoke`): tiny models on a few images, only to show that every command works",
}
STANDING = """By how much our numbers differ from the paper's. Bold: no number that rounds to the paper's lies in our
95 % interval. ELBOs have no interval. The paper's predictions have S = 5."""
SAMPLED = """The model of two layers before, and after further training with each way to draw its hidden layer: every
patch on its own (marginal), all jointly (full), jointly through u (correlated). ELBOs of different ways are not to be
compared: with marginal samples it is a bound of no model. Predictions: S = 100."""
BOUNDS = """ELBOs have no interval. Those of two and three layers are made of marginal samples, and so bounds of no
model."""
HITS = """NLL = e · NLL of misses + (1 − e) · NLL of hits, with the error e: what of table 1's NLL comes from images
that a model classifies correctly. In brackets what follows from the paper's numbers. Predictions of GPs: S = 5."""
TRAINING = """Of the training images on which a run measures itself, 2,000 at most, at its end; GPs: S = 100. In
brackets the paper's NLL, by its caption of the test images: [docs/claims.md](docs/claims.md#the-nll-of-table-1) says
why they stand side by side."""
CALIBRATED = """Expected calibration error: how far confidence and accuracy are apart, averaged over 15 bins of
confidence. Chance alone makes it larger than 0, and resampling gives no interval of it. Predictions of GPs: S = 100.
Not in the paper."""
CATCHING_UP = """The paper does not say how long its CNNs were trained; ours for {max_steps:,} steps of {batch_size}
images. The step at which the error and the NLL of {watched_images:,} test images, with dropout at test, are first no
higher than the paper's, in brackets: the median over seeds, the least and the greatest."""
SEEDED = """Mean ± standard deviation over seeds, each of all randomness of a run, and each number. The first
seed is that of tables 1 and 3. Predictions: S = 100."""
CNNS_SEEDED = """Table 1's CNN at the paper's dropout rate, with dropout at test: mean ± standard deviation over seeds,
and each number. The first seed is that of tables 1 and 3."""
TWO_AGAINST_SEVEN = """The models behind the figure of patch responses. Predictions: S = 100."""
LEARNED = """The location kernel of each TICK-GP's last layer after training: its lengthscale, the width of the image
that this layer sees, and how often a draw of the location process is expected to cross zero on the way from the
leftmost patch to the rightmost. An invariant response would never cross it."""
INSENSITIVE = """Smaller GPs ({patches} patches, {stride} pixels apart) for {images:,} training images, with the
lengthscale of the location kernel fixed, or learned from a start at {starts} pixels, of which the first is the paper's.
If the ELBO can choose it, the fixed one with the best ELBO has about the best NLL; if gradients find it, a learned one
has as good an ELBO. Mean ± standard deviation over seeds, and each number. Predictions: S = 100. Not in the paper."""
INCLUDED = """`tickgp predict mnist-tick IMAGE` needs no training: a small TICK-GP, trained on nine tenths of its
training images; the rest set when it decides alone. S is that of the other tables; what users get has S = 6,400."""
STRANGERS = """What the model that comes with the library hands over to a person: images that it is not sure of, and
those that are further from its training images than all but one in a hundred held-out ones. And how well entropy,
mutual information, the variance of the latent functions and this distance tell other images from MNIST's test images:
AUROC is 1 if always, 0.5 if by chance. Predictions: S = 6,400. Not in the paper."""
COST = """Minutes of training, of GPs also of their start and tests; runs that shared a GPU are counted in full. The
paper trained its models of one layer on a GeForce GTX 1070 "until they converge", and its experiment with joint samples
took roughly 10 days."""


def is_page(path: Path) -> bool:
    """Whether the file is a page that was made here."""
    return path.is_file() and "Made by `tickgp reproduce`" in path.read_text(errors="replace")


def results_page(results: Path, page: Path) -> str:
    """What the file `page` is to hold, with links from there. Scales without any result are left out."""
    parts = [_scale(Book(results, scale), page) for scale in SCALES if (results / scale).is_dir()]
    return "\n".join([HEAD, *(parts or ["No run has been finished yet.\n"])])


def _scale(book: Book, page: Path) -> str:
    parts: dict[str, tuple[str, str]] = {
        "Beside the paper's numbers": (STANDING, _paragraphs(counts_table(book), standing_table(book))),
        "Table 1": ("", _paragraphs(table1(book), about_cnns(book))),
        "Table 1, correctly classified images": (HITS, hits_table(book)),
        "Table 1, training images": (TRAINING, training_table(book)),
        "Table 1, calibration": (CALIBRATED, calibration_table(book)),
        "Table 2": (BOUNDS, table2(book)),
        "Table 3": ("", table3(book)),
        "Depth baselines": ("", depth_baselines(book)),
        "The price of joint samples": (SAMPLED, sampler_table(book)),
        "2 against 7": (TWO_AGAINST_SEVEN, two_against_seven_table(book)),
        "How long CNNs are trained": (_catching_up(book), catching_up_table(book)),
        "MNIST with other seeds": (SEEDED, seeds_table(book)),
        "CNNs with other seeds": (CNNS_SEEDED, cnn_seeds_table(book)),
        "Learned translation insensitivity": (LEARNED, learned_locations(book)),
        "Fixed and learned translation insensitivity": (_insensitive(book), insensitivity_table(book)),
        "The model that comes with the library": (INCLUDED, pretrained_table(book)),
        "Images of another kind": (STRANGERS, strangers_table(book)),
        "Cost": (COST, cost_table(book)),
    }
    sections = [_paragraphs(f"### {title}", about, table) for title, (about, table) in parts.items() if table]
    captions = {name: caption for drawn in FIGURES.values() for name, caption in drawn.captions.items()}
    figures = [_figure(book, name, caption, page) for name, caption in captions.items() if is_current(book, name)]
    return _paragraphs(SCALES[book.scale], progress(book), *sections, *figures) + "\n"


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _catching_up(book: Book) -> str:
    return CATCHING_UP.format(**asdict(cnn("mnist", book.scale).settings))


def _insensitive(book: Book) -> str:
    settings = insensitivity("mnist", "tick", book.scale).settings
    assert isinstance(settings, Config)
    model, images = settings.model, settings.data.train_images
    starts = " or ".join(map(str, STARTS))
    return INSENSITIVE.format(patches=model.num_inducing, stride=model.stride, images=images, starts=starts)


def _figure(book: Book, name: str, words: tuple[str, str], page: Path) -> str:
    """A picture with its title and caption, and links to those with the complete set."""
    address = quote(Path(os.path.relpath(figures_folder(book) / name, page.parent)).as_posix())
    title, caption = words
    picture = _paragraphs(f"### {title}", caption, f"![{title}]({address}.png)")
    pages = sorted(_numbered(path, name) for path in figures_folder(book).glob(f"{name}-all-*-*.png"))
    links = [
        f"{model} " + ", ".join(f"[{number}]({address}-all-{model}-{number}.png)" for _, number in numbers)
        for model, numbers in groupby(pages, key=lambda page: page[0])
    ]
    return _paragraphs(picture, f"All of them, page by page: {'; '.join(links)}." if links else "")


def _numbered(path: Path, name: str) -> tuple[str, int]:
    """Model and number of a page."""
    model, _, number = path.stem.removeprefix(f"{name}-all-").rpartition("-")
    return model, int(number)
