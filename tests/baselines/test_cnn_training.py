"""Training of the CNN: by hand for a step, that it learns, and that it can be stopped and resumed."""

import jax
import numpy as np
import pytest

from tickgp.baselines.cnn import CNN
from tickgp.baselines.predict import predict_logits
from tickgp.baselines.training import initial_state, train_cnn
from tickgp.training.tensors import load_tree, save_tree

SHAPE = (6, 6, 1)
Y = np.arange(24) % 3
X = (np.random.default_rng(0).integers(0, 120, (24, *SHAPE)) + 60 * Y[:, None, None, None]).astype(np.uint8)
SETTINGS = {"batch_size": 8, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def model() -> CNN:
    return CNN(SHAPE, 3, num_convolutions=1, key=jax.random.key(1))


def slow_nll(logits, labels):
    z = np.asarray(logits, float)
    return np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels])


def assert_equal(a, b):
    for left, right in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(left, right)


def test_training_lowers_the_loss(model, key):
    events = list(train_cnn(model, X, Y, steps=120, report_every=40, key=key, **SETTINGS))
    assert [event.step for event in events] == [40, 80, 120]
    assert events[0].loss > events[-1].loss
    logits = predict_logits(events[-1].state.model, X, batch_size=24)
    assert slow_nll(logits, Y) < 0.3 < slow_nll(predict_logits(model, X, batch_size=24), Y)
    assert (np.argmax(logits, axis=1) == Y).mean() > 0.9


def test_the_reported_loss_is_the_mean_over_the_epoch(model, key):
    """With a rate of zero the network stays, and an epoch without dropout sees every image once."""
    (event,) = train_cnn(model, X, Y, steps=3, batch_size=8, learning_rate=0.0, dropout=0.0, key=key)
    assert event.loss == pytest.approx(slow_nll(predict_logits(model, X, batch_size=24), Y), rel=1e-4)
    assert_equal(event.state.model, model)


def test_dropout_is_drawn_anew_for_each_image_and_step(model, key):
    """A unit dropped for all images of a batch gives its weights no gradient: of 8 images, for 1 unit of 256."""
    same, label = np.repeat(X[:1], 24, axis=0), np.repeat(Y[:1], 24)
    settings = {"batch_size": 8, "learning_rate": 0.0, "dropout": 0.5, "report_every": 1, "key": key}
    first, *others = train_cnn(model, same, label, steps=3, **settings)
    assert len({event.loss for event in (first, *others)}) == 3
    first = next(train_cnn(model, same, label, steps=1, **settings))
    alive = np.asarray(jax.jit(CNN.units)(model, (same[:1] / 255).astype(np.float32)))[0] > 0
    without = (np.asarray(first.state.adam.mu.output.weights)[alive] == 0).all(axis=1)
    assert 0 < without.mean() < 0.02


def test_first_step_of_adam_on_the_output_biases(model, key):
    """Adam's first step is the rate against the sign of the gradient, mean of p − onehot for the last biases."""
    (event,) = train_cnn(model, X, Y, steps=1, batch_size=24, learning_rate=0.01, dropout=0.0, key=key)
    z = np.asarray(predict_logits(model, X, batch_size=24), float)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    expected = -0.01 * np.sign((p - np.eye(3)[Y]).mean(axis=0))
    np.testing.assert_allclose(event.state.model.output.biases - model.output.biases, expected, rtol=1e-3)


def test_a_resumed_run_equals_an_uninterrupted_one(model, key, tmp_path):
    settings = {"steps": 7, "report_every": 3, "key": key, **SETTINGS}
    whole = [(event.step, event.loss) for event in train_cnn(model, X, Y, **settings)]
    *_, end = train_cnn(model, X, Y, **settings)
    stops = iter([False] * 3 + [True])
    *_, broken = train_cnn(model, X, Y, stop=lambda: next(stops), **settings)
    assert broken.step == 4
    save_tree(tmp_path / "state", broken.state)
    resumed = load_tree(tmp_path / "state", initial_state(model))
    events = list(train_cnn(resumed, X, Y, **settings))
    assert [(event.step, event.loss) for event in events] == whole[1:]
    assert_equal(events[-1].state, end.state)


def test_the_callers_network_is_untouched_and_seeds_matter(model, key):
    before = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    (first,) = train_cnn(model, X, Y, steps=2, key=key, **SETTINGS)
    (other,) = train_cnn(model, X, Y, steps=2, key=jax.random.key(5), **SETTINGS)
    assert_equal(before, model)
    assert not np.array_equal(first.state.model.hidden.weights, other.state.model.hidden.weights)


def test_wrong_arguments_are_refused(model, key):
    good = {"images": X, "labels": Y, "steps": 1, "key": key}
    for bad, words in [
        ({"steps": 0}, "steps 0 was given"),
        ({"dropout": 1.0}, r"dropout rate of 1\.0 was given"),
        ({"labels": Y + 1}, "labels go from 1 to 3"),
        ({"images": X[:, 1:]}, "images are 5×6×1 and this network takes 6×6×1"),
    ]:
        with pytest.raises(ValueError, match=words):
            next(train_cnn(model, **{**good, **bad}))
    with pytest.raises(ArithmeticError, match="not finite before step 4; lower learning_rate"):
        list(train_cnn(model, X, Y, steps=4, learning_rate=1e30, batch_size=8, key=key))
