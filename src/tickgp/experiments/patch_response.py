"""Posterior samples of the patch response g over an image: what each patch says, and how sure the model is of it."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.linalg import add_diagonal, einsum
from tickgp.gp.models import DeepGP
from tickgp.gp.multioutput import Shared
from tickgp.gp.variational import SparseGP, joint


def patch_response_deviations(
    model: DeepGP, images: np.ndarray, *, num_samples: int = 5, key: PRNGKeyArray
) -> Float[np.ndarray, "N S rows columns"]:
    """Samples of g(x[p], l(p)) − E[g(x[p], l(p))] from q, over all patches p of each image, of a single-layer model.

    The response has the prior k_g and the same inducing variables u = g(Z), whether its values are summed up (as in the
    model) or looked at one by one: q of the MOCK with the model's own q(u) is what the model believes of g.
    Paper: samples of the patch response
    """
    layer, covariance = model.layers[-1], model.layers[-1].gp.kernel.covariances[0]
    if len(model.layers) != 1 or not isinstance(covariance, Convolutional):
        raise ValueError(f"a model of {len(model.layers)} layers was given; this is for a single layer on patches")
    kernel = Shared(MultiOutputConvolutional(covariance.grid, covariance.response))
    responses = SparseGP(kernel, layer.gp.inducing, layer.gp.q)
    draws = _deviations(responses, model.pixels(jnp.asarray(images)), model.jitter, key, num_samples)
    shape = (len(images), num_samples, covariance.grid.rows, covariance.grid.columns)
    return np.asarray(draws).reshape(shape)


@eqx.filter_jit
def _deviations(
    gp: SparseGP, x: Float[Array, "N H W C"], jitter: Float[Array, ""], key: PRNGKeyArray, num_samples: int
) -> Float[Array, "N S P"]:
    """Root · noise, of the first latent."""
    covariance = joint(gp, x, jitter).latent_covariance[0]
    root = jnp.linalg.cholesky(add_diagonal(covariance, 10 * jitter * jnp.mean(gp.kernel.Kff(x)[0], axis=-1)))
    noise = jax.random.normal(key, (len(x), num_samples, covariance.shape[-1]))
    return einsum("npq,nsq->nsp", root, noise)
