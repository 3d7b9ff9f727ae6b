"""Vector-valued priors: against eq. qf on the big matrices of all latents at once; what is computed; a new prior."""

import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference
from problems import M, posterior

from tickgp.gp import variational
from tickgp.gp.covariances import AbstractCovariance
from tickgp.gp.inducing import InducingPoints
from tickgp.gp.kernels import Matern32, Matern52, SquaredExponential
from tickgp.gp.multioutput import LinearCoregionalization, Separate, Shared
from tickgp.gp.params import Real
from tickgp.gp.variational import SparseGP

pytestmark = pytest.mark.usefixtures("float64")

L, OUTPUTS = 3, 4
KERNELS = [("se", 1.3, 4.0), ("matern32", 0.7, 3.0), ("matern52", 2.1, np.linspace(2.0, 6.0, 12))]
RESPONSES = [("se", 1.7, 1.5), ("matern52", 0.6, 2.0), ("matern32", 1.1, np.linspace(1.0, 2.0, 4))]
HOW = ["shared", "separate"]
close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def latents(x, family, kernels, inducing):
    """The problem of each of L latents, as the big matrices have them."""
    pick = lambda how: range(L) if how == "separate" else [0] * L
    numbers = zip(pick(kernels), pick(inducing), strict=True)
    if family == "mock":
        return [problems.mock(x, 10 + Z, kernel=RESPONSES[k], location=("se", 1.0, 2.0 + k)) for k, Z in numbers]
    each = [problems.pointwise(x, 10 + Z, KERNELS[k]) for k, Z in numbers]
    return [problems.convolutional(x), problems.convolutional(x, location=None), each[2]] if family == "mixed" else each


def sparse_gp(members, kernels="separate", inducing="separate", W=None):
    prior = Shared(members[0].prior) if kernels == "shared" else Separate(tuple(m.prior for m in members))
    kernel = prior if W is None else LinearCoregionalization(prior, Real(W))
    Z = tuple(m.inducing for m in members[: 1 if inducing == "shared" else None])
    return SparseGP(kernel, Z, problems.full_rank(*problems.random_q(len(members))))


def expected(members, W=None):
    """Mean (O,T) and covariance (O,T,O,T) of q(f) by the big matrices, and the KL."""
    q = zip(members, *problems.random_q(len(members)), strict=True)
    ms, Ss = zip(*(reference.unwhiten(m.Kuu, *moments) for m, *moments in q), strict=True)
    Kuus, Kufs, Kffs = ([getattr(m, name) for m in members] for name in ("Kuu", "Kuf", "Kff"))
    big = reference.separate_qf if W is None else lambda *a: reference.coregionalized_qf(W, *a)
    kl = reference.kl(reference.block_diagonal(Kuus), np.concatenate(ms), reference.block_diagonal(Ss))
    return *big(Kuus, Kufs, Kffs, ms, Ss), kl


