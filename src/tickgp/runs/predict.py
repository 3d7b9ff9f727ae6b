"""New images: what they show, how sure the model is, and whether a person should look."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tickgp.data.folder import SKIP, possible_images
from tickgp.data.pictures import picture_size, read_picture
from tickgp.data.pixels import to_channels
from tickgp.errors import UsageError
from tickgp.evaluation.handover import Rule
from tickgp.gp.predict import DOUBTS, Prediction
from tickgp.runs.model_file import TrainedModel

_AT_ONCE = 512
"""Pictures in memory at a time."""


@dataclass(frozen=True)
class Answer:
    """What the model says of one image."""

    file: str
    label: str
    probability: float
    entropy: float
    """Of the class probabilities, in nats: 0 when the model is certain."""
    mutual_information: float
    """The part of the entropy that comes from what the model does not know."""
    variance: float
    """Of the latent functions: large where an image has patches that the model does not know, however sure it is."""
    distance: float | None
    """From the training images, which have about 1 or less; None if no images were held out."""
    unusual: bool
    """Whether it is further from them than nearly all held-out images; false if there were none."""
    hand_over: bool
    """Whether a person should decide: also when no threshold could be chosen, for then nothing is promised."""
    probabilities: dict[str, float]


def predict_files(
    trained: TrainedModel,
    files: str | Path | Iterable[str | Path],
    *,
    rule: Rule | None = None,
    skip_bad_images: bool = False,
    done: Callable[[int], None] = lambda number: None,
) -> tuple[list[Answer], list[str]]:
    """An answer for each image file, or for the one, and a sentence for each that could not be read and was left out.

    The `rule` says which are for a person: by default that of the model, `trained.rule()`. Each image is
    turned upright, fitted to the size of the training images, and made grey or coloured as they were. `done` is told
    now and then how many files are behind it.
    """
    if trained.image_shape[:2] == (1, 1) or trained.image_shape[2] not in (1, 3):
        shape = "×".join(map(str, trained.image_shape))
        raise UsageError(f"this model takes inputs of {shape} numbers, which are no pictures; give a model of images")
    rule = trained.rule() if rule is None else rule
    files = [files] if isinstance(files, str | Path) else [*files]
    answers: list[Answer] = []
    problems: list[str] = []
    for start in range(0, len(files), _AT_ONCE):
        done(start)
        images, names = [], []
        for file in files[start : start + _AT_ONCE]:
            try:
                images.append(_read(trained, Path(file)))
                names.append(str(file))
            except ValueError as error:
                if not skip_bad_images:
                    raise ValueError(f"{error}, or leave such files out with {SKIP}") from error
                problems.append(str(error))
        if images:
            answers += answers_of(trained.predict(np.stack(images)), names, trained.class_names, rule)
    return answers, problems


def other_sizes(trained: TrainedModel, files: Sequence[Path]) -> str | None:
    """A sentence if pictures have another size than those that the model was trained on, which were not scaled."""
    size, were_scaled = trained.image_shape[:2], trained.config.data.image_size is not None
    other = [] if were_scaled else [file for file in files if picture_size(file) not in (size, None)]
    if not other:
        return None
    were = "1 image was" if len(other) == 1 else f"{len(other)} images were"
    return (
        f"{were} scaled to {size[0]}×{size[1]} pixels, the size of the training images; trust the answers only if "
        "the scaled images look like these"
    )


def find_pictures(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and of a folder all the images below it, in the order of their names."""
    if not paths:
        raise UsageError("no image was given; name images, or folders of images, after the run")
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}; give images, or folders of images")
        found += possible_images(path) if path.is_dir() else [path]
    if not found:
        raise UsageError(f"there are no images in {', '.join(map(str, paths))}; give images, or folders of images")
    return found


def _read(trained: TrainedModel, file: Path) -> np.ndarray:
    height, width, channels = trained.image_shape
    return to_channels(read_picture(file, (height, width), fit=trained.config.data.fit), channels)


def answers_of(prediction: Prediction, names: Sequence[str], class_names: tuple[str, ...], rule: Rule) -> list[Answer]:
    """What is said of images that are called by these names."""
    doubts = {name: getattr(prediction, name) for name in DOUBTS}
    doubts = {name: [None] * len(names) if d is None else np.asarray(d, float).tolist() for name, d in doubts.items()}
    p, distance = np.asarray(prediction.probabilities, float), prediction.distance
    best, confidence = p.argmax(axis=1), p.max(axis=1)
    person = rule.hand_over(confidence, distance).tolist()
    unusual = [False] * len(p) if distance is None else rule.unusual(distance).tolist()
    return [
        Answer(
            file=name,
            label=class_names[best[i]],
            probability=float(confidence[i]),
            **{doubt: values[i] for doubt, values in doubts.items()},
            unusual=unusual[i],
            hand_over=person[i],
            probabilities=dict(zip(class_names, p[i].tolist(), strict=True)),
        )
        for i, name in enumerate(names)
    ]


def as_csv(answers: Sequence[Answer], true: Sequence[str] = ()) -> str:
    """A line for each answer, with the `true` class of each where they are known."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    numbers = ("probability", *DOUBTS, "unusual", "hand_over")
    first = ["image", "true", "predicted"] if true else ["image", "predicted"]
    table.writerow([*first, *numbers, *(f"p({name})" for name in answers[0].probabilities)])
    for i, answer in enumerate(answers):
        cells = [*(getattr(answer, name) for name in numbers), *answer.probabilities.values()]
        shown = [f"{cell:.9g}" if isinstance(cell, float) else cell for cell in cells]  # all that single precision has
        table.writerow([answer.file, *true[i : i + 1], answer.label, *shown])
    return text.getvalue()
