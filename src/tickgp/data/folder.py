"""A folder of images: one subfolder for each class, with or without train/, test/ and val/ above them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np

from tickgp.data.contents import Contents, Split
from tickgp.data.pictures import Fit, Size, picture_size, read_picture
from tickgp.data.pixels import to_channels
from tickgp.errors import UsageError

LAYOUT = "give each class a folder with its images, or put such folders into train/ and test/, and if you like val/"
PARTS = {"train": "train", "test": "test", **dict.fromkeys(("val", "valid", "validation"), "validation")}
HIDDEN = {"__macosx", "thumbs.db", "desktop.ini"}  # and every name that starts with a dot
# Passed over; a file with any other suffix, or with none, must be an image.
TEXTS = {".txt", ".md", ".rst", ".html", ".htm", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml"}
OTHERS = {".ini", ".cfg", ".log", ".pdf", ".zip", ".gz", ".tar", ".py", ".ipynb", ".sh", ".npy", ".npz", ".db"}
SUGGESTIONS = (8, 32)  # pixels: little can be seen on less; the paper's largest images
LARGEST = 128  # pixels that images may have along a side if nobody has asked for more

SKIP = "--skip-bad-images (in Python: skip_bad_images=True)"

Files = dict[str, list[Path]]
"""Image files of each class."""


def read_folder(
    path: Path,
    *,
    image_size: Size | None = None,
    fit: Fit = "pad",
    skip_bad_images: bool = False,
    least_classes: int = 2,
) -> Contents:
    """The images below `path`, classes and files in the order of their names, all of one size (see `read_picture`).

    Grey if every picture is, in colour otherwise. An unreadable file is an error, or is left out and counted.
    """
    parts = find_images(path)
    names = tuple(parts["train"])
    if len(names) < least_classes:
        raise UsageError(f"{path} has {len(names)} class folders; at least {least_classes} are needed: {LAYOUT}")
    files = [file for part in parts.values() for files in part.values() for file in files]
    size = image_size or _common_size(files)
    if size is not None:
        _check_memory(len(files), size)
    read = {kind: _read_part(path, part, names, size, fit, skip_bad_images) for kind, part in parts.items()}
    channels = max(split.images.shape[-1] for split, _ in read.values())
    splits = {kind: split.map_images(lambda images: to_channels(images, channels)) for kind, (split, _) in read.items()}
    notes = _skipped([file for _, bad in read.values() for file in bad], sum(map(len, splits.values())))
    lacking = [(name, kind) for kind, part in parts.items() for name in names if name not in part]
    so = {"validation": ", so that nothing is promised for new images of it"}
    notes += tuple(f"class {name!r} has no {kind} images{so.get(kind, '')}" for name, kind in lacking)
    return Contents(splits["train"], splits.get("test"), names, notes, splits.get("validation"))


def find_images(path: Path) -> dict[str, Files]:
    """The image files of each class: all as train, or as train, test and, where it is there, validation."""
    if not path.is_dir():
        raise UsageError(f"folder:{path}: there is no such folder; give one that has a folder for each class in it")
    folders = _parts(path)
    parts = {kind: _classes(folder) for kind, folder in folders.items()}
    for kind, part in parts.items():
        if not part:
            raise UsageError(f"{folders[kind]} has no class folders; {LAYOUT}")
        if strangers := part.keys() - parts["train"].keys():
            stranger = folders[kind] / min(strangers)
            raise UsageError(f"{stranger} is a class that {folders['train']} lacks; add it there")
    return parts


def _parts(path: Path) -> dict[str, Path]:
    """The folders of the classes to train on, to test and to make choices on; `path` itself if they are not apart."""
    folders = [folder for folder in _visible(path) if folder.is_dir()]
    if not any(folder.name.lower() in PARTS and _holds_folders(folder) for folder in folders):
        return {"train": path}
    parts = {PARTS.get(folder.name.lower(), folder.name): folder for folder in folders}
    if len(parts) < len(folders) or parts.keys() | {"validation"} != {*PARTS.values()}:
        names = ", ".join(folder.name for folder in folders)
        lacking = [name for name in ("train", "test") if name not in parts]
        wrong = f"but no {lacking[0]}" if lacking else "more than train and test, with or without val"
        raise UsageError(f"{path} has the folders {names}, {wrong}; {LAYOUT}")
    return {kind: parts[kind] for kind in PARTS.values() if kind in parts}


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
    """The one size of all pictures, if models can work through it; None if no header can be read."""
    known = [size for size in map(picture_size, files) if size is not None]
    sizes = set(known)
    if not sizes or (len(sizes) == 1 and max(known[0]) <= LARGEST):
        return next(iter(sizes), None)
    small, large = min(sizes), max(sizes)
    least, most = SUGGESTIONS
    side = max(least, min(most, int(median(map(min, known)))))
    instance = f"for instance --image-size {side} (in Python: image_size={side})"
    if len(sizes) == 1:
        raise UsageError(
            f"the images are {large[0]}×{large[1]} pixels, more than these models can work through; choose a size, "
            f"{instance}"
        )
    raise UsageError(
        f"the images have {len(sizes)} sizes, among them {small[0]}×{small[1]} and {large[0]}×{large[1]} (height × "
        f"width); a model needs one size: choose it, {instance}"
    )


def _check_memory(number: int, size: Size) -> None:
    """Images that cannot all be in memory, three bytes a pixel and at least one to stack them, are refused unread."""
    if not hasattr(os, "sysconf"):  # on Windows
        return
    needed, there = 4 * number * size[0] * size[1], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise UsageError(
            f"to read {number:,} images of {size[0]}×{size[1]} pixels takes {needed / 2**30:,.0f} GiB of memory, and "
            f"this machine has {there / 2**30:,.0f}; choose a smaller size, for instance --image-size {SUGGESTIONS[1]} "
            f"(in Python: image_size={SUGGESTIONS[1]})"
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
                raise ValueError(f"{error}, or leave such files out with {SKIP}") from error
            bad.append(file)


def _skipped(bad: list[Path], num_read: int) -> tuple[str, ...]:
    if not bad:
        return ()
    shown = ", ".join(map(str, bad[:3])) + (", …" if len(bad) > 3 else "")
    return (f"{len(bad)} of {len(bad) + num_read} images could not be read and were left out: {shown}",)
