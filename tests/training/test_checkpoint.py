import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tickgp
from tickgp.files import write_whole
from tickgp.gp.params import Triangular
from tickgp.training import tensors
from tickgp.training.checkpoint import checkpoints, load_checkpoint, reached, save_checkpoint
from tickgp.training.loop import initial_state, train
from tickgp.training.tensors import load_tree, read_arrays, save_tree

RNG = np.random.default_rng(0)
X = RNG.random((24, 6, 5, 1), np.float32)
Y = np.arange(24) % 3


def model(seed: int = 0) -> tickgp.DeepGP:
    return tickgp.tick(X, tickgp.Softmax(3), patch_size=3, num_inducing=6, key=jax.random.key(seed))


def same(a, b) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(left, right) and left.dtype == right.dtype for left, right in pairs)


def last_state(start, steps, key, **settings):
    *_, event = train(start, X, Y, steps=steps, batch_size=8, report_every=5, key=key, **settings)
    return event


@pytest.mark.parametrize("stopped_at", [1, 5, 7, 12])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(stopped_at, tmp_path, key):
    whole = last_state(model(), 14, key)
    steps = iter(range(1, 100))
    part = last_state(model(), 14, key, stop=lambda: next(steps) == stopped_at)
    assert part.step == stopped_at
    save_checkpoint(tmp_path, part.state, 1.5)
    found = load_checkpoint(tmp_path, initial_state(model(seed=1)))
    assert (found.seconds, found.broken) == (1.5, ())
    resumed = last_state(found.state, 14, key)
    assert same(whole.state, resumed.state)
    assert whole.elbo == resumed.elbo


def test_a_tree_comes_back_as_it_was(tmp_path):
    """Transposed and strided arrays too, which safetensors by itself would write wrong."""
    base = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    tree = {"a": base.T, "b": base[:, ::2], "c": (jnp.zeros(()), np.int32(3) * np.ones((), np.int32)), "d": base[:0]}
    save_tree(tmp_path / "tree.safetensors", tree, {"word": "value"})
    assert same(load_tree(tmp_path / "tree.safetensors", jax.tree.map(np.zeros_like, tree)), tree)
    arrays, words = read_arrays(tmp_path / "tree.safetensors")
    assert set(arrays) == {"a", "b", "c.0", "c.1", "d"}
    assert words["word"] == "value"


def test_the_format_of_a_file_is_not_the_callers_to_say(tmp_path):
    tree = {"a": np.ones(2, np.float32)}
    save_tree(tmp_path / "tree.safetensors", tree, {"format": "np"})
    assert same(load_tree(tmp_path / "tree.safetensors", jax.tree.map(np.zeros_like, tree)), tree)


def test_of_a_triangular_matrix_only_the_triangle_is_written(tmp_path):
    lower = np.tril(np.arange(1.0, 33.0, dtype=np.float32).reshape(2, 4, 4))
    save_tree(tmp_path / "tree.safetensors", {"q": Triangular(lower)})
    arrays, _ = read_arrays(tmp_path / "tree.safetensors")
    np.testing.assert_array_equal(arrays["q.raw"][1], [17, 21, 22, 25, 26, 27, 29, 30, 31, 32])
    back = load_tree(tmp_path / "tree.safetensors", {"q": Triangular(np.zeros((2, 4, 4)))})
    np.testing.assert_array_equal(back["q"].value, lower)


@pytest.mark.parametrize("how", ["truncated", "flipped", "empty", "text"])
def test_a_broken_checkpoint_is_named_and_the_one_before_it_used(how, tmp_path, key):
    for steps in (5, 10):
        save_checkpoint(tmp_path, last_state(model(), steps, key).state, 0.1 * steps)
    latest, before = checkpoints(tmp_path)
    content = bytearray(latest.read_bytes())
    content[-5] ^= 1
    damaged = {"truncated": bytes(content[:-100]), "flipped": bytes(content), "empty": b"", "text": b"not a tensor" * 9}
    latest.write_bytes(damaged[how])
    found = load_checkpoint(tmp_path, initial_state(model()))
    assert (int(found.state.step), found.seconds) == (5, 0.5)
    assert len(found.broken) == 1
    assert str(latest) in found.broken[0]
    before.unlink()
    with pytest.raises(ValueError, match=r"holds no checkpoint to resume from: .*step-00000010"):
        load_checkpoint(tmp_path, initial_state(model()))


def test_a_checkpoint_of_an_earlier_version_is_told_of(tmp_path, monkeypatch):
    """Its numbers would be read as other ones."""
    with monkeypatch.context() as then:
        then.setattr(tensors, "FORMAT", tensors.FORMAT - 1)
        save_checkpoint(tmp_path, initial_state(model()), 0.0)
    with pytest.raises(ValueError, match=r"no checkpoint to resume from: .* was made by an earlier version of tickgp"):
        load_checkpoint(tmp_path, initial_state(model()))


def test_an_empty_folder_is_said(tmp_path):
    with pytest.raises(ValueError, match="it is empty; start the run anew"):
        load_checkpoint(tmp_path, initial_state(model()))


def test_another_model_does_not_fit(tmp_path, key):
    save_checkpoint(tmp_path, initial_state(model()), 0.0)
    other = tickgp.tick(X, tickgp.Softmax(3), patch_size=3, num_inducing=5, key=key)
    with pytest.raises(
        ValueError, match=r"does not fit its model at .*; it was made with other settings \(restore them\) or by"
    ):
        load_checkpoint(tmp_path, initial_state(other))


@pytest.mark.parametrize(("steps", "kept"), [((1, 2, 3), [3, 2]), ((5, 10, 6), [6, 5])])
def test_the_last_two_are_kept_and_none_that_claims_to_be_later(steps, kept, tmp_path):
    """The step 10 was broken, or 6 would not have come after it."""
    state = initial_state(model())
    for step in steps:
        at_step = tickgp.training.loop.State(state.model, state.adam, jnp.asarray(step), *(state.failures, state.sums))
        save_checkpoint(tmp_path, at_step, 0.0)
    assert [path.name for path in checkpoints(tmp_path)] == [f"step-{step:08d}.safetensors" for step in kept]
    assert reached(tmp_path) == kept[0]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
