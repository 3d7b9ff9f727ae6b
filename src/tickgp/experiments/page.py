"""RESULTS.md: every table and figure, from the files under results/."""

from __future__ import annotations

import os
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tickgp.experiments.cells import INSENSITIVITY_IMAGES, Scale, cnn
from tickgp.experiments.drawn import figures_folder, is_current
from tickgp.experiments.results import home
from tickgp.experiments.side_tables import (
    about_cnns,
    calibration_table,
    catching_up_table,
    hits_table,
    insensitivity_table,
    learned_locations,
    pretrained_table,
    sampler_table,
    seeds_table,
    strangers_table,
    training_table,
)
from tickgp.experiments.tables import Book, depth_baselines, table1, table2, table3

HEAD = """# Results

Made by `tickgp reproduce` from the files under `results/`: do not edit. In each cell stands our number, its 95 %
interval over the test images (errors: exact binomial; the rest: bootstrap), and in square brackets the paper's
(Dutordoir et al., AISTATS 2020), with its digits. A cell without a number of ours is of a run still to be made, or has
none: a CNN has no ELBO. Errors in per cent, NLL in nats per image. Predictions of GPs are averaged over S = 5 draws, as
in the paper, and in the line below over 100; all images share the draws, whose chance is not in the intervals. What the
paper leaves open, and what is done here: [docs/experiments.md](docs/experiments.md). What the numbers say about the
paper's claims: [docs/findings.md](docs/findings.md).
"""
SCALES: dict[Scale, str] = {
    "paper": "## The paper's settings",
    "fast": "## Our settings (`--scale fast`)",
    "smoke": "## Smoke runs (`--scale smoke`): tiny models on a few images, only to show that every command works",
}
SAMPLED = """The model of two layers before, and after further training with each way to draw its hidden layer: every
patch on its own (marginal), all jointly (full), jointly through u (correlated). ELBOs of different ways are not to be
compared: with marginal samples it is a bound of no model. Predictions: S = 100."""
BOUNDS = """ELBOs have no interval. Those of two and three layers are made of marginal samples, and so bounds of no
model: see "The price of joint samples"."""
HITS = """NLL = e · NLL of misses + (1 − e) · NLL of hits, with the error e: what of table 1's NLL comes from images
that a model classifies correctly. In brackets what follows from the paper's numbers. Predictions of GPs: S = 5."""
TRAINING = """Of the training images on which a run measures itself, 2,000 at most, at its end; GPs: S = 100. In
brackets the paper's NLL, by its caption of the test images: [docs/findings.md](docs/findings.md) says why they stand
side by side."""
CALIBRATED = """Expected calibration error: how far confidence and accuracy are apart, averaged over 15 bins of
confidence. Chance alone makes it larger than 0, and resampling gives no interval of it. Predictions of GPs: S = 100.
Not in the paper."""
CATCHING_UP = """The paper does not say how long its CNNs were trained; ours for {max_steps:,} steps of {batch_size}
images. The step at which the error and the NLL of {watched_images:,} test images, with dropout at test, are first no
higher than the paper's, in brackets: the median over seeds, the least and the greatest."""
SEEDED = """Mean ± standard deviation over seeds, each of all randomness of a run, and each number. The first
seed is that of tables 1 and 3. Predictions: S = 100."""
LEARNED = """The location kernel of each TICK-GP's last layer after training: its lengthscale, the width of the image
that this layer sees, and how often a draw of the location process is expected to cross zero on the way from the
leftmost patch to the rightmost. An invariant response would never cross it."""
INSENSITIVE = """A smaller GP, 200 patches that stand two pixels apart, for {images:,} training images: with the
lengthscale of the location kernel fixed, and learned from a start at 3 pixels. If the ELBO can choose it, the learned
one should be near the fixed one with the best ELBO, and that should have about the best NLL. Mean ± standard deviation
over seeds, and each number. Predictions: S = 100. Not in the paper."""
INCLUDED = """`tickgp predict mnist-tick IMAGE` needs no training: a small TICK-GP, trained on nine tenths of MNIST's
training images; the rest set when it decides alone. S is that of the other tables; what users get has S = 6,400."""
STRANGERS = """What the model that comes with the library hands over to a person: images that it is not sure of, and
those that are further from its training images than all but one in a hundred held-out ones. And how well entropy,
mutual information, the variance of the latent functions and this distance tell other images from MNIST's test images:
AUROC is 1 if always, 0.5 if by chance. Predictions: S = 6,400. Not in the paper."""
FIGURES = {
    "invariance": "Why invariance is unrealistic: a like stroke in a 2 and in a 7",
    "patch-response": "2 against 7: five samples of the patch response, as deviations from its mean; outlined: beyond "
    "a third of the range",
    "misclassified-mnist": "Misclassified images of MNIST, the CNN without dropout at test",
    "misclassified-semeion": "Misclassified images of Semeion, the CNN without dropout at test",
    "dropout": "Train and test NLL on MNIST, with a dropout rate of p",
    "traces": "Error against time on MNIST, one to three layers, on a shared GPU",
    "insensitivity": "ELBO and test NLL of TICK-GPs for 5,000 images against the lengthscale of the location kernel",
    "full-covariance": "Further training of two layers on MNIST with other samples of the hidden layer",
}


