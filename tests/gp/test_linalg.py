"""A = L⁻¹B with its gradient in closed form, and the inverse of a triangle by blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

from tickgp.gp import builders, linalg
from tickgp.gp.compiling import platform
from tickgp.gp.likelihoods import Softmax
from tickgp.gp.objective import expected_log_prob

LAPACK = ("cholesky", "triangular_solve")
each_size = pytest.mark.parametrize("M", [1, 7, 32, 70])


def covariance(M, stack=()):
    rows = np.random.default_rng(M).normal(size=(*stack, M, 2 * M))
    return jnp.asarray(rows @ np.swapaxes(rows, -1, -2) / M)


def plain(K, B):
    """By the gradients of the factorisation and of the solution that come with them."""
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(K), B, lower=True)


@pytest.mark.parametrize("stack", [(), (3,)])
def test_whitened_values_and_gradients(stack, float64):
    rng, M, T = np.random.default_rng(0), 6, 4
    K, B, weights = covariance(M, stack), *(jnp.asarray(rng.normal(size=(*stack, M, T))) for _ in range(2))
    symmetric = lambda A: (A + A.mT) / 2
    both = [
        jax.jit(jax.value_and_grad(lambda K, B, f=f: jnp.sum(jnp.sin(f(symmetric(K), B)) * weights), (0, 1)))(K, B)
        for f in (plain, linalg.whiten)
    ]
    for a, b in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-11)


def test_without_a_cholesky_factor_all_is_nan():
    indefinite = jnp.asarray([[1.0, 2.0], [2.0, 1.0]])
    assert np.isnan(linalg.whiten(indefinite, jnp.ones((2, 1)))).any()


def test_a_covariance_that_is_not_quite_positive(float64):
    """Each matrix gets as much as it needs on its diagonal, in steps of ten, and the gradient is that of the sum."""
    good, bad = np.asarray(covariance(3)), np.diag([1.0, 2.0, -5e-4])
    K, jitter = jnp.asarray([good, bad]), jnp.asarray([1e-5, 1e-5])
    root = linalg.cholesky_of_rounded(K, jitter)
    np.testing.assert_allclose(root @ root.mT, [good + 1e-5 * np.eye(3), bad + 1e-3 * np.eye(3)], rtol=1e-12)
    gradient = jax.grad(lambda K: jnp.sum(linalg.cholesky_of_rounded(K, jitter)[1].diagonal()))(K)
    np.testing.assert_allclose(np.diag(gradient[1]), 0.5 / np.sqrt([1.001, 2.001, 5e-4]), rtol=1e-9)
    assert np.isnan(linalg.cholesky_of_rounded(jnp.diag(jnp.asarray([1.0, -1.0])), jnp.asarray(1e-5))).any()


def test_on_a_cpu_lapack_is_asked_for_one_matrix_at_a_time():
    """It would wait for threads that may be waiting for it, see `linalg._each`."""
    K, B = covariance(4, (2, 3)), jnp.ones((2, 3, 4, 4))
    root = lambda K: jnp.sum(linalg.cholesky_of_rounded(K, jnp.full((2, 3), 1e-5)))
    for function, arguments in (
        (linalg.whiten, (K, B)),
        (jax.grad(root), (K,)),
        (linalg.inverse_lower, (K,)),
        (linalg.over_unit_lower, (B, jnp.tril(K, -1))),
    ):
        calls = [shape for name, shape in problems.traced(function, *arguments) if name in LAPACK]
        assert calls
        assert set(calls) == {(4, 4)}


def test_so_it_is_for_joint_samples_of_several_layers():
    x = np.random.default_rng(0).random((4, 9, 8, 1))
    sizes = {"depth": 3, "patch_size": 3, "channels": 2, "num_inducing": 5}
    model = builders.deep_conv(x, Softmax(3), sampling="full", **sizes, key=jax.random.key(0))
    fit = lambda model, x, key: expected_log_prob(model, x, jnp.zeros(4, int), key=key, num_samples=2)
    trace = problems.traced(fit, model, jnp.asarray(x), jax.random.key(1))
    calls = [shape for name, shape in trace if name in LAPACK]
    assert len(calls) > 3
    assert {np.prod(shape[:-2], dtype=int) for shape in calls} == {1}


@each_size
def test_the_inverse_by_blocks(M, float64):
    """Fewer rows than a block, exactly one, and some that fill no whole number of blocks."""
    L = np.linalg.cholesky(covariance(M, (2,)))
    inverse = linalg._inverse_by_blocks(jnp.asarray(L))
    np.testing.assert_allclose(inverse, np.linalg.inv(L), rtol=1e-8, atol=1e-9)
    assert not np.triu(inverse, 1).any()


@each_size
def test_the_inverse_by_substitution(M, float64):
    L = np.linalg.cholesky(covariance(M))
    np.testing.assert_allclose(linalg.inverse_lower(jnp.asarray(L)), np.linalg.inv(L), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("machine", ["cpu", "gpu"])
def test_dividing_from_the_right(machine, float64, monkeypatch):
    monkeypatch.setattr(linalg, "platform", lambda: machine)
    L, B = np.linalg.cholesky(covariance(40, (2,))), np.random.default_rng(1).normal(size=(2, 3, 40))
    N = np.tril(L, -1)
    expected = B @ np.linalg.inv(np.eye(40) + N)
    np.testing.assert_allclose(linalg.over_unit_lower(jnp.asarray(B), jnp.asarray(N)), expected, rtol=1e-8)


def test_single_precision_is_as_good_as_substitution():
    """On an ill-conditioned covariance: errors of L⁻¹B by products, and of solving, against double precision."""
    t = np.linspace(0, 1, 60)
    K = np.exp(-((t[:, None] - t) ** 2) / 0.1) + 1e-5 * np.eye(60)
    B = np.exp(-((t[:, None] - np.linspace(0, 1, 9)) ** 2) / 0.1)
    expected = np.linalg.solve(np.linalg.cholesky(K), B)
    single = [jnp.asarray(a, jnp.float32) for a in (K, B)]
    error = lambda f: np.abs(np.asarray(f(*single), float) - expected).max()
    assert error(linalg.whiten) < 3 * error(plain)


def test_where_it_will_run_is_what_the_user_asked_for():
    assert platform() == jax.default_backend()
    for device in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(device):
            assert platform() == "cpu"
