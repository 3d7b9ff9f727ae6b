"""The folder of a run: its files, and how they are written and read.

config.toml         the settings
metrics.jsonl       a line for each report of training
checkpoint/         the last states of training
metrics.json        the final metrics, written last: a run without them is not finished; equal runs have equal files
predictions.csv     what is said of each test image, with its file or number, and who decides: equal as well
model.safetensors   the trained model, with what prediction needs
trained-on.safetensors  digests of the images that it was trained on: none of them may count later
manifest.json       version, command, seed, dataset, libraries, device, seconds
report.html         all this for a person
evaluations/        metrics on other datasets
tensorboard/        what TensorBoard shows, if it was asked for
previous-run/       the finished run that this one overwrites, until it has finished itself
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tickgp.data.dataset import Dataset, load_dataset
from tickgp.data.locate import DataDir, DatasetUnavailableError, check_data_dir
from tickgp.errors import UsageError
from tickgp.files import write_whole
from tickgp.runs.places import is_there, resolved, whole_name
from tickgp.training.config import Config, DataConfig
from tickgp.training.tensors import read_some, save_tree
from tickgp.training.toml import format_config, read_config

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

PREVIOUS = "previous-run"
_TRAINED_ON = "trained-on.safetensors"
_MODEL = ("model.safetensors", _TRAINED_ON)
_RESULTS = ("metrics.json", "predictions.csv", "metrics.jsonl", *_MODEL, "manifest.json", "report.html")
_FILES = (*_RESULTS, "config.toml")
_FOLDERS = ("checkpoint", "evaluations", "tensorboard")


def check_free(folder: Path, *, overwrite: bool = False) -> None:
    """A folder for a new run must be empty, or hold a run that may be overwritten."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(f"{there} is a file; give another --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"nothing may be written into {there}; give another --out")
    if not folder.exists() or all(path.match(".*.tmp") for path in folder.iterdir()):  # what a kill may leave
        return
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} is not empty and holds no run, so nothing is written there; give another --out")
    try:
        read_config(folder / "config.toml")
    except ValueError as error:
        raise UsageError(
            f"{folder} may hold a run of another version ({error}), so nothing is written there; if it does, remove "
            "it, or give another --out"
        ) from None
    if not overwrite:
        raise UsageError(f"{folder} holds a run; give another --out, --overwrite it, or continue it: --resume {folder}")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keeps other processes from training in `folder`, which is made if need be, until this ends, however it ends.

    Where folders cannot be locked, as on Windows or on some network disks, it keeps nobody.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"another process is training in {folder}; wait until it has ended") from None
    except OSError:  # a disk without locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def prepare(config: Config, folder: Path, *, overwrite: bool = False) -> None:
    """A new folder for a run with these settings, in place of the run that it holds, if that may be.

    A finished run is kept in `PREVIOUS` until the new one has finished, whatever happens to that.
    """
    check_free(folder, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "metrics.json").is_file():
        _keep(folder)
    # metrics.json first, config.toml not at all: a kill leaves what is known as an unfinished run.
    for name in _RESULTS:
        (folder / name).unlink(missing_ok=True)
    for name in _FOLDERS:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)  # or fail: an old checkpoint must not pass for one of this run
    write_whole(folder / "config.toml", format_config(resolved(config)).encode())


def _keep(folder: Path) -> None:
    """A copy of the run in `folder` as its folder `PREVIOUS`: whole, or not there."""
    half, whole = folder / f".{PREVIOUS}", folder / PREVIOUS
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    for name in _FILES:
        if (folder / name).is_file():
            shutil.copy2(folder / name, half / name)
    for name in _FOLDERS:
        if (folder / name).is_dir():
            shutil.copytree(folder / name, half / name)
    shutil.rmtree(whole, ignore_errors=True)
    half.rename(whole)


def forget_previous(folder: Path) -> None:
    """A finished run takes the place of the one before it."""
    for name in (PREVIOUS, f".{PREVIOUS}"):
        shutil.rmtree(folder / name, ignore_errors=True)


