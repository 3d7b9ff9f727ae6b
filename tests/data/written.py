"""Small files as the publishers would have written them."""

import gzip
import struct
from pathlib import Path

import numpy as np


def idx(array: np.ndarray) -> bytes:
    """The array in the IDX format."""
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def cifar(images: np.ndarray, labels: np.ndarray) -> bytes:
    """Images (N, 32, 32, 3) and labels as rows of CIFAR's binary version."""
    return b"".join(
        bytes([label]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))
        for image, label in zip(images, labels, strict=True)
    )


def semeion(images: np.ndarray, labels: np.ndarray) -> str:
    """Images (N, 16, 16) of 0 and 1, and digits, as lines of Semeion."""
    return "".join(
        " ".join(f"{pixel:.4f}" for pixel in image.ravel())
        + " "
        + " ".join(str(int(k == y)) for k in range(10))
        + " \n"
        for image, y in zip(images, labels, strict=True)
    )


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def put(path: Path, content: bytes) -> Path:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def mnist_folder(folder: Path, name: str = "mnist", train: int = 20, test: int = 10) -> Path:
    """A data folder with a little MNIST in it."""
    for part, count in (("train", train), ("t10k", test)):
        labels = np.arange(count) % 10
        put(folder / name / f"{part}-images-idx3-ubyte.gz", gzip.compress(idx(random_bytes(count, 28, 28))))
        put(folder / name / f"{part}-labels-idx1-ubyte.gz", gzip.compress(idx(labels)))
    return folder
