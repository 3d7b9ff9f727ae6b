"""The publishers' own files, where they are at hand."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from tickgp.data.catalogue import CATALOGUE
from tickgp.data.dataset import load_dataset
from tickgp.data.download import is_whole
from tickgp.data.publishers import CIFAR10, FASHION_MNIST, MNIST, SEMEION, Source

FOLDERS = [Path(os.environ["TICKGP_DATA"])] if "TICKGP_DATA" in os.environ else []
FOLDERS += [Path(__file__).parents[3] / "shared" / "data"]


def folder_with(source: Source) -> Path:
    for folder in FOLDERS:
        if all((folder / name).is_file() for name in source.files):
            return folder
    pytest.skip(f"{', '.join(source.files)} not found in $TICKGP_DATA or ../shared/data")


def check(name: str, source: Source, folder: Path) -> np.ndarray:
    """The files are those we know, and hold what the catalogue says; the counts of the training labels."""
    assert all(is_whole(folder / path, sha256) for path, sha256 in source.files.items())
    data, entry = load_dataset(name, data_dir=folder), CATALOGUE[name]
    assert data.notes == ()
    assert data.train.images.shape[1:] == data.test.images.shape[1:] == entry.image
    assert len(data.train) + len(data.test) == entry.train + entry.test
    assert data.class_names == entry.class_names
    assert data.train.images.dtype == np.uint8
    return np.bincount(data.train.labels)


def test_mnist():
    counts = check("mnist", MNIST, folder_with(MNIST))
    assert counts.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_fashion_mnist():
    assert check("fashion-mnist", FASHION_MNIST, folder_with(FASHION_MNIST)).tolist() == [6000] * 10


def test_semeion():
    counts = check("semeion", SEMEION, folder_with(SEMEION))
    assert counts.sum() == 1274
    data = load_dataset("semeion", data_dir=folder_with(SEMEION), test_share=1.0, like=(28, 28, 1))
    assert data.test.images.shape == (1593, 28, 28, 1)
    assert np.bincount(data.test.labels).tolist() == [161, 162, 159, 159, 161, 159, 161, 158, 155, 158]


@pytest.fixture(scope="module")
def cifar_folder(tmp_path_factory) -> Path:
    """A data folder with CIFAR-10: as it is, or unpacked by the script that lies beside its packed batches."""
    scripts = [folder / "unpack.py" for folder in FOLDERS if (folder / "unpack.py").is_file()]
    if not scripts:
        return folder_with(CIFAR10)
    spec = importlib.util.spec_from_file_location("unpack", scripts[0])
    unpack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unpack)
    folder = tmp_path_factory.mktemp("cifar")
    unpack.main(folder, ["cifar-10"])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "cifar10-grey"])
def test_cifar(name, cifar_folder):
    assert check(name, CIFAR10, cifar_folder).tolist() == [5000] * 10
