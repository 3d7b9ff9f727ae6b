"""Batches of arrays, and the order in which training sees images."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tickgp.gp.batches import Epochs, batch_at, check_at_least_one, in_batches, padded_batches


def seen(steps, *, num=10, batch_size=3, seed=0):
    """The images of each of these steps."""
    order = Epochs(num, batch_size, jax.random.key(seed))
    return [np.asarray(batch_at(jnp.asarray(step), order(step), batch_size)).tolist() for step in steps]


def test_in_an_epoch_no_image_is_seen_twice():
    """Ten images in batches of three: three steps, and one image is left out; the next epoch has another order."""
    first, second = (np.ravel(seen(steps)).tolist() for steps in (range(3), range(3, 6)))
    assert [len(set(epoch)) for epoch in (first, second)] == [9, 9]
    assert set(first + second) <= set(range(10))
    assert first != second


@pytest.mark.parametrize("step", [2, 3, 4, 9])
def test_a_step_sees_the_same_images_wherever_training_began(step):
    assert seen(range(step, 12)) == seen(range(12))[step:]
    assert seen(range(12), seed=1) != seen(range(12))


def test_a_batch_of_all_images_is_an_order_of_them():
    assert [sorted(batch) for batch in seen(range(2), batch_size=10)] == [list(range(10))] * 2


@pytest.mark.parametrize(("num", "batch_size"), [(7, 3), (6, 3), (2, 5)])
def test_batches_are_put_together_again(num, batch_size):
    array = np.arange(2.0 * num).reshape(num, 2)
    assert {batch.shape for batch in padded_batches(array, batch_size)} == {(batch_size, 2)}
    doubled, sums = in_batches(lambda batch: (2 * batch, batch.sum(axis=1)), array, batch_size)
    np.testing.assert_array_equal(doubled, 2 * array)
    np.testing.assert_array_equal(sums, array.sum(axis=1))


def test_what_is_not_positive_is_refused_by_its_name():
    check_at_least_one(steps=1, draws=5)
    with pytest.raises(ValueError, match="draws 0 was given; it must be at least 1"):
        check_at_least_one(steps=1, draws=0)
