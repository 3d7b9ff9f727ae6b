"""q(f) and KL of one prior: against eq. qf in its unwhitened form, limits and finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference
from problems import M, posterior

pytestmark = pytest.mark.usefixtures("float64")

PRIORS = {
    "pointwise": problems.pointwise,
    "conv": lambda x: problems.convolutional(x, location=None),
    "tick": problems.convolutional,
    "mock": problems.mock,
}
FORMS = {"full rank": problems.full_rank, "mean field": problems.mean_field}
L = 2

each_prior = pytest.mark.parametrize("prior", PRIORS)
each_form = pytest.mark.parametrize("form", FORMS)
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def setting(prior, form="full rank", jitter=0.0, signs=False):
    """A GP of two latents, its inputs, its matrices, and the paper's m and S of each latent."""
    x = problems.images()
    problem, (q_mu, q_sqrt) = PRIORS[prior](x), problems.random_q(L, signs=signs)
    problem.Kuu += jitter * np.mean(np.diag(problem.Kuu)) * np.eye(M)
    gp = problems.shared_gp(problem, FORMS[form](q_mu, q_sqrt))
    roots = q_sqrt if form == "full rank" else q_sqrt * np.eye(M)
    moments = [reference.unwhiten(problem.Kuu, *q) for q in zip(q_mu, roots, strict=True)]
    return gp, jnp.asarray(x), problem, moments


def by_site(values, N):
    """(T,) of each latent as (N, Q·L): output l of site q is q·L + l."""
    return np.stack([v.reshape(N, -1) for v in values], axis=-1).reshape(N, -1)


def blocks(covariance, N):
    """(T,T) -> (N,Q,Q): only what lies between the sites of one input."""
    Q = len(covariance) // N
    return np.einsum("npnq->npq", covariance.reshape(N, Q, N, Q))


@pytest.mark.parametrize(("num_inducing", "columns"), [(50, 60), (130, 140), (301, 310), (130, 40)])
@pytest.mark.parametrize("shared", [True, False])
@each_form
def test_variance_is_that_of_the_whole_product(form, shared, num_inducing, columns):
    """aᵀSa, with as many bands of q_sqrt as there may be, and with fewer columns than inducing variables."""
    q_mu, q_sqrt = problems.random_q(L, num_inducing)
    root = q_sqrt if form == "full rank" else q_sqrt * np.eye(num_inducing)
    a = np.random.default_rng(0).normal(size=(1 if shared else L, num_inducing, columns))
    expected = [np.sum((root[i].T @ a[0 if shared else i]) ** 2, axis=0) for i in range(L)]
    close(FORMS[form](q_mu, q_sqrt).variance(jnp.asarray(a)), np.stack(expected, axis=-1))


@pytest.mark.parametrize("jitter", [0.0, 1e-3])
@each_form
@each_prior
def test_marginals_and_joint_are_eq_qf(prior, form, jitter):
    gp, x, problem, moments = setting(prior, form, jitter)
    means, covariances = zip(*(reference.qf(problem.Kuu, problem.Kuf, problem.Kff, *q) for q in moments), strict=True)
    f, joint, _ = posterior(gp, x, jitter)
    close(f.mean, by_site(means, len(x)))
    close(joint.mean, by_site(means, len(x)))
    close(f.variance, by_site([np.diag(C) for C in covariances], len(x)))
    close(joint.latent_covariance, np.stack([blocks(C, len(x)) for C in covariances]))


@each_form
@each_prior
def test_kl_is_that_of_the_unwhitened_q(prior, form):
    gp, x, problem, moments = setting(prior, form)
    close(posterior(gp, x)[2], sum(reference.kl(problem.Kuu, *q) for q in moments))


@each_form
@each_prior
def test_q_at_the_prior_gives_the_prior(prior, form):
    x = problems.images()
    problem = PRIORS[prior](x)
    q = FORMS[form](np.zeros((L, M)), np.tile(np.eye(M), (L, 1, 1)))
    f, joint, kl = posterior(problems.shared_gp(problem, q), jnp.asarray(x))
    close(f.mean, 0)
    close(f.variance, by_site([np.diag(problem.Kff)] * L, len(x)))
    close(joint.latent_covariance, np.stack([blocks(problem.Kff, len(x))] * L))
    close(kl, 0)


@each_prior
def test_negative_diagonals_of_the_factor_do_not_matter(prior):
    gp, x, problem, moments = setting(prior, signs=True)
    assert np.diagonal(gp.q.q_sqrt.value, axis1=1, axis2=2).min() < 0
    covariances = [reference.qf(problem.Kuu, problem.Kuf, problem.Kff, *q)[1] for q in moments]
    f, joint, kl = posterior(gp, x)
    close(f.variance, by_site([np.diag(C) for C in covariances], len(x)))
    close(joint.latent_covariance, np.stack([blocks(C, len(x)) for C in covariances]))
    close(kl, sum(reference.kl(problem.Kuu, *q) for q in moments))


@pytest.mark.parametrize(
    ("prior", "form"),
    [("pointwise", "full rank"), ("tick", "full rank"), ("mock", "full rank"), ("pointwise", "mean field")],
)
def test_gradients_are_those_of_finite_differences(prior, form):
    """Of the sum of all means, all variances and the KL, along a random direction of every parameter."""
    gp, x, *_ = setting(prior, form, signs=form == "full rank")
    arrays, static = eqx.partition(gp, eqx.is_array)

    def total(arrays):
        f, _, kl = posterior(eqx.combine(arrays, static), x)
        return f.mean.sum() + f.variance.sum() + kl

    gradient = jax.jit(jax.grad(total))(arrays)
    rng, step = np.random.default_rng(3), 1e-4
    leaves, tree = jax.tree.flatten(arrays)
    for i, slope in enumerate(jax.tree.leaves(gradient)):
        direction = rng.normal(size=slope.shape)
        at = lambda t, i=i, d=direction: total(tree.unflatten([*leaves[:i], leaves[i] + t * d, *leaves[i + 1 :]]))
        one, two = at(step) - at(-step), at(2 * step) - at(-2 * step)
        np.testing.assert_allclose(jnp.sum(slope * direction), (8 * one - two) / (12 * step), rtol=1e-7, atol=1e-7)
