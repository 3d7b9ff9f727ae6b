"""The datasets that have a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tickgp.data.cifar import read_cifar
from tickgp.data.contents import Contents
from tickgp.data.digits import read_digits
from tickgp.data.idx import read_idx_pair
from tickgp.data.locate import DataDir, find_files
from tickgp.data.pixels import to_grey
from tickgp.data.publishers import CIFAR10, FASHION_MNIST, MNIST, SEMEION, Source
from tickgp.data.semeion import read_semeion

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Entry:
    """What is known of a dataset before it is read, and how it is read from a data folder."""

    about: str
    train: int
    test: int
    """Images of each part; 0 if it has no such part of its own, and is then split when it is loaded."""
    image: tuple[int, int, int]
    """Height, width and channels."""
    class_names: tuple[str, ...]
    read: Callable[[DataDir], Contents]


def _idx(source: Source, class_names: tuple[str, ...]) -> Callable[[DataDir], Contents]:
    def read(data_dir: DataDir) -> Contents:
        train_images, train_labels, test_images, test_labels = find_files(source, data_dir)
        train = read_idx_pair(train_images, train_labels, len(class_names))
        test = read_idx_pair(test_images, test_labels, len(class_names))
        return Contents(train, test, class_names)

    return read


def _semeion(data_dir: DataDir) -> Contents:
    return Contents(read_semeion(*find_files(SEMEION, data_dir)), None, DIGITS)


def _cifar10(data_dir: DataDir) -> Contents:
    *train, test = find_files(CIFAR10, data_dir)
    return Contents(read_cifar(train), read_cifar([test]), OBJECTS)


def _cifar10_grey(data_dir: DataDir) -> Contents:
    return _cifar10(data_dir).map_images(to_grey)


CATALOGUE = {
    "digits": Entry("handwritten digits, part of scikit-learn", 1437, 360, (8, 8, 1), DIGITS, lambda _: read_digits()),
    "mnist": Entry("handwritten digits", 60_000, 10_000, (28, 28, 1), DIGITS, _idx(MNIST, DIGITS)),
    "fashion-mnist": Entry("clothes", 60_000, 10_000, (28, 28, 1), CLOTHES, _idx(FASHION_MNIST, CLOTHES)),
    "cifar10": Entry("animals and vehicles", 50_000, 10_000, (32, 32, 3), OBJECTS, _cifar10),
    "cifar10-grey": Entry("animals and vehicles, grey", 50_000, 10_000, (32, 32, 1), OBJECTS, _cifar10_grey),
    "semeion": Entry("handwritten digits, black and white", 1593, 0, (16, 16, 1), DIGITS, _semeion),
}
