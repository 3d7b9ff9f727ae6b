"""`python -m benchmarks unusual`: what models of MNIST's digits hand over to a person of images of other kinds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.table import Column, Table

import tickgp
from tickgp.data.catalogue import DIGITS
from tickgp.data.contents import Split
from tickgp.data.dataset import load_dataset
from tickgp.data.pixels import pad
from tickgp.evaluation.handover import Rule
from tickgp.gp.batches import in_batches
from tickgp.gp.memory import fitting_batch
from tickgp.gp.predict import Prediction
from tickgp.runs.folder import load_own
from tickgp.runs.model_file import ARRAYS, NAME, TrainedModel, load_model

SIDE = 28
SHIFT = 4
BOXES = (18, 20, 22)
"""Sides of the squares that printed characters are fitted to; MNIST's digits to one of 20."""
FONTS = tuple(
    f"DejaVu{family}"
    for family in (
        *("Sans", "Sans-Oblique", "Sans-Bold", "Sans-BoldOblique"),
        *("SansMono", "SansMono-Oblique", "SansMono-Bold", "SansMono-BoldOblique"),
        *("Serif", "Serif-Italic", "Serif-Bold", "Serif-BoldItalic"),
    )
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DRAWN_AT = 100

Images = UInt8[np.ndarray, "N 28 28 1"]


@dataclass(frozen=True)
class Kind:
    """Images, and the digits that they show, however they are turned; None where they show something else."""

    images: Images
    digits: np.ndarray | None = None


def make_kinds(data_dir: Path | None, number: int, seed: int) -> dict[str, Kind]:
    """MNIST's first test images as they are and changed, and images from elsewhere.

    At most `number` of each kind; of printed characters always all.
    """
    mnist, semeion, clothes = (_first(name, data_dir, number) for name in ("mnist", "semeion", "fashion-mnist"))
    x, rng = mnist.images, np.random.default_rng(seed)
    changed = {
        "MNIST": x,
        "upside down": np.rot90(x, 2, axes=(1, 2)),
        "mirrored": x[:, :, ::-1],
        "turned by a quarter": np.rot90(x, axes=(1, 2)),
        "transposed": np.swapaxes(x, 1, 2),
        f"shifted by {SHIFT} pixels": _shifted(x, rng),
        "half the size": pad(_scaled(x[..., 0], SIDE // 2, SIDE // 2), SIDE, SIDE),
        "half the contrast": x // 2,
        "a tenth of the contrast": x // 10,
        "dark on light": 255 - x,
    }
    return {
        **{name: Kind(images, mnist.labels) for name, images in changed.items()},
        "noise": Kind(rng.integers(256, size=x.shape, dtype=np.uint8)),
        "an empty image": Kind(np.zeros_like(x[:1])),
        "two digits in one image": Kind(_pairs(x)),
        "8×8 digits in a black frame": _eight(number),
        "enlarged 8×8 digits": _eight(number, enlarged=True),
        "printed digits": Kind(printed("".join(DIGITS)), np.tile(np.arange(10), len(FONTS) * len(BOXES))),
        "printed capital letters": Kind(printed(LETTERS)),
        "Semeion": Kind(semeion.images, semeion.labels),
        "Fashion-MNIST": Kind(clothes.images),
    }


def _first(name: str, data_dir: Path | None, number: int) -> Split:
    """The first test images; of data without a split of its own all images can be such."""
    data = load_dataset(name, data_dir=data_dir, test_share=1.0, like=(SIDE, SIDE, 1))
    return data.test.take(np.arange(min(number, len(data.test))))


def _shifted(images: Images, rng: np.random.Generator) -> Images:
    """Each image moved up, down, to the left or to the right; what comes in is black, what goes out is lost."""
    frame = ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0))
    corners = SHIFT * np.array([(0, 1), (2, 1), (1, 0), (1, 2)])[rng.integers(4, size=len(images))]
    wide = np.pad(images, frame)
    return np.stack([w[top : top + SIDE, left : left + SIDE] for w, (top, left) in zip(wide, corners, strict=True)])


def _pairs(images: Images) -> Images:
    """Each image beside the one before it, both squeezed to half their width."""
    halves = _scaled(images[..., 0], SIDE // 2, SIDE)
    return np.concatenate([halves, np.roll(halves, 1, axis=0)], axis=2)


def _eight(number: int, *, enlarged: bool = False) -> Kind:
    """scikit-learn's digits in the middle, as they are or at the size that MNIST's have."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images[:number] * 255 / 16).astype(np.uint8)
    shown = _scaled(images, 20, 20) if enlarged else images[..., None]
    return Kind(pad(shown, SIDE, SIDE), digits.target[:number])


def _scaled(images: UInt8[np.ndarray, "N h w"], width: int, height: int) -> UInt8[np.ndarray, "N H W 1"]:
    scaled = [Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR) for image in images]
    return np.stack([np.asarray(image) for image in scaled])[..., None]


def printed(characters: str) -> Images:
    """All characters in turn in each font and size, white on black, in the middle as MNIST's digits are."""
    from matplotlib import get_data_path

    files = [Path(get_data_path(), "fonts", "ttf", f"{name}.ttf") for name in FONTS]
    fonts = [ImageFont.truetype(str(file), _DRAWN_AT) for file in files]
    return np.stack([_glyph(c, font, box) for font in fonts for box in BOXES for c in characters])[..., None]


def _glyph(character: str, font: ImageFont.FreeTypeFont, box: int) -> UInt8[np.ndarray, "28 28"]:
    """As large as a square of side `box` allows."""
    canvas = Image.new("L", (3 * _DRAWN_AT, 3 * _DRAWN_AT))
    ImageDraw.Draw(canvas).text((_DRAWN_AT, _DRAWN_AT), character, fill=255, font=font)
    drawn = canvas.crop(canvas.getbbox())
    small, whole = ImageOps.contain(drawn, (box, box)), Image.new("L", (SIDE, SIDE))
    whole.paste(small, ((SIDE - small.width) // 2, (SIDE - small.height) // 2))
    return np.asarray(whole)


def versions() -> dict[str, str]:
    """Of the libraries that have a say in what the images look like."""
    return {name: version(name) for name in ("tickgp", "pillow", "matplotlib", "scikit-learn")}


def measure(
    run: Path, kinds: dict[str, Kind], data_dir: Path | None, say: Callable[[str], None] = lambda words: None
) -> dict[str, Any]:
    """What the model of a run is, and what it hands over of each kind, by the threshold of its own settings."""
    trained = load_model(run)
    if (trained.image_shape, trained.class_names) != ((SIDE, SIDE, 1), DIGITS):
        raise ValueError(f"{run} is no model of digits of {SIDE}×{SIDE} pixels; give a run on mnist, or mnist-tick")
    if (rule := trained.rule()).threshold is None:
        raise ValueError(f"{run} decides nothing alone: {rule.reason}")
    by_layer = _layer_rules(run, trained, data_dir)
    found = {"model": _identity(run, trained), "threshold": rule.as_json(), "kinds": dict[str, Any]()}
    for name, kind in kinds.items():
        say(f"{run}: {name}")
        prediction = trained.predict(kind.images)
        found["kinds"][name] = {**judge(prediction, rule, kind), **_by_layer(trained, by_layer, kind, prediction)}
    return found


def _identity(run: Path, trained: TrainedModel) -> dict[str, Any]:
    folder, config = run if run.is_dir() else Path(tickgp.__file__).parent / "pretrained" / run, trained.config
    digest = hashlib.sha256((folder / NAME).read_bytes()).hexdigest()
    return {
        "name": config.model.name,
        "layers": len(trained.model.layers),
        "trained_on": config.data.dataset,
        "seed": config.seed,
        "sha256": digest,
    }


def judge(prediction: Prediction, rule: Rule, kind: Kind) -> dict[str, Any]:
    """Of how many images which share is unusual, which is for a person, and how much of the rest is wrong."""
    p, distance = np.asarray(prediction.probabilities, float), np.asarray(prediction.distance, float)
    decided = ~rule.hand_over(p.max(axis=1), distance)
    found = {
        "images": len(p),
        "unusual": float(rule.unusual(distance).mean()),
        "handed_over": float((~decided).mean()),
        "decided": int(decided.sum()),
    }
    return found if kind.digits is None else found | _wrong(kind.digits[decided], p.argmax(axis=1)[decided])


def _wrong(true: np.ndarray, said: np.ndarray) -> dict[str, Any]:
    """How many are wrong, and the three most common ways to be."""
    pairs = Counter(f"{t} as {s}" for t, s in zip(true, said, strict=True) if t != s)
    return {"wrong": pairs.total(), "mistakes": dict(pairs.most_common(3))}


def _layer_rules(run: Path, trained: TrainedModel, data_dir: Path | None) -> list[Rule]:
    """For each layer of a deep model, the rule by which the usual share of held-out images is unusual in it alone."""
    if len(trained.model.layers) == 1 or trained.held_out is None or trained.config.data.dataset == ARRAYS:
        return []
    own = load_own(run, trained.config, data_dir)
    images = own.held_out.images[own.is_counted()]
    labels = np.asarray(trained.predict(images).labels)
    alone = [replace(trained.held_out, distance=distance) for distance in layer_distances(trained, images, labels)]
    return [Rule(held_out.max_distance(trained.config.max_unusual)) for held_out in alone]


def layer_distances(
    trained: TrainedModel, images: np.ndarray, classes: Int[np.ndarray, " N"]
) -> list[Float[np.ndarray, " N"]]:
    """The distances from training in each layer, of images taken for `classes`; that of a prediction is the largest."""
    model, familiarity = trained.model, trained.familiarity
    assert familiarity is not None
    features = in_batches(eqx.filter_jit(model.features), images, fitting_batch(model, images))
    layers = zip(familiarity.clouds, features, strict=True)
    return [cloud.distance(np.asarray(a, float), classes) for cloud, a in layers]


def _by_layer(trained: TrainedModel, rules: list[Rule], kind: Kind, prediction: Prediction) -> dict[str, list[float]]:
    """The share that is unusual in each layer alone, where there are rules for these."""
    if not rules:
        return {}
    layers = zip(layer_distances(trained, kind.images, np.asarray(prediction.labels)), rules, strict=True)
    return {"unusual_by_layer": [float(rule.unusual(distance).mean()) for distance, rule in layers]}


def terminal(title: str, found: dict[str, Any]) -> Table:
    """A model's kinds of images, one a line."""
    (_, *head), *lines = _lines(found)
    table = Table(Column(no_wrap=True), *head, title=title)
    for line in lines:
        table.add_row(*line)
    return table


def markdown(found: dict[str, Any]) -> str:
    """The same as a table for the docs."""
    head, *lines = _lines(found)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *lines))


def _lines(found: dict[str, Any]) -> list[list[str]]:
    by_layer = found["kinds"]["MNIST"].get("unusual_by_layer", [])
    alone = [f"… in layer {layer} alone (%)" for layer in range(1, len(by_layer) + 1)]
    head = ["", "images", "unusual (%)", *alone, "for a person (%)", "decided", "wrong of these (%)"]
    return [head, *([name, *_cells(kind)] for name, kind in found["kinds"].items())]


def _cells(kind: dict[str, Any]) -> list[str]:
    shares = [kind["unusual"], *kind.get("unusual_by_layer", []), kind["handed_over"]]
    wrong = _percent(kind["wrong"] / kind["decided"]) if kind["decided"] and "wrong" in kind else ""
    return [f"{kind['images']:,}", *map(_percent, shares), f"{kind['decided']:,}", wrong]


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
