"""Datasets by their names."""

import subprocess
import sys
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from written import cifar, idx, mnist_folder, put, random_bytes, semeion

from tickgp.data.contents import Split
from tickgp.data.dataset import load_dataset
from tickgp.data.pixels import to_grey
from tickgp.errors import UsageError


def test_import_loads_nothing_heavy():
    heavy = ("jax", "matplotlib", "sklearn", "PIL", "pooch", "requests")
    check = f"import sys, tickgp.data.dataset; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_digits_are_split_as_ever():
    digits, data = load_digits(), load_dataset("digits", seed=7)
    assert repr(data.train) == f"Split({len(data.train)} images of 8×8×1, float32)"
    expected = train_test_split(digits.images, digits.target, test_size=0.2, stratify=digits.target, random_state=0)
    found = (16 * data.train.images[..., 0], 16 * data.test.images[..., 0], data.train.labels, data.test.labels)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert data.train.images.dtype == np.float32
    assert data.notes == ()
    with pytest.raises(UsageError, match=r"a test share of 0\.5 was given, and digits has test images of its own"):
        load_dataset("digits", test_share=0.5)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_datasets(tmp_path, name):
    data = load_dataset(name, data_dir=mnist_folder(tmp_path, name))
    assert data.train.images.shape == (20, 28, 28, 1)
    assert data.test.labels.tolist() == list(range(10))
    assert len(data.class_names) == 10
    assert data.notes == (f"{name} has 20 + 10 images here; the published one has 60000 + 10000",)


def test_a_mixed_up_file_is_named(tmp_path):
    put(mnist_folder(tmp_path) / "mnist" / "t10k-images-idx3-ubyte.gz", idx(random_bytes(9, 28, 28)))
    with pytest.raises(ValueError, match=r"t10k-labels-idx1-ubyte\.gz: 10 labels for 9 images"):
        load_dataset("mnist", data_dir=tmp_path)


@pytest.fixture
def cifar_folder(tmp_path):
    for number, name in enumerate(["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"]):
        batch = cifar(random_bytes(2, 32, 32, 3, seed=number), [number, 5 + number])
        put(tmp_path / "cifar-10-batches-bin" / f"{name}.bin", batch)
    put(tmp_path / "cifar-10-batches-bin" / "test_batch.bin", cifar(random_bytes(1, 32, 32, 3, seed=9), [3]))
    return tmp_path


def test_cifar(cifar_folder):
    data = load_dataset("cifar10", data_dir=cifar_folder)
    assert data.train.labels.tolist() == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]
    np.testing.assert_array_equal(data.train.images[2:4], random_bytes(2, 32, 32, 3, seed=1))
    np.testing.assert_array_equal(data.test.images, random_bytes(1, 32, 32, 3, seed=9))


def test_grey_cifar(cifar_folder):
    colour, grey = (load_dataset(name, data_dir=cifar_folder) for name in ("cifar10", "cifar10-grey"))
    np.testing.assert_array_equal(grey.train.images, to_grey(colour.train.images))
    np.testing.assert_array_equal(grey.test.images, to_grey(colour.test.images))
    again = load_dataset("cifar10", data_dir=cifar_folder, grey=True)
    assert again.sha256() == grey.sha256() != colour.sha256()


@pytest.fixture
def semeion_folder(tmp_path):
    images = np.random.default_rng(0).integers(0, 2, (30, 16, 16))
    put(tmp_path / "semeion" / "semeion.data", semeion(images, np.arange(30) % 10).encode())
    return tmp_path


def test_semeion_is_split(semeion_folder):
    data = load_dataset("semeion", data_dir=semeion_folder)
    assert (len(data.train), len(data.test)) == (20, 10)
    assert data.train.images.shape[1:] == (16, 16, 1)


