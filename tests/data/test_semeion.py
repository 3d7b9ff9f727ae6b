"""Reading Semeion's lines."""

import numpy as np
import pytest
from written import put, semeion

from tickgp.data.semeion import read_semeion

IMAGES, LABELS = np.random.default_rng(0).integers(0, 2, (3, 16, 16)), np.array([7, 0, 9])
TEXT = semeion(IMAGES, LABELS)


def test_lines_are_images(tmp_path):
    read = read_semeion(put(tmp_path / "semeion.data", TEXT.encode()))
    images, labels = read.images, read.labels
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(images, 255 * IMAGES[..., None])
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no lines"),
        ("\n \n", "no lines"),
        (TEXT[:-30], "number of columns changed|requested columns"),
        (TEXT.splitlines()[0][:-4], "265 numbers in a line; expected 266|264 numbers"),
        (TEXT.replace("1.0000", "0.5000", 1), "neither 0 nor 1"),
        (TEXT.replace("1.0000", "nan", 1), "neither 0 nor 1"),
        (TEXT.replace("1.0000", "x", 1), "could not convert"),
        (TEXT.replace(" 0 0 1 0 0 \n", " 0 0 0 0 0 \n"), "line 1 marks 0 digits; expected exactly one"),
        (TEXT.replace(" 0 0 1 \n", " 0 1 1 \n"), "line 3 marks 2 digits"),
        ("\xff\xfe\x00", "could not convert"),
    ],
)
def test_damage_is_named(tmp_path, text, words):
    path = put(tmp_path / "semeion.data", text.encode("latin-1"))
    with pytest.raises(ValueError, match=words) as error:
        read_semeion(path)
    assert str(path) in str(error.value)
