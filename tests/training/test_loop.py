import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference

import tickgp
from tickgp.evaluation.bound import guessing_bound
from tickgp.gp.likelihoods import Bernoulli, RobustMax, Softmax
from tickgp.gp.params import Real
from tickgp.training import loop
from tickgp.training.loop import initial_state, inverse_decay, linear_decay, train

RNG = np.random.default_rng(0)
X = RNG.random((24, 6, 5, 1), np.float32)
Y = np.arange(24) % 2


def model(seed: int = 0) -> tickgp.DeepGP:
    return tickgp.tick(X, Bernoulli(), patch_size=3, num_inducing=6, key=jax.random.key(seed))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_training_raises_the_bound(key):
    events = list(train(model(), X, Y, steps=200, batch_size=8, report_every=50, key=key))
    before = tickgp.dataset_elbo(model(), X, Y, key=key)
    assert [event.step for event in events] == [50, 100, 150, 200]
    assert tickgp.dataset_elbo(events[-1].state.model, X, Y, key=key) > before + 1


def test_the_reported_bound_is_that_of_the_dataset(key):
    """With a rate of zero the model stays, and an epoch of a closed-form likelihood gives the exact mean."""
    (event,) = train(model(), X, Y, steps=3, batch_size=8, learning_rate=lambda t: 0.0, key=key)
    assert event.elbo == pytest.approx(tickgp.dataset_elbo(model(), X, Y, key=key), rel=1e-4)


def test_it_speaks_between_reports_that_are_far_apart(key):
    """Which changes nothing else."""
    often = list(train(model(), X, Y, steps=5, batch_size=8, report_every=3, quiet_seconds=0.0, key=key))
    seldom = list(train(model(), X, Y, steps=5, batch_size=8, report_every=3, key=key))
    assert [event.step for event in often] == [1, 2, 3, 4, 5]
    assert [(event.step, event.elbo) for event in seldom] == [(event.step, event.elbo) for event in often[2::2]]
    assert eqx.tree_equal(often[-1].state, seldom[-1].state)


@pytest.mark.parametrize(("milliseconds", "at_once"), [(1, 250), (20, 12), (3000, 1)])
def test_no_more_steps_are_queued_than_take_a_quarter_of_a_second(milliseconds, at_once, monkeypatch):
    """After a first step that compiles; the clock goes on by the steps that are waited for."""
    clock, queued, waited = [0.0], [0], []

    def wait_for(leaves):
        clock[0] += queued[0] * milliseconds / 1000
        waited.append(queued[0])
        queued[0] = 0

    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(loop.jax, "block_until_ready", wait_for)
    wait = loop._Wait()
    wait.begin()
    clock[0] += 30
    for _ in range(2000):
        queued[0] += 1
        wait([])
    assert waited[:2] == [1, 1]
    assert set(waited[2:]) <= {at_once - 1, at_once}


def test_dataset_elbo_ignores_padding_and_batches(key):
    bounds = [tickgp.dataset_elbo(model(), X, Y, key=key, batch_size=size) for size in (5, 24, 128)]
    np.testing.assert_allclose(bounds, bounds[0], rtol=1e-5)


def test_first_step_of_adam(key):
    """Adam's first step moves every parameter by the learning rate, against the sign of its gradient."""
    start = model()
    gradient = jax.jit(jax.grad(lambda m: -tickgp.elbo(m, jnp.asarray(X), jnp.asarray(Y), len(X), key=key)))
    rate = lambda t: 0.01
    moved = tickgp.fit(start, X, Y, steps=1, batch_size=24, learning_rate=rate, natural_gradients=False, key=key)
    before, after = start.layers[0].gp.q.q_mu.raw, moved.layers[0].gp.q.q_mu.raw
    direction = jnp.sign(gradient(start).layers[0].gp.q.q_mu.raw)
    np.testing.assert_allclose(after - before, -0.01 * direction, atol=1e-5)


def test_every_step_has_noise_of_its_own(key):
    """All images are the same, and so is the model: what is left is the noise of the likelihood."""
    x, y, start = (
        np.repeat(X[:1], 24, axis=0),
        np.zeros(24, int),
        tickgp.tick(X, Softmax(2), patch_size=3, num_inducing=6, key=key),
    )
    settings = {"steps": 4, "batch_size": 8, "learning_rate": lambda t: 0.0, "report_every": 1, "key": key}
    bounds = [event.elbo for event in train(start, x, y, **settings)]
    assert len(set(bounds)) == 4


