"""Class probabilities, and how much of their uncertainty is the model's own."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import entr
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs, padded_batches
from tickgp.gp.likelihoods import AbstractClassification
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP

DOUBTS = ("entropy", "mutual_information", "variance")
"""The numbers of a `Prediction` that say how far it can be trusted."""
_TOGETHER = 10


class Prediction(eqx.Module):
    """p(y | x) of each image, with its entropy split in two, and the variance of what they are made from.

    entropy H[E p] = expected entropy E H[p] + mutual information. The first part is ambiguity in the image that more
    data would not remove; the second is what the model does not know. Of an image that is unlike all of training the
    probabilities can be sure. The variance of the latent functions is then often large: where patches are unknown to
    the model, not where known patches stand in another order.
    """

    probabilities: Float[Array, "N K"]
    expected_entropy: Float[Array, " N"]
    variance: Float[Array, " N"]
    """Of the latent functions f_k(x) given the hidden layers, the mean over k and the draws of hidden layers.

    Of a CNN: that of its logits over draws of dropout or members of an ensemble.
    """

    @property
    def labels(self) -> Int[Array, " N"]:
        return jnp.argmax(self.probabilities, axis=1)

    @property
    def entropy(self) -> Float[Array, " N"]:
        return jnp.sum(entr(self.probabilities), axis=1)

    @property
    def mutual_information(self) -> Float[Array, " N"]:
        return jnp.maximum(self.entropy - self.expected_entropy, 0)


def predict(
    model: DeepGP, images: ArrayLike, *, key: PRNGKeyArray, num_samples: int = 100, batch_size: int | None = None
) -> Prediction:
    """Class probabilities (1/S) Σ_s p(y | f_s), f_s ~ q, from S = `num_samples` draws.

    All images get the same noise, and batches are padded to one size: what is predicted for an image does not depend
    on the images beside it. By default batches are of 128 images, or of fewer where these would take too much memory.
    Paper: prediction
    """
    images = check_inputs(images)
    batch_size = fitting_batch(model, images) if batch_size is None else batch_size
    if num_samples < 1 or batch_size < 1:
        raise ValueError(f"{num_samples} samples in batches of {batch_size} were asked for; both must be at least 1")
    keys = jax.random.split(key, num_samples)
    # Deep: a few samples at a time, so that one program serves for any number of them.
    together = num_samples if len(model.layers) == 1 else min(_TOGETHER, num_samples)
    parts = [_predict_batch(model, jnp.asarray(x), keys, together) for x in padded_batches(images, batch_size)]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[: len(images)], *parts)


def _predict_batch(model: DeepGP, images: Array, keys: Key[Array, " S"], together: int) -> Prediction:
    groups = (keys[i : i + together] for i in range(0, len(keys), together))
    sums = [_sum_samples(model, images, group) for group in groups]
    return jax.tree.map(lambda *arrays: sum(arrays[1:], start=arrays[0]) / len(keys), *sums)


@jit
def _sum_samples(model: DeepGP, images: Array, keys: Key[Array, " S"]) -> Prediction:
    """Σ_s of the probabilities, entropies and variances. What the first draw needs is computed once for all samples."""
    likelihood = model.likelihood
    if not isinstance(likelihood, AbstractClassification):
        raise TypeError(
            f"class probabilities need a likelihood of classes, and {type(likelihood).__name__} has none; "
            "for a regression use model.propagate(x, key=key).mean"
        )
    hidden, output = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    scores = lambda f, key: (likelihood.probabilities(f.sample(key=key, common=True)), jnp.mean(f.variance, axis=1))
    if len(model.layers) == 1:
        f = model.propagate(images, key=keys[0])
        p, variance = jax.vmap(lambda key: scores(f, key))(output)
    else:
        x = model.pixels(images)
        first = jax.vmap(lambda key: model.draw(0, x, key=key, common=True))(hidden)
        rest = lambda x, key, own: scores(model.propagate(x, key=key, common=True, after=1), own)
        p, variance = jax.lax.map(lambda inputs: rest(*inputs), (first, hidden, output))
    return Prediction(jnp.sum(p, axis=0), jnp.sum(jnp.sum(entr(p), axis=2), axis=0), jnp.sum(variance, axis=0))