def withdraw(folder: Path) -> None:
    """What was said of a model that another one is about to replace is removed: its metrics, also on other data."""
    (folder / "metrics.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "evaluations", ignore_errors=True)


def remove_leftovers(folder: Path) -> list[str]:
    """Files that a killed run was writing are removed; returns their names."""
    found = [*folder.glob(".*.tmp"), *(folder / "checkpoint").glob(".*.tmp")]
    for path in found:
        path.unlink(missing_ok=True)
    return [path.name for path in found]


def load_data(config: Config, data_dir: DataDir = None) -> Dataset:
    """The images that the settings name; `data_dir` stands in for the data folder that they name."""
    settings = config.data
    return load_dataset(
        settings.dataset,
        data_dir=data_dir or settings.data_dir,
        image_size=settings.image_size,
        fit=settings.fit,
        grey=settings.grey,
        skip_bad_images=settings.skip_bad_images,
        test_share=settings.test_share,
        validation_share=settings.validation_share,
        classes=settings.classes,
        train_images=settings.train_images,
        test_images=settings.test_images,
        seed=config.seed,
    )


def load_own(folder: Path, config: Config, data_dir: Path | None = None, dataset: str | None = None) -> Dataset:
    """The images that the run in `folder` was begun with, if need be from another place, `dataset`."""
    recorded = recorded_data(folder) or config.data
    name = whole_name(dataset or recorded.dataset)
    if dataset is None and not is_there(name):
        raise DatasetUnavailableError(
            f"{folder} was trained on {name}, which is not there any more; put it back, or name the place that it has "
            "now with --dataset to `tickgp evaluate`, `tickgp report` or `tickgp train --resume`"
        )
    data = load_data(replace(config, data=replace(config.data, dataset=name)), (data_dir, recorded.data_dir))
    _check_unchanged(folder, data)
    return data


def own_data(folder: Path, config: Config, dataset: str, data_dir: Path | None = None) -> tuple[Dataset | None, bool]:
    """The images that the run in `folder` was trained on, None if they cannot be had, and whether `dataset` is these.

    They may have been moved to the place that `dataset` names: the manifest knows them.
    """
    check_data_dir(data_dir)
    is_named = whole_name(dataset) == whole_name((recorded_data(folder) or config.data).dataset)
    try:
        return load_own(folder, config, data_dir), is_named
    except ValueError:  # gone, changed, or no longer to be read
        if is_named:
            raise
    if not (folder / "manifest.json").is_file():
        return None, False
    try:
        return load_own(folder, config, data_dir, dataset), True
    except ValueError:
        return None, False


def keep_trained_on(folder: Path, digests: np.ndarray) -> None:
    """Leave digests of training images in the folder of the run, beside those that are there from what it started from.

    The images may be moved, changed or gone later.
    """
    before = trained_on(folder)
    save_tree(folder / _TRAINED_ON, {"digests": np.unique(digests if before is None else [*before, *digests])})


def trained_on(folder: Path) -> np.ndarray | None:
    """Digests of the images that the model in `folder` was trained on; None if it is not that of a run."""
    path = folder / _TRAINED_ON
    try:
        return read_some(path, "digests")[0] if path.is_file() else None
    except KeyError:
        raise ValueError(f"{path} is damaged: it has no digests; remove it") from None


def recorded_data(folder: Path) -> DataConfig | None:
    """Where the images of the run in `folder` were last, which its model file does not say; None without a run."""
    path = folder / "config.toml"
    return read_config(path).data if path.is_file() else None


def _check_unchanged(folder: Path, data: Dataset) -> None:
    path = folder / "manifest.json"
    if not path.is_file() or (before := read_json(path)["dataset"])["sha256"] == data.sha256():
        return
    then, now = before["images"], sum(map(len, data.parts))
    how = "images or labels have changed" if then == now else f"it had {then:,} images and has {now:,} now"
    raise ValueError(f"{data.name} is no longer what {folder} was trained on: {how}; restore them, or train anew")


def read_history(folder: Path, last: int = sys.maxsize) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl up to the step `last`; one that a crash cut short is left out."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    return [line for line in map(_parse, lines) if line["step"] <= last]


def write_history(folder: Path, lines: Sequence[dict[str, Any]]) -> None:
    """These lines as metrics.jsonl."""
    write_whole(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a run."""
    if not path.is_file():
        raise lacks(path.parent, path.name)
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); restore it, or make the run anew") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object; restore it, or make the run anew")
    return content


def lacks(folder: Path, what: str) -> UsageError:
    """What to say of a folder that should hold a finished run."""
    if not folder.is_dir():
        return UsageError(f"there is no folder {folder}; give that of a run")
    if not (folder / "config.toml").is_file():
        return UsageError(f"{folder} is not the folder of a run: it has no {what}; give one that `tickgp train` wrote")
    return UsageError(f"{folder} has no {what} yet; finish the run with `tickgp train --resume {folder}`")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """`content` as a JSON file, whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    write_whole(path, (json.dumps(content, indent=2) + "\n").encode())


def _parse(line: str) -> dict[str, Any]:
    try:
        return {"step": int(json.loads(line)["step"]), **json.loads(line)}
    except (json.JSONDecodeError, KeyError, TypeError):
        return {"step": sys.maxsize + 1}
