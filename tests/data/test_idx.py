"""Reading IDX: whole files give back what was written, all others are refused by name."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from written import idx, put, random_bytes

from tickgp.data.idx import read_idx, read_idx_pair


@settings(deadline=None, max_examples=50)
@given(array=arrays(np.uint8, array_shapes(min_dims=1, max_dims=4, max_side=5)), packed=st.booleans())
def test_what_is_written_is_read(tmp_path_factory, array, packed):
    content = gzip.compress(idx(array)) if packed else idx(array)
    path = put(tmp_path_factory.mktemp("idx") / "any-name", content)
    np.testing.assert_array_equal(read_idx(path, ndim=array.ndim), array)


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 15 + 4 * 6), packed=st.booleans())
def test_no_part_of_a_file_is_taken_for_the_whole(tmp_path_factory, cut, packed):
    content = idx(random_bytes(4, 3, 2))
    content = gzip.compress(content) if packed else content
    path = put(tmp_path_factory.mktemp("idx") / "images", content[: min(cut, len(content) - 1)])
    with pytest.raises(ValueError, match="images"):
        read_idx(path, ndim=3)


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


GOOD = idx(random_bytes(4, 3, 2))
PACKED = gzip.compress(GOOD, mtime=0)  # the names of tests must not depend on the time


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "starts with nothing; expected 00 00 08 03"),
        (idx(random_bytes(4)), "starts with 00 00 08 01; expected 00 00 08 03"),
        (b"\x00\x00\x0d\x03" + GOOD[4:], "starts with 00 00 0d 03"),
        (b"\x89PNG" + GOOD, "starts with 89 50 4e 47"),
        (GOOD[:9], "9 bytes; expected a header of 16"),
        (GOOD[:-1], "23 bytes after the header; expected 24 for shape 4×3×2"),
        (GOOD + b"\x00", "25 bytes after the header"),
        (GOOD[:4] + b"\xff" * 12 + GOOD[16:], "for shape 4294967295×4294967295×4294967295"),
        (PACKED[:-10], "gzip cannot unpack it"),
        (flipped(PACKED, -6), "gzip cannot unpack it .CRC"),
        (flipped(PACKED, 12), "gzip cannot unpack it"),
        (PACKED + b"more", "gzip cannot unpack it"),
    ],
)
def test_damage_is_named(tmp_path, content, words):
    path = put(tmp_path / "train-images", content)
    with pytest.raises(ValueError, match=words) as error:
        read_idx(path, ndim=3)
    assert str(path) in str(error.value)
    assert "replace it" in str(error.value)


def pair(tmp_path, images, labels):
    return put(tmp_path / "images", idx(images)), put(tmp_path / "labels", idx(np.array(labels)))


def test_images_with_labels(tmp_path):
    written = random_bytes(3, 5, 4)
    read = read_idx_pair(*pair(tmp_path, written, [0, 9, 1]), 10)
    images, labels = read.images, read.labels
    assert images.shape == (3, 5, 4, 1)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(images[..., 0], written)
    np.testing.assert_array_equal(labels, [0, 9, 1])


@pytest.mark.parametrize(
    ("count", "labels", "words"),
    [
        (3, [0, 1], "2 labels for 3 images"),
        (2, [0, 10], "labels from 0 to 10; expected labels from 0 to 9"),
        (0, [], "no images at all"),
    ],
)
def test_wrong_labels_are_named(tmp_path, count, labels, words):
    with pytest.raises(ValueError, match=words) as error:
        read_idx_pair(*pair(tmp_path, random_bytes(count, 2, 2), labels), 10)
    assert str(tmp_path / "labels") in str(error.value)
