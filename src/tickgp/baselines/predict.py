"""Class probabilities of the CNN: averaged over draws of dropout, or of the network as it is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import entr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Shaped

from tickgp.baselines.cnn import CNN, UNITS, check_rate, dropout_scales
from tickgp.gp.batches import padded_batches
from tickgp.gp.images import to_pixels
from tickgp.gp.predict import Prediction


def predict_cnn(
    model: CNN,
    images: ArrayLike,
    *,
    dropout: float,
    num_samples: int = 100,
    batch_size: int = 128,
    key: PRNGKeyArray,
) -> Prediction:
    """Class probabilities (1/S) Σ_s softmax(logits with dropout draw s), from S = `num_samples` draws.

    dropout: the rate in training, for dropout at test as in the paper; 0 for the deterministic network, which has no
    mutual information. A draw drops the same units for all images, and batches are padded to one size: what is
    predicted for an image does not depend on the images beside it.
    Paper: dropout at test
    """
    if num_samples < 1:
        raise ValueError(f"{num_samples} samples were asked for; there must be at least 1")
    # Without dropout all draws are the same.
    shape = (num_samples if check_rate(dropout) else 1, UNITS)
    return _average(_logits(model, images, dropout_scales(key, dropout, shape), batch_size))


def predict_logits(model: CNN, images: ArrayLike, *, batch_size: int = 128) -> Float[Array, "N K"]:
    """Logits of the deterministic network: what `fit_temperature` and `scaled` take."""
    return _logits(model, images, jnp.ones((1, UNITS)), batch_size)[0]


def _logits(model: CNN, images: ArrayLike, scales: Float[Array, "S D"], batch_size: int) -> Float[Array, "S N K"]:
    images = model.check(images)
    if batch_size < 1:
        raise ValueError(f"batches of {batch_size} images were asked for; they must be of at least 1")
    parts = [_logits_of_batch(model, jnp.asarray(x), scales) for x in padded_batches(images, batch_size)]
    return jnp.concatenate(parts, axis=1)[:, : len(images)]


@jax.jit
def _logits_of_batch(
    model: CNN, images: Shaped[Array, "N H W C"], scales: Float[Array, "S D"]
) -> Float[Array, "S N K"]:
    # Dropout comes after all but the last layer: those are computed once for all draws. A unit dropped for all images
    # is a row of the last weights set to zero, far fewer numbers than the units of every image and draw.
    units = model.units(to_pixels(images))
    weights = scales[:, :, None] * model.output.weights
    return jnp.einsum("nd,sdk->snk", units, weights) + model.output.biases


@jax.jit
def _average(logits: Float[Array, "S N K"]) -> Prediction:
    p = jax.nn.softmax(logits)
    variance = jnp.mean(jnp.var(logits, axis=0), axis=1)
    return Prediction(jnp.mean(p, axis=0), jnp.mean(jnp.sum(entr(p), axis=2), axis=0), variance)
