"""The three samplers of q(f): moments of many draws against closed forms, within the estimates' standard errors."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference
from problems import M, P

from tickgp.gp.multioutput import LinearCoregionalization, Separate, Shared
from tickgp.gp.params import Real
from tickgp.gp.variational import SparseGP, sample

pytestmark = pytest.mark.usefixtures("float64")

SAMPLERS = ["marginal", "full", "correlated"]
N, L, DRAWS, SIGMAS = 2, 2, 30_000, 5
W = np.array([[1.0, 0.5], [-0.7, 1.2], [0.3, 0.0]])
each_sampler = pytest.mark.parametrize("how", SAMPLERS)


def members(x):
    """Two MOCKs that differ in kernel and inducing patches. Few of those, so that much is left unexplained by u."""
    return [
        problems.mock(x, 1, kernel=("se", 1.7, 3.0)),
        problems.mock(x, 2, kernel=("matern52", 0.8, 2.0), location=("se", 1.0, 1.5)),
    ]


def sparse_gp(kind, x):
    latents = members(x)
    q = problems.full_rank(*problems.random_q(L, signs=True))
    if kind == "shared":
        return problems.shared_gp(latents[0], q), [latents[0]] * L
    if kind == "own inducing":
        latents = [problems.mock(x, seed, kernel=("se", 1.7, 3.0)) for seed in (1, 2)]
        return SparseGP(Shared(latents[0].prior), tuple(m.inducing for m in latents), q), latents
    kernel = LinearCoregionalization(Separate(tuple(m.prior for m in latents)), Real(W))
    return SparseGP(kernel, tuple(m.inducing for m in latents), q), latents


@eqx.filter_jit
def draw(gp, x, how, key, common=False):
    return sample(gp, x, jnp.asarray(1e-10), how, key=key, common=common)


@eqx.filter_jit
def draw_many(gp, x, how, key):
    return jax.vmap(lambda key: draw(gp, x, how, key))(jax.random.split(key, DRAWS))


def latent_moments(problem, q_mu, q_sqrt, how):
    """Mean (N,P) of one latent, and covariance (N,P,P) between the sites of each input under a sampler."""
    m, S = reference.unwhiten(problem.Kuu, q_mu, q_sqrt)
    means, covariances = [], []
    for n in range(N):
        sites = slice(n * P, (n + 1) * P)
        Kuf, Kff = problem.Kuf[:, sites], problem.Kff[sites, sites]
        mean, full = reference.qf(problem.Kuu, Kuf, Kff, m, S)
        forms = {
            "marginal": np.diag(np.diag(full)),
            "full": full,
            "correlated": reference.correlated_covariance(problem.Kuu, Kuf, Kff, S),
        }
        means.append(mean)
        covariances.append(forms[how])
    return np.stack(means), np.stack(covariances)


def moments(latents, how, mixing):
    """Mean (N,F) and covariance (N,F,F) of each input's outputs, o of site p at p·O + o; latents are independent."""
    each = [latent_moments(m, *q, how) for m, *q in zip(latents, *problems.random_q(L, signs=True), strict=True)]
    mean = np.einsum("lnp,ol->npo", np.stack([m for m, _ in each]), mixing)
    covariance = np.einsum("lnpq,ol,rl->npoqr", np.stack([C for _, C in each]), mixing, mixing)
    F = P * len(mixing)
    return mean.reshape(N, F), covariance.reshape(N, F, F)


def errors(covariance, draws=DRAWS):
    """Standard errors of the mean and of each entry of the covariance, estimated from Gaussian draws."""
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    squares = variance[..., :, None] * variance[..., None, :] + covariance**2
    return np.sqrt(variance / draws), np.sqrt(squares / draws)


@each_sampler
@pytest.mark.parametrize("kind", ["shared", "own inducing", "mixed"])
def test_moments_of_many_draws(kind, how, key):
    """All F outputs of all inputs at once: inputs are independent, so their covariance is block-diagonal."""
    x = problems.images(N)
    gp, latents = sparse_gp(kind, x)
    mean, blocks = moments(latents, how, W if kind == "mixed" else np.eye(L))
    covariance = reference.block_diagonal(blocks)
    draws = np.asarray(draw_many(gp, jnp.asarray(x), how, key)).reshape(DRAWS, -1)
    of_mean, of_covariance = errors(covariance)
    assert np.max(np.abs(draws.mean(axis=0) - mean.ravel()) / of_mean) < SIGMAS
    assert np.max(np.abs(np.cov(draws.T) - covariance) / of_covariance) < SIGMAS


def test_draws_are_enough_to_tell_the_samplers_apart():
    """And all three have the same variances: the correlated sampler's marginals are exactly those of eq. qf."""
    latents = members(problems.images(N))
    by_sampler = [moments(latents, how, np.eye(L))[1] for how in SAMPLERS]
    for i, first in enumerate(by_sampler):
        for second in by_sampler[i + 1 :]:
            assert np.max(np.abs(first - second) / errors(first)[1]) > 10 * SIGMAS
            np.testing.assert_allclose(*(np.diagonal(C, axis1=1, axis2=2) for C in (first, second)), rtol=1e-10)


@each_sampler
def test_with_common_noise_a_draw_depends_on_its_image_alone(how):
    """It is the draw of that image on its own; so equal images get equal draws, and a batch may be cut anywhere."""
    key = jax.random.key(0, impl="unsafe_rbg")  # compiles in a fraction of the default generator's time
    x = problems.images(3)
    x = jnp.asarray(np.concatenate([x, x[:1]]))
    gp, _ = sparse_gp("shared", problems.images(1))
    together = draw(gp, x, how, key, common=True)
    alone = [draw(gp, image[None], how, key)[0] for image in x]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-10)
    np.testing.assert_allclose(together[3], together[0], rtol=1e-12)
    assert np.min(np.abs(together[1] - together[0])) > 1e-6


def test_the_correlated_sampler_never_forms_the_product_of_q_sqrt_and_all_patches():
    """The marginals need an array of L·M·N·P numbers; the correlated sampler has none as large."""
    x, channels = problems.images(N), 7
    q = problems.full_rank(*problems.random_q(channels))
    gp = SparseGP(Shared(members(x)[0].prior), (members(x)[0].inducing,), q)

    def largest(how):
        call = lambda gp, x: sample(gp, x, jnp.asarray(1e-6), how, key=jax.random.key(0))
        return max(np.prod(shape) for _, shape in problems.traced(call, gp, jnp.asarray(x)))

    assert largest("marginal") == channels * M * N * P
    assert largest("correlated") < channels * M * N * P / 2


def test_an_unknown_sampler_is_refused(key):
    """Where types are not checked, as they are in these tests."""
    x = problems.images(1)
    gp, _ = sparse_gp("shared", x)
    with pytest.raises(ValueError, match="'joint' was given as the way to sample; use marginal, full or correlated"):
        inspect.unwrap(sample)(gp, jnp.asarray(x), jnp.asarray(1e-6), "joint", key=key)
