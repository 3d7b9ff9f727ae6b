"""Tiny whole models, data for them, and what `reference` says of them: for tests of parts that work together."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import reference

from tickgp.gp import builders, objective
from tickgp.gp.convolution import Convolutional
from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax
from tickgp.gp.params import trainable

SHAPE, N, M, K = (6, 5, 1), 6, 6, 3
SAMPLINGS = ("marginal", "full", "correlated")

elbo = eqx.filter_jit(objective.elbo)


def images(num=N, shape=SHAPE, seed=0):
    return np.random.default_rng(seed).uniform(size=(num, *shape))


def labels(num=N, classes=K):
    return np.arange(num) % classes


def build(name, likelihood, *, jitter=1e-5, seed=0, **settings):
    """A model of the given name for `images()`, M inducing variables, patches of 3×3, two hidden channels.

    The hidden layers of a deep one say much, and its last one has a longer lengthscale, so that it feels that.
    """
    if name.endswith("se"):
        settings = {"width": 4, **settings} if "deep" in name else settings
    else:
        deep = {"channels": 2, "lengthscale": 2.0, "hidden_variance": 1.0, "hidden_lengthscale": 1.0}
        settings = {"patch_size": 3, **(deep if "deep" in name else {}), **settings}
    key = jax.random.key(seed)
    return getattr(builders, name)(images(20), likelihood, num_inducing=M, jitter=jitter, key=key, **settings)


def perturbed(model, scale=0.3, seed=1):
    """`model` with noise on every trainable array: nothing is at its special initial value any more."""
    moving, fixed = eqx.partition(model, trainable(model))
    leaves, tree = jax.tree.flatten(moving)
    rng = np.random.default_rng(seed)
    moved = [leaf + scale * jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(tree, moved), fixed)


def moments(q):
    """q_mu (L,M) and q_sqrt (L,M,M) in float64."""
    return np.asarray(q.q_mu.value, np.float64), np.asarray(q.q_sqrt.value, np.float64)


def covariances(layer, x):
    """Kuu (M,M), Kuf (M,N) and Kff (N,N) of a last layer at images x (N,H,W,C), by loops over its parameter values."""
    prior, inducing = layer.gp.kernel.covariance, layer.gp.inducing[0]
    value = lambda parameter: np.asarray(parameter.value, np.float64)
    Z = value(inducing.Z)
    if not isinstance(prior, Convolutional):
        k, rows = reference.se(value(prior.kernel.variance), value(prior.kernel.lengthscale)), x.reshape(len(x), -1)
        return reference.gram(k, Z, Z), reference.gram(k, Z, rows), reference.gram(k, rows, rows)
    patch, location, grid = prior.response.patch, prior.response.location, prior.grid
    k_loc = None if location is None else reference.matern32(value(location.variance), value(location.lengthscale))
    k_g = reference.patch_response(reference.se(value(patch.variance), value(patch.lengthscale)), k_loc)
    where = None if inducing.places is None else value(inducing.places)
    w = None if prior.weights is None else value(prior.weights)
    window = (*grid.patch_shape, *grid.stride)
    patches, places = reference.patches(x, *window), reference.places(*x.shape[1:3], *window)
    return (
        reference.inducing_Kuu(k_g, Z, where),
        reference.summed_Kuf(k_g, Z, where, patches, places, w),
        reference.summed_Kff(k_g, patches, patches, places, w),
    )


def outputs(layer, x):
    """Mean and variance (N,K) of q(f(x)) of a last layer by eq. qf, and its KL, all by `reference`."""
    Kuu, Kuf, Kff = covariances(layer, x)
    q, means, variances, kls = layer.gp.q, [], [], []
    for q_mu, q_sqrt in zip(*moments(q), strict=True):
        m, S = reference.unwhiten(Kuu, q_mu, q_sqrt)
        mean, covariance = reference.qf(Kuu, Kuf, Kff, m, S)
        means.append(mean)
        variances.append(np.diag(covariance))
        kls.append(reference.kl(Kuu, m, S))
    return np.stack(means, axis=1), np.stack(variances, axis=1), sum(kls)


def hidden_draws(layer, x, sampling, num):
    """Draws (num, rows, columns, G) of a hidden layer's output at one image x, by `reference` and numpy."""
    grid, patch, q = layer.mean.grid, layer.gp.kernel.covariance.response.patch, layer.gp.q
    k_g = reference.patch_response(reference.se(float(patch.variance.value), float(patch.lengthscale.value)))
    Z, patches = np.asarray(layer.gp.inducing[0].Z.value, np.float64), reference.patches(x[None], *grid.patch_shape)
    places = reference.places(*x.shape[:2], *grid.patch_shape)
    Kuu, P = reference.inducing_Kuu(k_g, Z), len(places)
    Kuf, Kff = (
        reference.mock_Kuf(k_g, Z, None, patches, places)[:, 0],
        reference.mock_Kff(k_g, patches, patches, places),
    )
    rng, channels = np.random.default_rng(5), []
    for q_mu, q_sqrt in zip(*moments(q), strict=True):
        m, S = reference.unwhiten(Kuu, q_mu, q_sqrt)
        mean, covariance = reference.qf(Kuu, Kuf, Kff.reshape(P, P), m, S)
        covariance = {
            "full": covariance,
            "marginal": np.diag(np.diag(covariance)),
            "correlated": reference.correlated_covariance(Kuu, Kuf, Kff.reshape(P, P), S),
        }[sampling]
        channels.append(rng.multivariate_normal(mean, covariance, size=num))
    noise = np.stack(channels, axis=-1).reshape(num, grid.rows, grid.columns, len(channels))
    return reference.identity_conv(x[None], *grid.patch_shape, len(channels)) + noise


def whitened_kl(q):
    """KL[q(v) || N(0, I)], summed over latents: a hidden layer's, which does not depend on its Kuu."""
    M = q.q_mu.value.shape[1]
    rows = zip(*moments(q), strict=True)
    return sum(reference.kl(np.eye(M), q_mu, q_sqrt @ q_sqrt.T) for q_mu, q_sqrt in rows)


def expectations(likelihood, means, variances, y):
    """E[log p(y_n | f_n)] of each image by dense integration or in closed form."""
    match likelihood:
        case Gaussian():
            noise = float(likelihood.variance.value)
            one = lambda m, v, y: sum(map(lambda *a: reference.gaussian_expected_log_prob(*a, noise), m, v, y))
        case Bernoulli():
            one = lambda m, v, y: reference.bernoulli_expected_log_prob(m[0], v[0], y)
        case RobustMax():
            one = lambda m, v, y: reference.robustmax_expected_log_prob(m, v, y, likelihood.epsilon)
    return [one(*row) for row in zip(means, variances, y, strict=True)]


def targets(likelihood, num=N):
    """Labels, or real targets for a regression."""
    if isinstance(likelihood, Gaussian):
        return np.random.default_rng(3).normal(size=(num, likelihood.num_outputs))
    return labels(num, likelihood.num_classes)