def test_semeion_for_a_model_of_mnist(semeion_folder):
    small = load_dataset("semeion", data_dir=semeion_folder, test_share=1.0)
    data = load_dataset("semeion", data_dir=semeion_folder, test_share=1.0, like=(28, 28, 1))
    assert len(data.train) == 0
    assert data.sha256() != small.sha256()
    assert data.test.images.shape == (30, 28, 28, 1)
    np.testing.assert_array_equal(data.test.images[:, 6:22, 6:22], small.test.images)
    assert data.test.images.sum(dtype=int) == small.test.images.sum(dtype=int)
    fitted = "images of 16×16×1 were fitted to the model's 28×28×1"
    assert data.notes[-1] == f"{fitted}: they were put into the middle of a black frame, not enlarged"


def test_too_large_for_the_model(tmp_path):
    with pytest.raises(ValueError, match="images of 28×28 do not fit a model for 8×8"):
        load_dataset("mnist", data_dir=mnist_folder(tmp_path), like=(8, 8, 1))


@pytest.fixture
def folder(tmp_path):
    for name, count in (("many", 9), ("few", 3)):
        (tmp_path / name).mkdir()
        for number in range(count):
            Image.fromarray(random_bytes(6, 8, 3, seed=number)).save(tmp_path / name / f"{number}.png")
    return tmp_path


def test_folder(folder):
    data = load_dataset(f"folder:{folder}")
    assert data.class_names == ("few", "many")
    assert np.bincount(data.train.labels).tolist() == [2, 7]
    assert np.bincount(data.test.labels).tolist() == [1, 2]
    assert data.notes[0].startswith("the classes are uneven: 2 training images of 'few', 7 of 'many'")
    assert load_dataset(f"folder:{folder}", like=(6, 8, 3)).notes == ()


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """Pictures whose grey level is the number that their file has for a name: 10 of each of 4 classes."""
    folder = tmp_path_factory.mktemp("numbered")
    for number in range(40):
        (folder / "abcd"[number % 4]).mkdir(exist_ok=True)
        Image.new("L", (2, 2), number).save(folder / "abcd"[number % 4] / f"{number}.png")
    put(folder / "a" / "10.txt.jpg", b"no image")  # between others in the order of names
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seed": 3, "validation_share": 0.3},
        {"seed": 1, "train_images": 9, "test_images": 5},
        {"classes": ("d", "b"), "validation_share": 0.2, "test_images": 3},
        {"test_share": 1.0, "like": (4, 4, 3)},
    ],
)
def test_names_follow_their_images(numbered, options):
    data = load_dataset(f"folder:{numbered}", skip_bad_images=True, **options)
    parts = [part for part in (data.train, data.test, data.validation) if part is not None]
    for part in parts:
        files = [PurePosixPath(name) for name in part.names]
        assert [int(file.stem) for file in files] == part.images.max(axis=(1, 2, 3)).tolist()
        assert [str(file.parent) for file in files] == [data.class_names[label] for label in part.labels]
    names = [name for part in parts for name in part.names]
    assert len(set(names)) == len(names) == sum(map(len, parts)) > 0


def test_names_of_a_folder_with_train_and_test(numbered, tmp_path):
    for part in ("train", "test"):
        (tmp_path / part).symlink_to(numbered)
    data = load_dataset(f"folder:{tmp_path}", skip_bad_images=True)
    assert data.train.names[:2] == ("train/a/0.png", "train/a/12.png")
    assert data.test.names[-1] == "test/d/7.png"


def test_images_are_taken_with_their_names():
    split = Split(np.arange(4).reshape(4, 1, 1, 1), np.arange(4), tuple("abcd"))
    for chosen, names in ((np.array([2, 0]), ("c", "a")), (np.array([False, True, False, True]), ("b", "d"))):
        taken = split.take(chosen)
        assert taken.names == names
        assert "".join("abcd"[label] for label in taken.labels) == "".join(names)
    assert (split.name(3), replace(split, names=None).name(3)) == ("d", "3")
    assert load_dataset("digits").test.names is None


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (6, 8, 3)),
        ({"grey": True}, (6, 8, 1)),
        ({"image_size": 4}, (4, 4, 3)),
        ({"image_size": (3, 5)}, (3, 5, 3)),
        ({"like": (5, 5, 1)}, (5, 5, 1)),
        ({"like": (9, 9, 3)}, (9, 9, 3)),
    ],
)
def test_shapes_of_a_folder(folder, options, shape):
    assert load_dataset(f"folder:{folder}", **options).test.images.shape[1:] == shape


