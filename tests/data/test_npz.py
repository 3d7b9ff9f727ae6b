"""Reading arrays from .npz files, and never unpickling one."""

import pickle

import numpy as np
import pytest
from written import put, random_bytes

from tickgp.data.npz import read_npz

X, Y = random_bytes(4, 5, 6, 3), np.array([0, 1, 2, 1])


def saved(tmp_path, **arrays):
    np.savez(tmp_path / "mine.npz", **arrays)
    return tmp_path / "mine.npz"


def test_bytes_and_numbers(tmp_path):
    contents = read_npz(saved(tmp_path, x=X, y=Y.astype(np.uint8)))
    np.testing.assert_array_equal(contents.train.images, X)
    np.testing.assert_array_equal(contents.train.labels, Y)
    assert contents.train.labels.dtype == np.int64
    assert contents.class_names == ("0", "1", "2")
    assert contents.test is None


def test_words_are_counted_in_their_order(tmp_path):
    contents = read_npz(saved(tmp_path, x=X, y=np.array(["dog", "cat", "dog", "emu"])))
    assert contents.class_names == ("cat", "dog", "emu")
    assert contents.train.labels.tolist() == [1, 0, 1, 2]


def test_class_names_give_the_order(tmp_path):
    contents = read_npz(
        saved(tmp_path, x=X, y=np.array(["dog", "cat", "dog", "cat"]), class_names=np.array(["dog", "cat", "emu"]))
    )
    assert contents.class_names == ("dog", "cat", "emu")
    assert contents.train.labels.tolist() == [0, 1, 0, 1]


def test_images_without_channels_and_whole_numbers_that_are_bytes(tmp_path):
    contents = read_npz(saved(tmp_path, x=X[..., 0].astype(int), y=Y, x_test=X[:2, ..., 0].astype(int), y_test=Y[:2]))
    assert contents.train.images.dtype == np.uint8
    np.testing.assert_array_equal(contents.train.images, X[..., :1])
    np.testing.assert_array_equal(contents.test.images, X[:2, ..., :1])


def test_floats_become_float32(tmp_path):
    assert read_npz(saved(tmp_path, x=X / 255, y=Y)).train.images.dtype == np.float32


def test_true_is_white(tmp_path):
    images = read_npz(saved(tmp_path, x=X > 99, y=Y)).train.images
    assert images.dtype == np.float32
    np.testing.assert_array_equal(images, np.where(X > 99, 1.0, 0.0))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": Y}, "array x is missing, found y"),
        ({"x": X}, "array y is missing"),
        ({"images": X}, "array x is missing, found none"),
        ({"x": X, "y": Y, "x_test": X}, "array y_test is missing"),
        ({"x": X, "y": Y[:2]}, r"shape \(2,\); give one label for each of 4 images"),
        ({"x": X, "y": Y[:, None]}, r"shape \(4, 1\)"),
        ({"x": X[:, 0, :, 0], "y": Y}, r"x has shape \(4, 6\)"),
        ({"x": X[:0], "y": Y[:0]}, "x has shape"),
        ({"x": X * 1.0, "y": Y}, "float64 from 0.0 to 25.*rescale"),
        ({"x": X * np.nan, "y": Y}, "from nan to nan"),
        ({"x": X.astype(int) * 3, "y": Y}, "int64 from 0 to 7"),
        ({"x": X * 1j, "y": Y}, "type complex128"),
        ({"x": X, "y": Y + 1}, "labels are 1, 2, 3; numbers must count the classes from 0"),
        ({"x": X, "y": Y - 1}, "labels are -1, 0, 1"),
        ({"x": X, "y": Y * 1.0}, "y has type float64"),
        ({"x": X, "y": Y, "class_names": np.array(["a", "b"])}, "y has the labels 2; the 2 classes are 0, 1"),
        ({"x": X, "y": Y, "class_names": np.array(["a", "b", "a"])}, "class_names has 'a' more than once"),
        ({"x": X, "y": Y, "x_test": X[:, 1:], "y_test": Y}, "store both with one size"),
        ({"x": X, "y": np.array([1, "a", None, 2], object)}, "unpickled, which is never done"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, words):
    with pytest.raises(ValueError, match=words) as error:
        read_npz(saved(tmp_path, **arrays))
    assert "mine.npz" in str(error.value)


class Trap:
    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY", pickle.dumps(Trap())])
def test_other_files_are_refused(tmp_path, content):
    with pytest.raises(ValueError, match=r"not a whole \.npz file"):
        read_npz(put(tmp_path / "mine.npz", content))


@pytest.mark.parametrize("at", [0.3, 0.9])
def test_a_cut_file_is_refused(tmp_path, at):
    path = saved(tmp_path, x=X, y=Y)
    content = path.read_bytes()
    path.write_bytes(content[: int(at * len(content))])
    with pytest.raises(ValueError, match=r"mine\.npz"):
        read_npz(path)


def test_a_changed_byte_is_noticed(tmp_path):
    path = saved(tmp_path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    content[300] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.npz cannot be read \(Bad CRC"):
        read_npz(path)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_npz(tmp_path / "none.npz")
