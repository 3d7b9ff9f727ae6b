"""A folder of images: one subfolder for each class, with or without train/ and test/ above them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from tickgp.data.contents import Contents, Split
from tickgp.data.pictures import Fit, Size, picture_size, read_picture
from tickgp.data.pixels import to_channels
from tickgp.errors import UsageError

LAYOUT = "give each class a folder with its images, or put such folders into train/ and test/"
HIDDEN = {"__macosx", "thumbs.db", "desktop.ini"}  # and every name that starts with a dot
# Passed over; a file with any other suffix, or with none, must be an image.
TEXTS = {".txt", ".md", ".rst", ".html", ".htm", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml"}
OTHERS = {".ini", ".cfg", ".log", ".pdf", ".zip", ".gz", ".tar", ".py", ".ipynb", ".sh", ".npy", ".npz", ".db"}
SUGGESTIONS = (8, 32)  # pixels: little can be seen on less; the paper's largest images
DARK = 63  # of 255: what 14 bits come to when they are saved as 16

Files = dict[str, list[Path]]
"""Image files of each class."""


def read_folder(
    path: Path, *, image_size: Size | None = None, fit: Fit = "pad", skip_bad_images: bool = False
) -> Contents:
    """The images below `path`, classes and files in the order of their names, all of one size (see `read_picture`).

    Grey if every picture is, in colour otherwise. An unreadable file is an error, or is left out and counted.
    """
    parts = find_images(path)
    names = tuple(parts[0])
    if len(names) < 2:
        raise UsageError(f"{path} has {len(names)} class folders; at least 2 are needed: {LAYOUT}")
    size = image_size or _common_size([file for part in parts for files in part.values() for file in files])
    read = [_read_part(path, part, names, size, fit, skip_bad_images) for part in parts]
    channels = max(split.images.shape[-1] for split, _ in read)
    splits = [split.map_images(lambda images: to_channels(images, channels)) for split, _ in read]
    notes = _skipped([file for _, bad in read for file in bad], sum(map(len, splits)))
    notes += tuple(f"class {name!r} has no test images" for name in names if name not in parts[-1])
    notes += _dark(max(int(split.images.max()) for split in splits))
    return Contents(splits[0], splits[1] if len(splits) == 2 else None, names, notes)


def find_images(path: Path) -> list[Files]:
    """The image files of each class: [all], or [train, test]."""
    if not path.is_dir():
        raise UsageError(f"folder:{path}: there is no such folder; give one that has a folder for each class in it")
    folders = {folder.name: folder for folder in _visible(path) if folder.is_dir()}
    if folders.keys() != {"train", "test"} or not any(map(_holds_folders, folders.values())):
        return [_classes(path)]
    train, test = _classes(folders["train"]), _classes(folders["test"])
    if strangers := test.keys() - train.keys():
        raise UsageError(f"{folders['test'] / min(strangers)} is a class that {folders['train']} lacks; add it there")
    return [train, test]


def possible_images(path: Path) -> list[Path]:
    """All files below `path` that may be images, in the order of their names."""
    return [file for entry in _visible(path) for file in (possible_images(entry) if entry.is_dir() else [entry])]


def _classes(path: Path) -> Files:
    if loose := [file for file in _visible(path) if not file.is_dir()]:
        raise UsageError(f"{loose[0]} lies beside the class folders; {LAYOUT}")
    return {folder.name: _images_in(folder) for folder in _visible(path)}


def _images_in(folder: Path) -> list[Path]:
    files = list(_visible(folder))
    if nested := [file for file in files if file.is_dir()]:
        raise UsageError(f"{nested[0]} is a folder inside of what should be one class; {LAYOUT}")
    if not files:
        raise UsageError(f"{folder} has no images; add some, or remove the folder")
    return files


def _visible(path: Path) -> Iterator[Path]:
    """Folders and possible images in `path`, ordered by name: the same order on every file system."""
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
        hidden = entry.name.startswith(".") or entry.name.lower() in HIDDEN
        if not hidden and (entry.is_dir() or entry.suffix.lower() not in TEXTS | OTHERS):
            yield entry


def _holds_folders(path: Path) -> bool:
    return any(entry.is_dir() for entry in _visible(path))


def _common_size(files: list[Path]) -> Size | None:
    """The one size of all pictures; None if no header can be read."""
    known = [size for size in map(picture_size, files) if size is not None]
    sizes = set(known)
    if len(sizes) <= 1:
        return next(iter(sizes), None)
    small, large = min(sizes), max(sizes)
    least, most = SUGGESTIONS
    side = max(least, min(most, int(median(map(min, known)))))
    raise UsageError(
        f"the images have {len(sizes)} sizes, among them {small[0]}×{small[1]} and {large[0]}×{large[1]} (height × "
        f"width); a model needs one size: choose it, for instance --image-size {side} (in Python: image_size={side})"
    )


def _read_part(
    path: Path, part: Files, names: tuple[str, ...], size: Size | None, fit: Fit, skip: bool
) -> tuple[Split, list[Path]]:
    """Images of all classes, with their files below `path`, and the files that could not be read."""
    pictures: dict[Path, np.ndarray] = {}
    labels: list[int] = []
    bad: list[Path] = []
    for name, files in part.items():
        good = dict(_readable(files, size, fit, skip, bad))
        if not good:
            raise ValueError(f"none of the {len(files)} images in {files[0].parent} can be read; replace them")
        pictures |= good
        labels += [names.index(name)] * len(good)
    channels = max(picture.shape[-1] for picture in pictures.values())
    images = np.stack([to_channels(picture, channels) for picture in pictures.values()])
    return Split(images, np.array(labels, np.int64), tuple(file.relative_to(path).as_posix() for file in pictures)), bad


def _readable(
    files: list[Path], size: Size | None, fit: Fit, skip: bool, bad: list[Path]
) -> Iterator[tuple[Path, np.ndarray]]:
    for file in files:
        try:
            yield file, read_picture(file, size, fit=fit)
        except ValueError as error:
            if not skip:
                raise ValueError(f"{error}, or leave such files out with --skip-bad-images") from error
            bad.append(file)


def _dark(brightest: int) -> tuple[str, ...]:
    if brightest > DARK:
        return ()
    return (
        f"the brightest pixel of all images is {brightest} of 255, so that little tells them apart; if their files "
        "have 16 bits and use fewer, stretch them first, all by the same factor",
    )


def _skipped(bad: list[Path], num_read: int) -> tuple[str, ...]:
    if not bad:
        return ()
    shown = ", ".join(map(str, bad[:3])) + (", …" if len(bad) > 3 else "")
    return (f"{len(bad)} of {len(bad) + num_read} images could not be read and were left out: {shown}",)
