"""Images set aside: some of each class, the same ones each time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tickgp.data.contents import Split
from tickgp.data.splits import stratified_split, unevenness

NAMES = "abcd"


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(2, 40), min_size=1, max_size=4), share=st.floats(0.01, 0.99), seed=st.integers(0, 99)
)
def test_every_class_is_on_both_sides(counts, share, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    kept, aside = stratified_split(labels, share, seed, NAMES)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, aside])), np.arange(len(labels)))
    for label, count in enumerate(counts):
        held = int((labels[aside] == label).sum())
        assert 1 <= held <= count - 1
        assert abs(held - share * count) <= 1


def test_the_seed_decides():
    labels = np.repeat(np.arange(3), 20)
    first, again, other = (stratified_split(labels, 0.2, seed, NAMES)[1].tolist() for seed in (0, 0, 1))
    assert first == again != other


def test_everything_can_be_set_aside():
    kept, aside = stratified_split(np.array([0, 1, 1]), 1.0, 0, NAMES)
    assert kept.tolist() == []
    assert aside.tolist() == [0, 1, 2]


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_impossible_shares(share):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        stratified_split(np.array([0, 0]), share, 0, NAMES)


def test_a_class_of_one():
    with pytest.raises(ValueError, match=r"class 'b' has 1 image; .* at least 2"):
        stratified_split(np.array([0, 0, 1]), 0.2, 0, NAMES)


def test_unevenness_is_said():
    assert unevenness(np.repeat([0, 1], [3, 8]), "ab") == ()
    assert unevenness(np.zeros(0, int), "ab") == ()
    (note,) = unevenness(np.array([1, 1, 1]), "ab")
    assert note == "there are no training images of 'a', which the model cannot learn"
    (note,) = unevenness(np.repeat([0, 1], [3, 9]), "ab")
    assert "3 training images of 'a', 9 of 'b'" in note
    (note,) = unevenness(np.repeat([0, 1], [9, 1]), "ab")
    assert "1 training image of 'b', 9 of 'a'" in note


def test_what_is_new():
    """Neither in the other part nor earlier in the same one."""
    here, there = ([np.full((1, 1, 1), i) for i in some] for some in ([3, 1, 3, 2, 4, 4], [1, 5]))
    parts = [Split(np.stack(images), np.zeros(len(images), int)) for images in (here, there)]
    assert parts[0].is_new(parts[1]).tolist() == [True, False, False, True, True, False]


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_the_same_pixels_are_the_same_image_whatever_their_type(kind):
    levels = np.arange(256, dtype=np.uint8).reshape(4, 8, 8, 1)
    as_kind = levels if kind is np.uint8 else (levels / 255).astype(kind)
    here, there = Split(levels, np.zeros(4, int)), Split(as_kind[::2], np.zeros(2, int))
    assert here.is_in(there).tolist() == [True, False, True, False]
    assert there.is_in(here).all()
    others = Split(np.stack([levels[0] / 255 + 1e-4, -levels[0] / 255, 2.0 * levels[0]]), np.zeros(3, int))
    assert not others.is_in(here).any()
