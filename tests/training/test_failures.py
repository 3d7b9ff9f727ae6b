import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tickgp
from tickgp.gp.convolution import MultiOutputConvolutional, PatchResponse
from tickgp.gp.covariances import Pointwise
from tickgp.gp.kernels import Matern32, SquaredExponential
from tickgp.gp.multioutput import Separate, Shared
from tickgp.gp.patches import PatchGrid
from tickgp.training import loop
from tickgp.training.failures import TrainingError, _diagnosis, _values, all_finite, raised_jitter
from tickgp.training.loop import train

RNG = np.random.default_rng(0)
X = RNG.random((16, 6, 5, 1), np.float32)
Y = np.arange(16) % 2


def singular_model(jitter: float) -> tickgp.DeepGP:
    """Every inducing patch the same, and a jitter below float32's precision: Kuu has no Cholesky factor."""
    model = tickgp.tick(X, tickgp.Bernoulli(), patch_size=3, num_inducing=6, jitter=jitter, key=jax.random.key(0))
    where = lambda m: (m.layers[0].gp.inducing[0].Z.raw, m.layers[0].gp.inducing[0].places.raw)
    return eqx.tree_at(where, model, replace_fn=lambda raw: jnp.broadcast_to(raw[0], raw.shape))


def test_a_failed_step_changes_nothing_but_counts(key):
    start = singular_model(1e-12)
    (event,) = train(start, X, Y, steps=2, key=key)
    assert int(event.state.failures) == event.skipped == 2
    assert np.isnan(event.elbo)
    for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(event.state.model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_skipped_steps_are_counted_from_report_to_report(key):
    events = train(singular_model(1e-9), X, Y, steps=25, report_every=10, key=key)
    skipped = {event.step: event.skipped for event in events}
    assert skipped[10] >= 3  # as many as it takes to raise the jitter once
    assert skipped[25] == 0
    assert all(0 <= number <= 10 for number in skipped.values())


def test_skipped_steps_are_those_of_the_call(key):
    """It goes on from a state that stopped between two reports, with reports at other steps."""
    model = tickgp.tick(X, tickgp.Bernoulli(), patch_size=3, num_inducing=6, key=key)
    *_, stopped = train(model, X, Y, steps=15, report_every=100, key=key)
    events = list(train(stopped.state, X, Y, steps=30, report_every=5, key=key))
    assert [(event.step, event.skipped) for event in events] == [(20, 0), (25, 0), (30, 0)]


def test_a_bound_that_is_not_finite_says_what_is_to_blame(key):
    with pytest.raises(ArithmeticError, match=rf"log p\(y \| f\) of {len(X)} of {len(X)} images, and KL.* is \d"):
        tickgp.dataset_elbo(singular_model(1e-12), X, Y, key=key)


def test_a_natural_step_that_is_not_finite_fails(key, monkeypatch):
    """All the rest of the step would be sound."""
    start = tickgp.tick(X, tickgp.Bernoulli(), patch_size=3, num_inducing=6, key=key)
    infinite = lambda q, gradient, size: jax.tree.map(lambda raw: raw + jnp.inf * (raw == raw.max()), q)
    monkeypatch.setattr(loop, "natural_step", infinite)
    loop._compiled_step.cache_clear()
    (event,) = train(start, X, Y, steps=1, key=key)
    loop._compiled_step.cache_clear()
    assert int(event.state.failures) == 1
    assert eqx.tree_equal(start, event.state.model)


def test_jitter_grows_until_training_goes_on(key):
    *_, event = train(singular_model(1e-9), X, Y, steps=100, report_every=10, key=key)
    assert 1e-8 < float(event.state.model.jitter) <= 1e-4
    assert np.isfinite(event.elbo)
    assert event.skipped == 0
    assert bool(all_finite(event.state.model))


@pytest.mark.parametrize(
    ("before", "failures", "after", "left"),
    [
        (1e-5, 0, 1e-5, 0),
        (1e-5, 2, 1e-5, 2),
        (1e-5, 3, 1e-4, 0),
        (5e-3, 3, 1e-2, 0),
        (1e-2, 3, 1e-2, 3),
        (0.02, 3, 0.02, 3),
    ],
)
def test_three_in_a_row(before, failures, after, left):
    new, count = raised_jitter(jnp.asarray(before), jnp.asarray(failures))
    assert float(new) == pytest.approx(after)
    assert int(count) == left


def test_jitter_grows_from_zero():
    assert float(raised_jitter(jnp.asarray(0.0), jnp.asarray(3))[0]) > 0


def test_a_large_jitter_that_works_is_no_failure(key):
    (event,) = train(singular_model(0.02), X, Y, steps=3, key=key)
    assert np.isfinite(event.elbo)


def test_at_the_limit_the_error_names_layer_and_values(key):
    """An inducing patch that is not a number stays one, whatever the jitter."""
    broken = eqx.tree_at(
        lambda m: m.layers[0].gp.inducing[0].Z.raw, singular_model(1e-5), replace_fn=lambda raw: raw * jnp.nan
    )
    with pytest.raises(TrainingError, match=r"jitter of 1e-02; layer 1 has parameters that are not finite; try"):
        list(train(broken, X, Y, steps=100, report_every=10, key=key))


def test_the_diagnosis_finds_a_covariance_without_factor():
    words = _diagnosis(singular_model(1e-12))
    assert "Kuu of layer 1 has no Cholesky factor" in words
    assert "patch.variance 5.0, patch.lengthscale 1.0, location.variance 1.0, location.lengthscale 3.0" in words


def test_parameters_are_named_by_their_kernel():
    one, two = SquaredExponential(2.0, 3.0), Matern32(4.0, np.array([5.0, 6.0]))
    assert _values(Shared(Pointwise(one))) == "variance 2.0, lengthscale 3.0"
    both = "0.variance 2.0, 0.lengthscale 3.0, 1.variance 4.0, 1.lengthscale [5. 6.]"
    assert _values(Separate((Pointwise(one), Pointwise(two)))) == both
    response = PatchResponse(one, two + one)
    words = _values(Shared(MultiOutputConvolutional(PatchGrid((6, 5, 1), (3, 3)), response)))
    assert words.startswith("patch.variance 2.0, patch.lengthscale 3.0, location.terms.0.variance 4.0, ")


@pytest.mark.parametrize("sizes", [(3,), (300 * 300,), (3, 300 * 300, 1)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_is_found_wherever_it_stands(sizes, bad):
    arrays = [np.ones(size, np.float32) for size in sizes]
    assert bool(all_finite(arrays))
    for array in arrays:
        array[-1] = bad
        assert not bool(all_finite(arrays))
        array[-1] = 1