def test_a_prior_joins_the_gradient_and_not_the_bound(key):
    """Adam's first moment is a tenth of the gradient of the loss; the density's is (w − mean) / deviation²."""
    settings = {"steps": 1, "batch_size": 24, "report_every": 1, "key": key}
    weights = lambda m: m.layers[0].gp.kernel.covariance.weights
    moments, bounds = [], []
    for prior in (None, tickgp.Normal(1.0, 0.5)):
        w = Real(np.linspace(-1, 2, weights(model()).value.size), prior=prior)
        (event,) = train(eqx.tree_at(weights, model(), w), X, Y, **settings)
        moments.append(np.asarray(weights(event.state.adam.mu).raw))
        bounds.append(event.elbo)
    assert bounds[0] == bounds[1]
    np.testing.assert_allclose(moments[1] - moments[0], 0.1 * (w.value - 1) / 0.25, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_means_of_hidden_layers_move_at_a_rate_of_their_own(key):
    """Three times as far as all else in Adam's first step, which is by the learning rate; what is frozen stays."""
    start = tickgp.deep_conv(X, Bernoulli(), depth=3, patch_size=2, num_inducing=6, key=key)
    start = tickgp.freeze(start, lambda m: m.layers[1].gp.q.q_mu)
    settings = {"steps": 1, "batch_size": 24, "learning_rate": 0.01, "natural_gradients": False, "key": key}
    end = tickgp.fit(start, X, Y, hidden_mean_rate=3.0, **settings)
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), start, end)
    first, second, last = (layer.gp for layer in moved.layers)
    assert (first.q.q_mu.raw, second.q.q_mu.raw) == (pytest.approx(0.03, rel=1e-3), 0)
    rest = (first.inducing[0].Z.raw, first.q.q_sqrt.raw, second.inducing[0].Z.raw, last.q.q_mu.raw)
    np.testing.assert_allclose(rest, 0.01, rtol=0.1)


