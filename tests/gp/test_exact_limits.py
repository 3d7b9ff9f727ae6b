"""Where the sparse approximation is exact: inducing variables at everything the training data hold.

The images are binary, so that few patches are distinct and Kuu is well conditioned.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference
from problems import GRID, PLACES

from tickgp.gp.likelihoods import Gaussian
from tickgp.gp.objective import elbo

pytestmark = pytest.mark.usefixtures("float64")

N_TRAIN, N_TEST, L, NOISE = 4, 3, 2, 0.1
LOCATION = ("matern32", 1.0, 2.0)


def distinct(rows):
    return np.unique(rows.reshape(-1, rows.shape[-1]), axis=0)


def pointwise(x, train, keep):
    return problems.pointwise(x, kernel=("se", 1.3, 2.0), Z=train.reshape(N_TRAIN, -1)[keep])


def invariant(x, train, keep, summed=True):
    Z = distinct(reference.patches(train, *problems.PATCH))[keep]
    return problems.convolutional(x, summed=summed, kernel=("se", 1.7, 1.0), location=None, Z=(Z, None))


def located(x, train, keep, summed=True):
    patches = reference.patches(train, *problems.PATCH)
    both = distinct(np.concatenate([patches, np.broadcast_to(PLACES, (N_TRAIN, *PLACES.shape))], axis=2))[keep]
    Z = (both[:, :-2], both[:, -2:])
    return problems.convolutional(x, summed=summed, kernel=("se", 1.7, 1.0), location=LOCATION, Z=Z)


CASES = {
    "pointwise": pointwise,
    "conv": invariant,
    "tick": located,
    "mock": lambda *args: invariant(*args, summed=False),
    "mock with places": lambda *args: located(*args, summed=False),
}
each_case = pytest.mark.parametrize("case", CASES)


@eqx.filter_jit
def bound_and_prediction(model, x, y, x_test, key):
    f = model.layers[0].marginals(x_test, model.jitter)
    return elbo(model, x, y, len(x), key=key), f.mean, f.variance


def setting(case, key, keep=slice(None)):
    """Our bound and prediction at the best q; the covariance of all T points, and the targets (T_train, L)."""
    rng = np.random.default_rng(0)
    train = rng.integers(0, 2, (N_TRAIN, *GRID.image_shape)).astype(float)
    test = rng.uniform(0, 1, (N_TEST, *GRID.image_shape))
    problem = CASES[case](np.concatenate([train, test]), train, keep)
    sites = len(problem.Kff) // (N_TRAIN + N_TEST)
    T = N_TRAIN * sites
    y = rng.normal(size=(T, L))
    q = problems.full_rank(*problems.optimum(problem, y, NOISE, slice(T)))
    model = problems.single_layer(problem, q, Gaussian(NOISE, sites * L))
    arrays = (jnp.asarray(a) for a in (train, y.reshape(N_TRAIN, -1), test))
    return bound_and_prediction(model, *arrays, key), problem, y


@each_case
def test_all_distinct_patches_give_the_exact_gp(case, key):
    (bound, mean, variance), problem, y = setting(case, key)
    T, Kff = len(y), problem.Kff
    evidence = sum(reference.log_marginal_likelihood(Kff[:T, :T], NOISE, column) for column in y.T)
    np.testing.assert_allclose(bound, evidence, rtol=1e-9)
    for latent, column in enumerate(y.T):
        exact, covariance = reference.exact_posterior(Kff[:T, :T], Kff[:T, T:], Kff[T:, T:], NOISE, column)
        of_latent = lambda a, latent=latent: a.reshape(-1, L)[:, latent]
        np.testing.assert_allclose(of_latent(mean), exact, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(of_latent(variance), np.diag(covariance), rtol=1e-8, atol=1e-8)


@each_case
def test_fewer_inducing_variables_give_the_collapsed_bound_below(case, key):
    """log N(y; 0, Qff + noise I) − tr(Kff − Qff) / (2 noise), Qff = Kfu Kuu⁻¹ Kuf: strictly below the evidence."""
    (bound, *_), problem, y = setting(case, key, slice(0, None, 2))
    T = len(y)
    Kff, Kuf = problem.Kff[:T, :T], problem.Kuf[:, :T]
    Qff = Kuf.T @ np.linalg.solve(problem.Kuu, Kuf)
    lost = np.trace(Kff - Qff) / (2 * NOISE)
    collapsed = sum(reference.log_marginal_likelihood(Qff, NOISE, column) - lost for column in y.T)
    evidence = sum(reference.log_marginal_likelihood(Kff, NOISE, column) for column in y.T)
    np.testing.assert_allclose(bound, collapsed, rtol=1e-9)
    assert bound < evidence - 1e-3


@each_case
def test_the_problems_are_well_conditioned(case, key):
    """Otherwise the agreement above would be that of two wrong numbers."""
    _, problem, _ = setting(case, key)
    assert np.linalg.cond(problem.Kuu) < 1e5