def is_page(path: Path) -> bool:
    """Whether the file is a page that was made here."""
    return path.is_file() and "Made by `tickgp reproduce`" in path.read_text(errors="replace")


def results_page(results: Path, page: Path) -> str:
    """What the file `page` is to hold, with links from there. Scales without any result are left out."""
    parts = [_scale(Book(results, scale), page) for scale in SCALES if (results / scale).is_dir()]
    return "\n".join([HEAD, *(parts or ["No run has been finished yet.\n"])])


def _scale(book: Book, page: Path) -> str:
    sections = {
        "Table 1": f"{table1(book)}\n\n{about_cnns(book)}",
        "Table 1, correctly classified images": f"{HITS}\n\n{hits_table(book)}",
        "Table 1, training images": f"{TRAINING}\n\n{training_table(book)}",
        "Table 1, calibration": f"{CALIBRATED}\n\n{calibration_table(book)}",
        "Table 2": f"{BOUNDS}\n\n{table2(book)}",
        "Table 3": table3(book),
        "Depth baselines": depth_baselines(book),
        "The price of joint samples": f"{SAMPLED}\n\n{sampler_table(book)}",
    }
    if steps := catching_up_table(book):
        sections["How long CNNs are trained"] = (
            f"{CATCHING_UP.format(**asdict(cnn('mnist', book.scale).settings))}\n\n{steps}"
        )
    if seeds := seeds_table(book):
        sections["MNIST with other seeds"] = f"{SEEDED}\n\n{seeds}"
    if learned := learned_locations(book):
        sections["Learned translation insensitivity"] = f"{LEARNED}\n\n{learned}"
    if swept := insensitivity_table(book):
        sections["Fixed and learned translation insensitivity"] = (
            f"{INSENSITIVE.format(images=INSENSITIVITY_IMAGES)}\n\n{swept}"
        )
    if included := pretrained_table(book):
        sections["The model that comes with the library"] = f"{INCLUDED}\n\n{included}"
    if strangers := strangers_table(book):
        sections["Images of another kind"] = f"{STRANGERS}\n\n{strangers}"
    tables = "\n\n".join(f"### {title}\n\n{table}" for title, table in sections.items())
    figures = "".join(_figure(book, name, page) for name in FIGURES if is_current(book, name))
    return f"{SCALES[book.scale]}\n\n{tables}\n\n{figures}{_made_with(book)}"


def _figure(book: Book, name: str, page: Path) -> str:
    """A picture, and links to those with the complete set."""
    address = quote(Path(os.path.relpath(figures_folder(book) / name, page.parent)).as_posix())
    picture = f"### {FIGURES[name]}\n\n![{FIGURES[name]}]({address}.png)\n\n"
    pages = sorted(_numbered(path, name) for path in figures_folder(book).glob(f"{name}-all-*-*.png"))
    links = [
        f"{model} " + ", ".join(f"[{number}]({address}-all-{model}-{number}.png)" for _, number in numbers)
        for model, numbers in groupby(pages, key=lambda page: page[0])
    ]
    return f"{picture}All of them, page by page: {'; '.join(links)}.\n\n" if links else picture


def _numbered(path: Path, name: str) -> tuple[str, int]:
    """Model and number of a page."""
    model, _, number = path.stem.removeprefix(f"{name}-all-").rpartition("-")
    return model, int(number)


def _made_with(book: Book) -> str:
    own = [name for name in book.cells if home(book.scale, name) == book.scale]
    done = [result for name in own if (result := book.run(name)) is not None]
    trained = sorted((result for result in done if result["seconds"]), key=_machine)  # not the mean of others
    machines = "; ".join(_share(machine, list(results)) for machine, results in groupby(trained, key=_machine))
    shared = "" if len(own) == len(book.cells) else " CNNs are those of the paper's settings."
    counted = "" if not trained else " Minutes of runs that shared a machine are counted in full for each."
    return f"{len(done)} of {len(own)} runs are done{': ' if machines else ''}{machines}.{counted}{shared}\n"


def _share(machine: str, results: list[dict[str, Any]]) -> str:
    minutes = sum(result["seconds"] for result in results) / 60
    return f"{len(results)} trained on {machine}, {minutes:.0f} minutes"


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    device = f"{machine['cores']} CPU cores" if machine["device"] == "cpu" else machine["device"]
    return f"{device} (Python {machine['python']}, jax {machine['libraries']['jax']})"
