"""A dataset: images with labels, split into a part to train on and a part to test on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tickgp.data.catalogue import CATALOGUE
from tickgp.data.contents import Contents, Split
from tickgp.data.folder import read_folder
from tickgp.data.locate import DataDir
from tickgp.data.npz import read_npz
from tickgp.data.pictures import Fit, Size
from tickgp.data.pixels import darkness, frame, to_grey
from tickgp.data.splits import stratified_split, unevenness
from tickgp.errors import UsageError

TEST_SHARE = 0.2
"""Of data without a split of their own, if nobody asks for another."""


@dataclass(frozen=True)
class Dataset:
    """What a model is trained on, what it is tested on, and the names of its classes."""

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    validation: Split | None = None
    """Images left out of training to make choices on."""
    notes: tuple[str, ...] = ()
    """What a person should know: images left out, dark images, uneven classes, images fitted to a model."""

    @property
    def parts(self) -> tuple[Split, ...]:
        """All that there are: those to train on, to test, and to make choices on."""
        return (self.train, self.test) if self.validation is None else (self.train, self.test, self.validation)

    @property
    def held_out(self) -> Split:
        """Images to make choices on: those for validation, or where there are none the test images."""
        return self.test if self.validation is None else self.validation

    def is_counted(self) -> np.ndarray:
        """Which of them are no copies, of training images or of each other: promises are made on these."""
        return self.held_out.is_new(self.train)

    def sha256(self) -> str:
        """Of images, labels and class names, in their order, whatever files they are in: equal on every machine."""
        return self._digest([array for part in self.parts for array in (part.images, part.labels)])

    def labels_sha256(self) -> str:
        """Of labels and class names alone, and the names of images: equal whatever size these are read in."""
        names = [np.frombuffer(json.dumps(part.names).encode(), np.uint8) for part in self.parts]
        return self._digest([*names, *(part.labels for part in self.parts)])

    def _digest(self, arrays: list[np.ndarray]) -> str:
        digest = hashlib.sha256(json.dumps(self.class_names).encode())
        for array in arrays:
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            digest.update(f"{little.dtype.str} {little.shape}".encode())
            digest.update(little.data)
        return digest.hexdigest()


def load_dataset(
    name: str,
    *,
    data_dir: DataDir = None,
    image_size: Size | int | None = None,
    fit: Fit = "pad",
    grey: bool = False,
    skip_bad_images: bool = False,
    test_share: float = TEST_SHARE,
    validation_share: float = 0.0,
    classes: tuple[str, ...] = (),
    train_images: int | None = None,
    test_images: int | None = None,
    seed: int = 0,
    like: tuple[int, ...] | None = None,
) -> Dataset:
    """The dataset of that name (see `CATALOGUE`), the images in `folder:PATH`, or the arrays x and y in `npz:FILE`.

    `data_dir` holds the publishers' files; by default $TICKGP_DATA, then the user's cache, which fills by download.
    Of several data folders the first is searched first and must be there; those after it may be gone.
    `image_size`, a side or (height, width), `fit` and `skip_bad_images` are for folders: pictures of another shape are
    padded with a border, or cropped (see `read_picture`). `grey` makes colour images grey.
    Data without a split of their own are split by `seed`: `test_share` of every class is for testing, with 1
    everything, to evaluate a model on data that it has not seen. Of what is left for training, `validation_share` of
    every class is set aside, unless a folder has images for that. Where not all is wanted, `classes` names those to
    keep, and `train_images` and `test_images` say how many are drawn. `like` is the image shape (H, W, C) of a model to
    evaluate: pictures of a folder are scaled to it, other images are set in a black frame if they are smaller.
    """
    kind, _, path = name.partition(":")
    if kind in ("folder", "npz") and not path:
        raise UsageError(f"{name} names no path; give folder:PATH or npz:FILE")
    if kind == "folder":
        size = _size(image_size) or ((like[0], like[1]) if like else None)
        least = 2 if like is None else 1  # a model that is there can be asked about images of one class
        settings: dict[str, Any] = {"image_size": size, "fit": fit, "skip_bad_images": skip_bad_images}
        contents = read_folder(Path(path).expanduser(), **settings, least_classes=least)
    elif image_size is not None and (kind == "npz" or name in CATALOGUE):
        raise UsageError(f"image size {image_size} was given for {name}; only folder:PATH is resized: leave it out")
    else:
        contents = read_npz(Path(path).expanduser()) if kind == "npz" else _read_named(name, data_dir)
    if grey:
        contents = contents.map_images(to_grey)
    if classes:
        contents = contents.only(classes)
    notes = darkness([part.images for part in contents.parts], from_files=kind == "folder")
    if like is not None:
        contents = _framed(contents, like)
    dataset = _split(name, contents, test_share, validation_share, seed)
    train = _some(dataset.train, train_images, "training", seed)
    if like is None:  # nothing is trained on data for a model that is there
        notes += unevenness(train.labels, dataset.class_names)
    test = _some(dataset.test, test_images, "test", seed)
    return replace(dataset, train=train, test=test, notes=dataset.notes + notes)


def _read_named(name: str, data_dir: DataDir) -> Contents:
    if name not in CATALOGUE:
        path, choices = Path(name).expanduser(), ", ".join([*CATALOGUE, "folder:PATH", "npz:FILE"])
        likely = "folder" if path.is_dir() else "npz" if path.is_file() and path.suffix == ".npz" else None
        instead = f"choose one of: {choices}" if likely is None else f"did you mean {likely}:{name}?"
        raise UsageError(f"there is no dataset {name!r}; {instead}")
    entry, contents = CATALOGUE[name], CATALOGUE[name].read(data_dir)
    found = len(contents.train), len(contents.test or ())
    if found == (entry.train, entry.test):
        return contents
    note = f"{name} has {found[0]} + {found[1]} images here; the published one has {entry.train} + {entry.test}"
    return replace(contents, notes=(*contents.notes, note))


def _size(image_size: Size | int | None) -> Size | None:
    """Height and width."""
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    if size is not None and min(size) < 1:
        raise UsageError(f"image size {size[0]}×{size[1]}; give a height and a width of at least 1")
    return size


def _framed(contents: Contents, shape: tuple[int, ...]) -> Contents:
    given = contents.train.images.shape[1:]
    if given == shape:
        return contents
    note = f"images of {'×'.join(map(str, given))} were fitted to the model's {'×'.join(map(str, shape))}"
    if given[:2] != shape[:2]:
        note += ": they were put into the middle of a black frame, not enlarged"
    contents = contents.map_images(lambda images: frame(images, shape))
    return replace(contents, notes=(*contents.notes, note))


def _split(name: str, contents: Contents, test_share: float, validation_share: float, seed: int) -> Dataset:
    """Train and test as the source has them, or else drawn from every class; validation likewise, from train."""
    names, train, test, validation = contents.class_names, contents.train, contents.test, contents.validation
    if validation is not None and validation_share:
        raise UsageError(
            f"a validation share of {validation_share} was given, and {name} has images for validation of its own; "
            "leave it out, or move those images to the training images"
        )
    if test is None:
        train, test = _set_aside(train, test_share, seed, names)
    elif test_share not in (TEST_SHARE, 1.0):
        raise UsageError(f"a test share of {test_share} was given, and {name} has test images of its own; leave it out")
    if validation_share:
        train, validation = _set_aside(train, validation_share, seed, names)
    return Dataset(name, train, test, names, validation, contents.notes)


def _some(split: Split, number: int | None, kind: str, seed: int) -> Split:
    """`number` of the images, drawn by `seed`; all if None."""
    if number is None:
        return split
    if not 0 < number <= len(split):
        raise UsageError(f"{number} {kind} images were asked for; there are {len(split)}: give 1 to {len(split)}")
    return split.take(np.sort(np.random.default_rng(seed).permutation(len(split))[:number]))


def _set_aside(whole: Split, share: float, seed: int, class_names: tuple[str, ...]) -> tuple[Split, Split]:
    kept, aside = stratified_split(whole.labels, share, seed, class_names)
    return whole.take(kept), whole.take(aside)
