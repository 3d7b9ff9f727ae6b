"""IDX, the format of MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from tickgp.data.contents import Split, check_labels, damaged

BYTES = 8  # the format's code for the type "unsigned byte", the only one the publishers use


def read_idx_pair(images: Path, labels: Path, num_classes: int) -> Split:
    """Grey images (N, H, W, 1) from one file, and their labels from another."""
    pixels = read_idx(images, ndim=3)[..., None]
    return Split(pixels, check_labels(read_idx(labels, ndim=1), len(pixels), num_classes, labels))


def read_idx(path: Path, *, ndim: int) -> np.ndarray:
    """An array of bytes with `ndim` dimensions, from a file packed with gzip or plain.

    Layout: 0, 0, 8 (the type), ndim; each dimension in 4 bytes, the most significant first; the bytes of the array.
    """
    content, start = _unpacked(path), 4 + 4 * ndim
    if content[:4] != bytes([0, 0, BYTES, ndim]):
        raise damaged(path, f"starts with {_hex(content[:4])}", f"{_hex(bytes([0, 0, BYTES, ndim]))} (IDX)")
    if len(content) < start:
        raise damaged(path, f"{len(content)} bytes", f"a header of {start} bytes")
    shape = [int(size) for size in np.frombuffer(content, ">u4", ndim, 4)]
    if len(content) - start != math.prod(shape):
        given = "×".join(map(str, shape))
        raise damaged(path, f"{len(content) - start} bytes after the header", f"{math.prod(shape)} for shape {given}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _unpacked(path: Path) -> bytes:
    """The file's content; whether it is packed is seen from its first bytes, not from its name."""
    content = path.read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, f"gzip cannot unpack it ({error})", "a whole gzip file") from error


def _hex(content: bytes) -> str:
    return content.hex(" ") or "nothing"
