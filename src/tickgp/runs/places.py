"""Where the images of a run are, however and from wherever their path is written."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

from tickgp.training.config import Config


def resolved(config: Config) -> Config:
    """`config` with whole paths: a run is used from other folders than it was begun in."""
    data, training = config.data, config.training
    data_dir = data.data_dir and data.data_dir.expanduser().resolve()
    start = training.start_from and training.start_from.expanduser()
    return replace(
        config,
        data=replace(data, dataset=whole_name(data.dataset), data_dir=data_dir),
        training=replace(training, start_from=start.resolve() if start and start.is_dir() else start),
    )


def without_folders(config: Config) -> Config:
    """`config` without the folders of one machine that are not part of its dataset's name."""
    data, training = replace(config.data, data_dir=None), replace(config.training, start_from=None)
    return replace(config, data=data, training=training)


def whole_name(dataset: str) -> str:
    """The name of a dataset, the same however its path is written."""
    place = _place(dataset)
    return dataset if place is None else f"{dataset.partition(':')[0]}:{place.resolve()}"


def short_name(dataset: str) -> str:
    """A dataset's own name, or the last part of its path."""
    place = _place(dataset)
    return dataset if place is None else place.resolve().name


def file_name(dataset: str) -> str:
    """A name that no other dataset has: that of a path comes with a digest of all of it."""
    digest = hashlib.sha256(os.fsencode(whole_name(dataset))).hexdigest()
    return short_name(dataset) if _place(dataset) is None else f"{short_name(dataset)}-{digest[:8]}"


def is_there(dataset: str) -> bool:
    """Whether there is something at the path of a dataset, where it has one."""
    place = _place(dataset)
    return place is None or os.path.exists(place)  # unlike place.exists() where one may not look


def _place(dataset: str) -> Path | None:
    """The path of a dataset; None if it has a name alone."""
    kind, _, path = dataset.partition(":")
    return Path(path).expanduser() if path and kind in ("folder", "npz") else None
