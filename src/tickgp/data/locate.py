"""Where the publishers' files are: in the user's data folder, or in the cache, which fills itself."""

from __future__ import annotations

import os
from pathlib import Path

from tickgp.data.download import download, is_whole
from tickgp.data.publishers import Source
from tickgp.errors import UsageError

VARIABLE = "TICKGP_DATA"

DataDir = Path | tuple[Path | None, ...] | None
"""A user's data folder, if there is one; or several in the order in which they are searched, of which the first must be
there and those after it, which were recorded earlier, may be gone."""


class DatasetUnavailableError(ValueError):
    """Files of a dataset are not on this machine, and could not be downloaded."""


def cache_folder() -> Path:
    """The user's cache folder of this package."""
    import pooch

    return Path(pooch.os_cache("tickgp"))


def data_folders(data_dir: DataDir) -> list[Path]:
    """The user's own data folders, in the order in which they are searched: `data_dir`, then $TICKGP_DATA."""
    given, *recorded = data_dir if isinstance(data_dir, tuple) else (data_dir,)
    old = [folder for path in recorded if path and os.path.isdir(folder := path.expanduser())]
    return [*check_data_dir(given), *old, *_folder(f"${VARIABLE}", os.environ.get(VARIABLE))]


def check_data_dir(data_dir: Path | None) -> list[Path]:
    """The data folder that was given, if one was; it must be there."""
    return _folder("the data folder", data_dir)


def _folder(who: str, path: Path | str | None) -> list[Path]:
    """The folder that was named, if one was."""
    if not path:
        return []
    folder = Path(path).expanduser()
    if not os.path.isdir(folder):  # unlike folder.is_dir() where one may not look
        raise UsageError(f"{who} is {folder}, which is not a folder; make it, or name another")
    return [folder]


def find_files(source: Source, data_dir: DataDir = None) -> list[Path]:
    """Every file of `source`, in its order: from `data_dir`, else $TICKGP_DATA, else the cache, else downloaded there.

    Files of the cache are checked by sha256, and downloaded again if wrong; files in a user's own folder are trusted.
    """
    folders, cache = data_folders(data_dir), cache_folder()
    found = {name: _in_folders(name, folders) for name in source.files}
    missing = [name for name, path in found.items() if not (path or is_whole(cache / name, source.files[name]))]
    if missing:
        _download(source, missing, [*folders, cache])
    return [path or cache / name for name, path in found.items()]


def _in_folders(name: str, folders: list[Path]) -> Path | None:
    """The first file of that name, packed or unpacked."""
    paths = [folder / form for folder in folders for form in (name, name.removesuffix(".gz"))]
    return next(filter(Path.is_file, paths), None)


def _download(source: Source, missing: list[str], folders: list[Path]) -> None:
    try:
        download(source, missing, folders[-1])
    except (OSError, ValueError) as error:
        raise DatasetUnavailableError(
            f"{', '.join(missing)}: not in {' or '.join(map(str, folders))}, and the download failed "
            f"({_reason(error, source)}). Connect and run again, or put the files into a folder, under these paths, "
            f"and name that folder by --data-dir or ${VARIABLE}"
        ) from error


def _reason(error: Exception, source: Source) -> str:
    """Errors of a connection print a page of nested causes: their kind, and the address, is enough."""
    import requests

    if isinstance(error, requests.RequestException) and not isinstance(error, requests.HTTPError):
        return f"{type(error).__name__} at {source.url}"
    return str(error)
