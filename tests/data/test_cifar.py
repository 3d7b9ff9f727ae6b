"""Reading CIFAR-10's binary batches."""

import numpy as np
import pytest
from written import cifar, put, random_bytes

from tickgp.data.cifar import read_cifar

IMAGES, LABELS = random_bytes(3, 32, 32, 3), np.array([4, 0, 9])


def test_batches_follow_each_other(tmp_path):
    first = put(tmp_path / "1.bin", cifar(IMAGES[:2], LABELS[:2]))
    second = put(tmp_path / "2.bin", cifar(IMAGES[2:], LABELS[2:]))
    read = read_cifar([first, second])
    images, labels = read.images, read.labels
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no images at all"),
        (cifar(IMAGES, LABELS)[:-1], "9218 bytes; expected a multiple of 3073"),
        (cifar(IMAGES, LABELS) + b"\x00", "9220 bytes"),
        (cifar(IMAGES, np.array([4, 10, 9])), "labels from 4 to 10; expected labels from 0 to 9"),
    ],
)
def test_damage_is_named(tmp_path, content, words):
    path = put(tmp_path / "data_batch_1.bin", content)
    with pytest.raises(ValueError, match=words) as error:
        read_cifar([path])
    assert str(path) in str(error.value)