def test_npz(tmp_path):
    np.savez(tmp_path / "mine.npz", x=random_bytes(20, 5, 5), y=np.arange(20) % 2)
    data = load_dataset(f"npz:{tmp_path / 'mine.npz'}", test_share=0.3)
    assert data.train.images.shape == (14, 5, 5, 1)
    assert data.test.images.shape == (6, 5, 5, 1)


BYTES = "the pixels are bytes from 0 to 1, and 255 is white; multiply them by 255"


@pytest.mark.parametrize(
    ("top", "kind", "note"),
    [
        (1, np.uint8, f"{BYTES}, or store them as floats from 0 to 1"),
        (1, np.int64, f"{BYTES}, or store them as floats from 0 to 1"),
        (
            63,
            np.uint8,
            "the brightest pixel of all images is 63 of 255, so that little tells them apart; multiply all by",
        ),
        (1 / 255, np.float32, "the brightest pixel of all images is 0.00392157 of 1, so that little tells them apart"),
        (64, np.uint8, None),
        (0.25, np.float32, None),
        (1, bool, None),
    ],
)
@pytest.mark.parametrize("options", [{}, {"test_share": 1.0, "like": (5, 5, 1)}])
def test_dark_arrays_are_noted(tmp_path, top, kind, note, options):
    x = np.zeros((20, 5, 5), kind)
    x[3, 2, 1] = top
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(20) % 2)
    notes = load_dataset(f"npz:{tmp_path / 'mine.npz'}", **options).notes
    assert len(notes) == (note is not None)
    assert note is None or notes[0].startswith(note)


def test_bits_that_are_not_used_are_noted(tmp_path):
    for name, most in {"a": 4095, "b": 4000}.items():
        (tmp_path / name).mkdir()
        for number in range(2):
            image = np.linspace(0, most, 16).reshape(4, 4).astype(np.uint16)
            Image.fromarray(image).save(tmp_path / name / f"{number}.png")
    (note,) = load_dataset(f"folder:{tmp_path}").notes
    assert note.startswith("the brightest pixel of all images is 16 of 255")
    assert note.endswith("if their files have 16 bits and use fewer, stretch them first, all by the same factor")
    Image.new("L", (4, 4), 64).save(tmp_path / "b" / "2.png")
    assert load_dataset(f"folder:{tmp_path}").notes == ()


def test_pictures_of_zeros_and_ones_are_noted(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.fromarray(np.eye(4, dtype=np.uint8)).save(tmp_path / name / f"{number}.png")
    assert load_dataset(f"folder:{tmp_path}").notes == (BYTES,)


@pytest.fixture
def three_parts(numbered, tmp_path):
    """A folder with train/, test/ and val/, all with the pictures of `numbered`."""
    for part in ("train", "test", "val"):
        (tmp_path / part).symlink_to(numbered)
    return tmp_path


def test_validation_images_of_a_folder(three_parts):
    data = load_dataset(f"folder:{three_parts}", skip_bad_images=True, classes=("d", "b"), like=(4, 4, 3))
    assert data.validation.images.shape == (20, 4, 4, 3)
    np.testing.assert_array_equal(data.validation.labels, data.train.labels)
    assert data.validation.names[0] == "val/b/1.png"
    assert data.held_out is data.validation
    with pytest.raises(ValueError, match=r"validation share of 0\.1 was given, and folder:.* of its own; leave it out"):
        load_dataset(f"folder:{three_parts}", skip_bad_images=True, validation_share=0.1)


def test_a_file_that_may_have_been_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", x=random_bytes(4, 5, 5), y=[0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"no dataset 'mine\.npz'; did you mean npz:mine\.npz\?"):
        load_dataset("mine.npz")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("nothing", {}, "no dataset 'nothing'; choose one of: digits, mnist, .* folder:PATH, npz:FILE"),
        ("nothing", {"image_size": 4}, "no dataset 'nothing'"),
        (".", {}, r"did you mean folder:\.\?"),
        ("digits", {"image_size": 4}, "only folder:PATH is resized"),
        ("folder:.", {"image_size": 0}, "image size 0×0; give"),
        ("folder:/nowhere", {}, "no such folder"),
        ("folder:", {}, "folder: names no path"),
        ("folder", {}, "folder names no path"),
        ("npz:", {}, "npz: names no path"),
        ("mnist", {}, r"mnist/train-images-idx3-ubyte\.gz, .*\$TICKGP_DATA"),
    ],
)
def test_wrong_use(name, options, words):
    with pytest.raises(ValueError, match=words):
        load_dataset(name, **options)


