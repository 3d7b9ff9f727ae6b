"""Arrays in an .npz file: x and y, and if you like x_test and y_test, and class_names."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from tickgp.data.contents import Contents, Split
from tickgp.errors import UsageError

KEYS = ("x", "y", "x_test", "y_test", "class_names")


def read_npz(path: Path) -> Contents:
    """Images x (N, H, W) or (N, H, W, C), bytes, floats from 0 to 1 or booleans; labels y, numbers from 0 or words.

    `class_names` tells what the numbers mean, or in which order the words are counted. Nothing is unpickled.
    """
    arrays = _arrays(path)
    has_test = bool(arrays.keys() & {"x_test", "y_test"})
    if absent := [key for key in (KEYS[:4] if has_test else KEYS[:2]) if key not in arrays]:
        found = ", ".join(arrays) or "none of the arrays that are read"
        raise ValueError(f"{path}: the array {absent[0]} is missing, found {found}; store it there too")
    names = _class_names(arrays, path)
    train = _part(arrays, "x", "y", names, path)
    test = _part(arrays, "x_test", "y_test", names, path) if has_test else None
    kinds = [f"{part.images.dtype} {part.images.shape[1:]}" for part in (train, test or train)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"{path}: x is {kinds[0]}, x_test is {kinds[1]}; store both with one size and one type")
    return Contents(train, test, names)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UsageError(f"npz:{path}: there is no such file; write it with numpy.savez(FILE, x=images, y=labels)")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a whole .npz file; write it with numpy.savez(FILE, x=images, y=labels)")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in KEYS if key in archive}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); write it with numpy.savez(FILE, x=images, y=labels) from arrays of "
            "numbers or words: arrays of objects would have to be unpickled, which is never done"
        ) from error


def _part(arrays: dict[str, np.ndarray], x: str, y: str, names: tuple[str, ...], path: Path) -> Split:
    images, labels = _images(arrays[x], f"{path}: {x}"), arrays[y]
    if labels.shape != (len(images),):
        raise ValueError(f"{path}: {y} has shape {labels.shape}; give one label for each of {len(images)} images")
    return Split(images, _numbered(labels, names, f"{path}: {y}"))


def _images(images: np.ndarray, where: str) -> np.ndarray:
    """`images` as (N, H, W, C), bytes (uint8) or float32 from 0 to 1."""
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise ValueError(f"{where} has shape {images.shape}; give (N, H, W) or (N, H, W, C), none of them 0")
    if images.dtype.kind not in "uifb":
        raise ValueError(f"{where} has type {images.dtype}; give bytes (uint8), or floats from 0 to 1")
    kind, top = (np.float32, 1) if images.dtype.kind in "fb" else (np.uint8, 255)
    if not (images.min() >= 0 and images.max() <= top):
        found = f"{images.dtype} from {images.min()} to {images.max()}"
        raise ValueError(f"{where} holds {found}; give bytes from 0 to 255, or floats from 0 to 1: rescale it")
    return (images[..., None] if images.ndim == 3 else images).astype(kind)


def _class_names(arrays: dict[str, np.ndarray], path: Path) -> tuple[str, ...]:
    if "class_names" in arrays:
        names = tuple(map(str, arrays["class_names"].ravel()))
        if twice := [name for i, name in enumerate(names) if name in names[:i]]:
            raise ValueError(f"{path}: class_names has {twice[0]!r} more than once; give every class a name of its own")
        return names
    present = np.unique(np.concatenate([arrays[key].ravel() for key in ("y", "y_test") if key in arrays]))
    if present.dtype.kind in "ui" and not np.array_equal(present, np.arange(len(present))):
        raise ValueError(
            f"{path}: the labels are {_some(present)}; numbers must count the classes from 0 without gaps: renumber "
            "them, or add an array class_names with the name of every class"
        )
    return tuple(map(str, present))


def _numbered(labels: np.ndarray, names: tuple[str, ...], where: str) -> np.ndarray:
    """Words as their place among the class names; numbers as they are."""
    if labels.dtype.kind not in "uiU":
        raise ValueError(f"{where} has type {labels.dtype}; give whole numbers from 0, or words")
    allowed = np.array(names) if labels.dtype.kind == "U" else np.arange(len(names))
    if len(unknown := np.setdiff1d(labels, allowed)):
        raise ValueError(f"{where} has the labels {_some(unknown)}; the {len(names)} classes are {_some(allowed)}")
    if labels.dtype.kind == "U":
        return np.array([names.index(label) for label in labels], np.int64)
    return labels.astype(np.int64)


def _some(values: np.ndarray) -> str:
    return ", ".join(map(str, values[:10])) + (", …" if len(values) > 10 else "")