def check(gp, x, mean, covariance, kl):
    """Marginals, joint and KL of a GP against `expected`, in the library's order: output o of site q is q·O + o."""
    N, num_outputs = len(x), len(mean)
    sites = (N, mean.shape[1] // N)
    covariance = covariance.reshape(num_outputs, *sites, num_outputs, *sites)
    f, joint, our_kl = posterior(gp, x)
    mean = np.moveaxis(mean.reshape(num_outputs, *sites), 0, -1).reshape(N, -1)
    between = np.einsum("onprnq->npoqr", covariance).reshape(N, *mean.shape[1:], -1)
    close(f.mean, mean)
    close(joint.mean, mean)
    close(f.variance, np.diagonal(between, axis1=1, axis2=2))
    close(joint.covariance, between)
    close(our_kl, kl)


@pytest.mark.parametrize("inducing", HOW)
@pytest.mark.parametrize("kernels", HOW)
@pytest.mark.parametrize("family", ["pointwise", "mock"])
def test_independent_latents_are_one_block_diagonal_gp(family, kernels, inducing):
    x = problems.images(2)
    members = latents(x, family, kernels, inducing)
    check(sparse_gp(members, kernels, inducing), jnp.asarray(x), *expected(members))


def test_latents_may_be_of_different_kinds():
    x = problems.images(2)
    members = latents(x, "mixed", "separate", "separate")
    check(sparse_gp(members), jnp.asarray(x), *expected(members))


@pytest.mark.parametrize(
    ("family", "kernels", "inducing"),
    [("pointwise", "separate", "separate"), ("pointwise", "separate", "shared"), ("mock", "shared", "shared")],
)
def test_mixed_outputs_are_one_gp_with_the_mixed_covariance(family, kernels, inducing):
    x, W = problems.images(2), np.random.default_rng(5).normal(size=(OUTPUTS, L))
    members = latents(x, family, kernels, inducing)
    check(sparse_gp(members, kernels, inducing, W), jnp.asarray(x), *expected(members, W))


def test_parts_that_do_not_belong_together_are_refused():
    gp = sparse_gp(latents(problems.images(2), "pointwise", "separate", "separate"))
    with pytest.raises(
        ValueError, match="3 latents, but there are 3 kernels and 2 sets of inducing variables; give one"
    ):
        SparseGP(gp.kernel, gp.inducing[:2], gp.q)
    with pytest.raises(ValueError, match="3 latents, but W mixes 2; give W a column for each latent"):
        SparseGP(LinearCoregionalization(gp.kernel, Real(jnp.ones((4, 2)))), gp.inducing, gp.q)
    fewer = InducingPoints(Real(gp.inducing[0].Z.value[1:]))
    with pytest.raises(ValueError, match=rf"q has {M} inducing variables for each latent, but Z has \[{M - 1}\]"):
        SparseGP(gp.kernel, (fewer,), gp.q)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("inducing", HOW)
@pytest.mark.parametrize("kernels", HOW)
def test_inference_is_latent_by_latent(kernels, inducing, mixed):
    """Nothing as large as an LM×LM matrix is made; where all is shared, one M×M matrix is factorised."""
    x = problems.images(1)
    members = latents(x, "mock", kernels, inducing)
    gp = sparse_gp(members, kernels, inducing, np.ones((OUTPUTS, L)) if mixed else None)
    trace = problems.traced(variational.marginals, gp, jnp.asarray(x), jnp.asarray(0.0))
    assert max(np.prod(shape) for _, shape in trace) < (L * M) ** 2
    one = kernels == inducing == "shared"
    assert [shape for name, shape in trace if name == "cholesky"] == [(1, M, M) if one else (M, M)]
    assert (("scan", (L, M, M)) in trace) == (not one), "one after the other, or all at once"


def example_of_the_docs() -> type[AbstractCovariance]:
    """The class that docs/multioutput.md shows."""
    page = (Path(__file__).parents[2] / "docs/multioutput.md").read_text()
    names: dict[str, Any] = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)
    return names["ValueAndGradient"]


ValueAndGradient = example_of_the_docs()


D, STEP = 2, 1e-3
k = reference.se(1.3, [0.8, 1.4])


def differences(function, x):
    """(function, its derivative along each coordinate) at x, by fourth-order differences."""
    slope = lambda e: 8 * (function(x + e) - function(x - e)) - (function(x + 2 * e) - function(x - 2 * e))
    return np.stack([function(x), *(slope(STEP * e) / (12 * STEP) for e in np.eye(D))])


def gradient_gp():
    """A GP fitted to noisy values of sin(x_1 + x_2), and three inputs to look at it."""
    rng = np.random.default_rng(7)
    train, Z, x = rng.uniform(-1, 1, (9, D)), rng.uniform(-1, 1, (M, D)), rng.uniform(-1, 1, (3, D))
    Kuu, y = reference.gram(k, Z, Z), np.sin(train.sum(axis=1))
    q_mu, q_sqrt = problems.whiten(Kuu, *reference.optimal_q(Kuu, reference.gram(k, Z, train), 0.01, y))
    prior = ValueAndGradient(SquaredExponential(1.3, jnp.asarray([0.8, 1.4])))
    gp = SparseGP(Shared(prior), (InducingPoints(Real(Z)),), problems.full_rank(q_mu[None], q_sqrt[None]))
    return gp, jnp.asarray(x)