def test_sha256_is_of_the_contents():
    data = load_dataset("digits")
    digest = data.sha256()
    # Computed once, and the same on every machine.
    assert digest == "3ec4c6d3c822704e20ba90ee1d858b34f06e3a7e1480279b90c342055976d9fa"
    assert replace(data, name="other").sha256() == digest
    assert replace(data, test=replace(data.test, names=tuple(map(str, data.test.labels)))).sha256() == digest
    swapped = np.asarray(data.train.images, order="F").astype(">f4")
    assert replace(data, train=Split(swapped, data.train.labels)).sha256() == digest
    assert replace(data, train=Split(data.train.images, data.train.labels[::-1])).sha256() != digest
    assert replace(data, class_names=tuple("abcdefghij")).sha256() != digest


def test_labels_sha256_is_of_all_but_the_pixels():
    data = load_dataset("digits")
    digest, named = data.labels_sha256(), replace(data.test, names=tuple(map(str, data.test.labels)))
    assert replace(data, train=data.train.map_images(lambda images: images[:, ::2, ::2])).labels_sha256() == digest
    assert replace(data, test=named).labels_sha256() != digest
    assert replace(data, train=Split(data.train.images, data.train.labels[::-1])).labels_sha256() != digest
    assert replace(data, class_names=tuple("abcdefghij")).labels_sha256() != digest


def test_validation_images_are_taken_from_training_class_by_class():
    whole, split = load_dataset("digits"), load_dataset("digits", validation_share=0.25)
    np.testing.assert_array_equal(split.test.images, whole.test.images)
    assert len(split.train) + len(split.validation) == len(whole.train)
    shares = np.bincount(split.validation.labels) / np.bincount(whole.train.labels)
    np.testing.assert_allclose(shares, 0.25, atol=0.01)
    rows = {image.tobytes() for image in split.train.images}
    assert not any(image.tobytes() in rows for image in split.validation.images)
    assert whole.validation is None
    assert split.sha256() != whole.sha256()


def test_fewer_training_images_are_drawn_by_the_seed():
    whole, some, other = (load_dataset("digits", train_images=n, seed=s) for n, s in ((None, 0), (50, 0), (50, 1)))
    assert len(some.train) == 50
    assert {image.tobytes() for image in some.train.images} <= {image.tobytes() for image in whole.train.images}
    assert some.train.images.tobytes() != other.train.images.tobytes()
    with pytest.raises(ValueError, match="2000 training images were asked for; there are 1437"):
        load_dataset("digits", train_images=2000)


def test_only_some_classes_numbered_as_named():
    whole, some = load_dataset("digits"), load_dataset("digits", classes=("7", "2"))
    assert some.class_names == ("7", "2")
    for label, name in enumerate((7, 2)):
        kept, every = (
            {row.tobytes() for part in (data.train, data.test) for row in part.images[part.labels == number]}
            for data, number in ((some, label), (whole, name))
        )
        assert kept == every
    with pytest.raises(ValueError, match="there is no class 'x'; choose among: 0, 1"):
        load_dataset("digits", classes=("7", "x"))
    with pytest.raises(ValueError, match="name at least 2, each once"):
        load_dataset("digits", classes=("7", "7"))


def test_fewer_test_images():
    whole, some = load_dataset("digits"), load_dataset("digits", test_images=30)
    assert len(some.test) == 30
    assert {image.tobytes() for image in some.test.images} <= {image.tobytes() for image in whole.test.images}
    np.testing.assert_array_equal(some.train.images, whole.train.images)