def test_same_seed_same_result_and_the_callers_model_is_untouched(key):
    start = model()
    before = leaves(start)
    runs = [tickgp.fit(start, X, Y, steps=10, batch_size=8, key=key) for _ in range(2)]
    for a, b in zip(leaves(runs[0]), leaves(runs[1]), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(before, leaves(start), strict=True):
        np.testing.assert_array_equal(a, b)


def test_frozen_parameters_stay(key):
    where = lambda m: (m.layers[0].gp.kernel, m.layers[0].gp.inducing)
    start = tickgp.freeze(model(), where)
    end = tickgp.fit(start, X, Y, steps=5, batch_size=8, key=key)
    for a, b in zip(leaves(where(start)), leaves(where(end)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(start.layers[0].gp.q.q_mu.raw, end.layers[0].gp.q.q_mu.raw)


def test_inverse_decay():
    rate = inverse_decay(0.01, 5000.0)
    assert [rate(0), rate(5000), rate(45_000)] == pytest.approx([0.01, 0.005, 0.001])


def test_linear_decay():
    rate = linear_decay(0.01, 200)
    assert [rate(0), rate(50), rate(200), rate(300)] == pytest.approx([0.01, 0.0075, 0.0, 0.0])


@pytest.mark.slow
def test_draws_of_the_likelihood_quieten_the_estimates(key):
    """The same model again and again: the spread of the estimates of its bound falls with the root of their number."""
    start = tickgp.tick(X, Softmax(2), patch_size=3, num_inducing=6, key=key)
    settings = {"steps": 60, "batch_size": 24, "learning_rate": lambda t: 0.0, "report_every": 1, "key": key}
    one, many = (
        np.std([event.elbo for event in train(start, X, Y, likelihood_samples=number, **settings)])
        for number in (1, 64)
    )
    assert 4 < one / many < 16


def test_regression_trains_towards_the_exact_evidence(float64, key):
    """One patch for the whole image, so the exact GP is plain: no bound may pass its log marginal likelihood."""
    x, y = X.astype(float)[:8], np.sin(np.arange(8.0))[:, None]
    gp = tickgp.se(x, tickgp.Gaussian(0.1), num_inducing=8, lengthscale=1.0, jitter=1e-8, key=key)
    gp = tickgp.freeze(gp, lambda m: (m.layers[0].gp.kernel, m.layers[0].gp.inducing, m.likelihood))
    gp = tickgp.fit(gp, x, y, steps=2000, learning_rate=inverse_decay(0.05, 200.0), key=key)
    Kff = reference.gram(reference.se(5.0, 1.0), x.reshape(8, -1), x.reshape(8, -1))
    exact = reference.log_marginal_likelihood(Kff, 0.1, y[:, 0])
    bound = tickgp.dataset_elbo(gp, x, y, key=key)
    assert exact - 0.01 < bound < exact + 1e-6


@pytest.mark.parametrize(
    ("labels", "settings", "words"),
    [
        (Y + 1, {}, "labels go from 1 to 2"),
        (Y[:5], {}, "one label for each of the 24 images"),
        (Y, {"steps": 0}, "steps 0 was given; it must be at least 1"),
        (Y, {"batch_size": 0}, "batch_size 0 was given"),
        (Y, {"report_every": 0}, "report_every 0 was given"),
    ],
)
def test_refuses_wrong_input(labels, settings, words, key):
    with pytest.raises(ValueError, match=words):
        tickgp.fit(model(), X, labels, **{"steps": 1, "key": key, **settings})


def test_a_batch_larger_than_the_data_is_the_data(key):
    ends = [tickgp.fit(model(), X, Y, steps=1, batch_size=size, key=key) for size in (24, 1000)]
    for a, b in zip(leaves(ends[0]), leaves(ends[1]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (np.zeros(24), r"targets have shape \(24,\) and type float64; give floats of shape \(24, 1\)"),
        (np.zeros((5, 1)), r"shape \(5, 1\)"),
        (np.zeros((24, 3)), r"shape \(24, 3\)"),
        (np.full((24, 1), np.nan), "24 targets are NaN or infinite"),
    ],
)
def test_refuses_wrong_targets_of_a_regression(targets, words, key):
    regression = tickgp.se(X, tickgp.Gaussian(), num_inducing=4, key=key)
    with pytest.raises(ValueError, match=words):
        tickgp.fit(regression, X, targets, steps=1, key=key)
    with pytest.raises(ValueError, match=words):
        tickgp.dataset_elbo(regression, X, targets, key=key)


def test_a_learning_rate_may_be_a_number(key):
    ends = [tickgp.fit(model(), X, Y, steps=2, learning_rate=rate, key=key) for rate in (0.02, lambda t: 0.02)]
    for a, b in zip(leaves(ends[0]), leaves(ends[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bytes_train_like_the_numbers_they_stand_for(key):
    pixels = (255 * X).astype(np.uint8)
    inputs = pixels, (pixels / 255).astype(np.float32)
    ends = [tickgp.fit(model(), x, Y, steps=1, batch_size=8, key=key).layers[0].gp.q.q_mu.raw for x in inputs]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-5)


def test_softmax_model_has_trainable_and_constant_arrays_after_training(key):
    start = tickgp.conv(X, Softmax(2), patch_size=3, num_inducing=6, key=key)
    end = tickgp.fit(start, X, Y, steps=3, batch_size=8, key=key)
    assert jax.tree.structure(start) == jax.tree.structure(end)
    assert eqx.tree_equal(start.jitter, end.jitter)


def test_natural_gradients_reach_the_optimum_of_a_regression(float64, key):
    """With one batch and a Gaussian likelihood, and all but q frozen; Adam with such a rate would jump about."""
    x, y = X.astype(float)[:8], np.sin(np.arange(8.0))[:, None]
    gp = tickgp.se(x, tickgp.Gaussian(0.1), num_inducing=6, lengthscale=1.0, key=key)
    gp = tickgp.freeze(gp, lambda m: (m.layers[0].gp.kernel, m.layers[0].gp.inducing, m.likelihood))
    moved = tickgp.fit(gp, x, y, steps=60, batch_size=8, learning_rate=0.5, key=key)
    gradient = jax.jit(jax.grad(lambda m: tickgp.elbo(m, jnp.asarray(x), jnp.asarray(y), 8, key=key)))
    far, near = (gradient(m).layers[0].gp.q for m in (gp, moved))
    assert np.abs(far.q_mu.raw).max() > 1e-2
    np.testing.assert_allclose(near.q_mu.raw, 0, atol=1e-8)
    np.testing.assert_allclose(near.q_sqrt.raw, 0, atol=1e-8)


@pytest.mark.parametrize("where", [lambda q: q.q_mu, lambda q: q.q_sqrt, lambda q: q])
def test_what_is_frozen_of_q_stays(where, key):
    start = tickgp.freeze(model(), lambda m: where(m.layers[0].gp.q))
    end = tickgp.fit(start, X, Y, steps=3, batch_size=8, key=key)
    for a, b in zip(leaves(where(start.layers[0].gp.q)), leaves(where(end.layers[0].gp.q)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not eqx.tree_equal(start.layers[0].gp.kernel, end.layers[0].gp.kernel)


@pytest.mark.slow
def test_natural_gradients_are_for_the_last_full_q(key):
    """The rest moves as without them: hidden layers, kernels, patches. Adam has moments of a q(u) that it trains."""
    deep = tickgp.deep_conv(X, Bernoulli(), depth=2, patch_size=3, num_inducing=6, key=key)
    last = lambda model: model.layers[-1].gp.q
    natural, plain = (tickgp.fit(deep, X, Y, steps=1, natural_gradients=on, key=key) for on in (True, False))
    for a, b in zip(leaves(last(natural)), leaves(last(plain)), strict=True):
        assert not np.array_equal(a, b)
    for a, b in zip(leaves(eqx.tree_at(last, natural, None)), leaves(eqx.tree_at(last, plain, None)), strict=True):
        np.testing.assert_array_equal(a, b)
    diagonal = tickgp.conv(X, Bernoulli(), patch_size=3, num_inducing=6, mean_field=True, key=key)
    robust = tickgp.conv(X, RobustMax(2), patch_size=3, num_inducing=6, key=key)
    assert [last(initial_state(model).adam.mu) is None for model in (deep, diagonal, robust)] == [True, False, False]


@pytest.mark.parametrize("natural", [True, False])
def test_a_state_goes_on_as_it_began(natural, key):
    """Adam keeps two moments of every number that it trains, and none of others; a state says which these are."""
    settings = {"batch_size": 8, "learning_rate": 0.01, "report_every": 2, "key": key}
    (begun,) = train(model(), X, Y, steps=2, natural_gradients=natural, **settings)
    numbers = lambda tree: sum(leaf.size for leaf in leaves(tree))
    q, location = begun.state.model.layers[0].gp.q, 1  # the location kernel's variance is not trained, nor the jitter
    adams = numbers(begun.state.model) - location - 1 - (numbers(q) if natural else 0)
    assert numbers(begun.state.adam.mu) == numbers(begun.state.adam.nu) == adams
    with pytest.raises(ValueError, match="start anew from the state's model"):
        list(train(begun.state, X, Y, steps=4, natural_gradients=not natural, **settings))
    (whole,) = list(train(model(), X, Y, steps=4, natural_gradients=natural, **settings))[1:]
    (resumed,) = train(begun.state, X, Y, steps=4, natural_gradients=natural, **settings)
    for a, b in zip(leaves(whole.state), leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(a, b)
    settings.pop("report_every")  # the state is still whole, and can be gone on from again
    again = tickgp.fit(begun.state, X, Y, steps=4, natural_gradients=natural, **settings)
    assert eqx.tree_equal(again, whole.state.model)
    assert eqx.tree_equal(
        tickgp.fit(begun.state, X, Y, steps=2, natural_gradients=natural, **settings), begun.state.model
    )


@pytest.mark.parametrize("rate", [1e20, 3.0])
def test_natural_steps_are_at_most_whole(rate, key):
    """Beyond a whole step the covariance could lose its sign; Adam's part is frozen, or it would leave the numbers."""
    rest = lambda m: (m.layers[0].gp.kernel, m.layers[0].gp.inducing)
    start = tickgp.freeze(model(), rest)
    large, whole = (tickgp.fit(start, X, Y, steps=1, batch_size=24, learning_rate=r, key=key) for r in (rate, 1.0))
    assert not eqx.tree_equal(start, whole)
    assert eqx.tree_equal(large, whole)


def test_guessing_by_the_shares_of_the_classes():
    assert guessing_bound(np.array([0, 0, 0, 2])) == pytest.approx(3 * np.log(0.75) + np.log(0.25))


TWO_LAYERS = """
import jax
import numpy as np
import tickgp
x, y = np.random.default_rng(0).random((64, 32, 32, 3)), np.arange(64) % 10
sizes = {"stride": None, "hidden_stride": None, "channels": 5, "num_inducing": 200}
model = tickgp.deep_tick(x, tickgp.Softmax(10), sampling="full", **sizes, key=jax.random.key(0))
tickgp.fit(model, x, y, steps=30, batch_size=64, key=jax.random.key(1))
"""


@pytest.mark.slow
def test_joint_samples_of_colour_images_do_not_hang():
    """On two cores they did: LAPACK's calls on stacks, in a natural step and in a gradient, waited for each other."""
    subprocess.run([sys.executable, "-c", TWO_LAYERS], check=True, timeout=200)
