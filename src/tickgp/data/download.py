"""Downloads that are whole and checked, or not there at all."""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from tickgp.data.progress import Bar
from tickgp.data.publishers import Source

TIMEOUT = 30  # seconds without a byte
ABANDONED = 3600  # seconds since a temporary file was last written to


def download(source: Source, names: Sequence[str], folder: Path) -> None:
    """Put the files `names` of `source` into `folder`; on OSError or ValueError, no part of a file is left there."""
    if source.archive is None:
        for name in names:
            with _temporary(folder / name) as part:
                _fetch(source.url + Path(name).name, part, name)
                _keep(part, folder / name, source.files[name], source.url)
        return
    with _temporary(folder / Path(source.url).name) as archive:
        _fetch(source.url, archive, Path(source.url).name)
        _check(archive, source.archive, source.url)
        with tarfile.open(archive) as tar:
            for name in names:
                with _temporary(folder / name) as part:
                    _extract(tar, name, part)
                    _keep(part, folder / name, source.files[name], source.url)


def is_whole(path: Path, sha256: str) -> bool:
    """The file is there, and has this sha256."""
    import pooch

    return path.is_file() and pooch.file_hash(str(path), alg="sha256") == sha256


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """A name beside `target` to write to, removed at the end unless it has become `target`.

    A killed process cannot remove its own: nobody reads it under that name, and the next download clears it away.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for old in target.parent.glob(".*.part"):
        with suppress(FileNotFoundError):  # another process may be as tidy, or have finished
            if time.time() - old.stat().st_mtime > ABANDONED:
                old.unlink()
    part = target.parent / f".{uuid4().hex}.part"
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _fetch(url: str, part: Path, title: str) -> None:
    import pooch
    import requests

    packed_stays_packed = {"Accept-Encoding": "identity"}
    with Bar(title) as bar:
        get = pooch.HTTPDownloader(bar, chunk_size=1 << 16, timeout=TIMEOUT, headers=packed_stays_packed)
        try:
            get(url, str(part), None)
        except requests.HTTPError as error:
            if error.response is not None:
                error.response.close()  # pooch leaves it open
            raise


def _extract(tar: tarfile.TarFile, name: str, part: Path) -> None:
    with part.open("wb") as target:
        if name not in tar.getnames() or (member := tar.extractfile(name)) is None:
            raise ValueError(f"the archive has no file {name}")
        shutil.copyfileobj(member, target)


def _check(part: Path, sha256: str, url: str) -> None:
    if not is_whole(part, sha256):
        raise ValueError(f"what came from {url} has a wrong sha256, not {sha256}")


def _keep(part: Path, target: Path, sha256: str, url: str) -> None:
    """Give a checked file its name, in one step, once it is on the disk."""
    _check(part, sha256, url)
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(target)