def gradient_covariances(Z, x):
    """Kuf (M,N,Q) and Kff (N,Q,Q) by differences of the kernel."""
    Kuf = np.array([[differences(lambda b, z=z: k(z, b), b) for b in x] for z in Z])
    return Kuf, np.array([differences(lambda a, b=b: differences(lambda c: k(a, c), b), b) for b in x])


def gradient_posterior(gp, x):
    """Mean (Q,) and covariance (Q,Q) of each input by eq. qf on those."""
    Z, q_mu, q_sqrt = (np.asarray(a) for a in (gp.inducing[0].value, gp.q.q_mu.value[0], gp.q.q_sqrt.value[0]))
    Kuu, (Kuf, Kff) = reference.gram(k, Z, Z), gradient_covariances(Z, np.asarray(x))
    q = reference.unwhiten(Kuu, q_mu, q_sqrt)
    return [reference.qf(Kuu, Kuf[:, n], Kff[n], *q) for n in range(len(x))]


def test_value_and_gradient_prior_is_that_of_finite_differences():
    gp, x = gradient_gp()
    Kuf, Kff = gradient_covariances(np.asarray(gp.inducing[0].value), np.asarray(x))
    kernel = eqx.filter_jit(lambda gp, x: (gp.kernel.Kuf(gp.inducing, x), gp.kernel.Kff_joint(x), gp.kernel.Kff(x)))
    for ours, differenced in zip(kernel(gp, x), (Kuf, Kff, np.diagonal(Kff, axis1=1, axis2=2)), strict=True):
        np.testing.assert_allclose(ours[0], differenced, atol=1e-7)


@pytest.mark.parametrize(("kernel", "of_slope"), [(SquaredExponential, 5.2), (Matern52, 8.6667), (Matern32, 15.6)])
def test_value_and_gradient_of_one_input(kernel, of_slope):
    """With a variance of 1.3 and a lengthscale of 0.5: var[∂g] = −k''(0), which is independent of g."""
    covariance = ValueAndGradient(kernel(1.3, 0.5)).Kff_joint(jnp.asarray([[0.2], [0.7]]))
    np.testing.assert_allclose(covariance, [np.diag([1.3, of_slope])] * 2, rtol=1e-5, atol=1e-12)


def test_value_and_gradient_posterior():
    """Marginals and joint are eq. qf, and sites 1 … D have the derivatives of the mean of site 0."""
    gp, x = gradient_gp()
    f, joint, _ = posterior(gp, x)
    means, covariances = zip(*gradient_posterior(gp, x), strict=True)
    np.testing.assert_allclose(f.mean, means, atol=1e-6)
    np.testing.assert_allclose(joint.covariance, covariances, atol=1e-6)
    np.testing.assert_allclose(f.variance, np.diagonal(covariances, axis1=1, axis2=2), atol=1e-6)
    moved = differences(lambda a: np.asarray(posterior(gp, jnp.asarray(a))[0].mean[:, 0]), np.asarray(x))
    np.testing.assert_allclose(f.mean, moved.T, atol=1e-8)


def test_value_and_gradient_samples(key):
    """The full sampler draws value and gradient together: moments over many draws within five standard errors."""
    gp, x = gradient_gp()
    draw = lambda key: variational.sample(gp, x, jnp.asarray(1e-9), "full", key=key)
    draws = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(key, 10_000)))
    for n, (mean, C) in enumerate(gradient_posterior(gp, x)):
        of_mean = np.sqrt(np.diag(C) / len(draws))
        of_covariance = np.sqrt((np.outer(np.diag(C), np.diag(C)) + C**2) / len(draws))
        assert np.all(np.abs(draws[:, n].mean(axis=0) - mean) < 5 * of_mean)
        assert np.all(np.abs(np.cov(draws[:, n].T) - C) < 5 * of_covariance)
