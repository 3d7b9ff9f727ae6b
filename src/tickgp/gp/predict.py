"""Class probabilities, and how much of their uncertainty is the model's own."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import entr
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs, padded_batches
from tickgp.gp.likelihoods import AbstractClassification, AbstractLikelihood
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP
from tickgp.gp.variational import Marginals

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
    model: DeepGP,
    images: ArrayLike,
    *,
    key: PRNGKeyArray,
    num_samples: int = 20,
    likelihood_samples: int = 64,
    batch_size: int | None = None,
) -> Prediction:
    """Class probabilities (1/S) Σ_s p(y | f_s), f_s ~ q.

    num_samples: draws of all layers. likelihood_samples: of the last layer there are so many for each of those, S in
    all. They cost next to nothing, and without them small probabilities, and so the entropy, hang on few draws. The
    paper has one.

    All images get the same noise, and batches are padded to one size: what is predicted for an image does not depend
    on the images beside it. By default batches are of 128 images, or of fewer where these would take too much memory.
    Paper: prediction
    """
    images = check_inputs(images)
    batch_size = fitting_batch(model, images) if batch_size is None else batch_size
    if min(num_samples, likelihood_samples, batch_size) < 1:
        raise ValueError(
            f"{num_samples} times {likelihood_samples} samples in batches of {batch_size} were asked for; "
            "each must be at least 1"
        )
    keys = jax.random.split(key, num_samples)
    # Deep: a few samples at a time, so that one program serves for any number of them.
    together = num_samples if len(model.layers) == 1 else min(_TOGETHER, num_samples)
    groups = [keys[i : i + together] for i in range(0, num_samples, together)]

    def of_batch(x: Array) -> Prediction:
        sums = [_sum_samples(model, x, group, likelihood_samples) for group in groups]
        return jax.tree.map(lambda *arrays: sum(arrays[1:], start=arrays[0]) / num_samples, *sums)

    parts = [of_batch(jnp.asarray(x)) for x in padded_batches(images, batch_size)]
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays)[: len(images)], *parts)


@functools.partial(jit, static_argnames="likelihood_samples")
def _sum_samples(model: DeepGP, images: Array, keys: Key[Array, " S"], likelihood_samples: int) -> Prediction:
    """Σ over `keys` of what `_given_hidden` says. What the first draw needs is computed once for all of them."""
    hidden, output = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    given = functools.partial(_given_hidden, model.likelihood, num_samples=likelihood_samples)
    if len(model.layers) == 1:
        f = model.propagate(images, key=keys[0])
        predictions = jax.lax.map(lambda key: given(f, key=key), output, batch_size=min(_TOGETHER, len(keys)))
    else:
        x = model.pixels(images)
        first = jax.vmap(lambda key: model.draw(0, x, key=key, common=True))(hidden)
        rest = lambda x, key, own: given(model.propagate(x, key=key, common=True, after=1), key=own)
        predictions = jax.lax.map(lambda inputs: rest(*inputs), (first, hidden, output))
    return jax.tree.map(lambda a: jnp.sum(a, axis=0), predictions)


def _given_hidden(likelihood: AbstractLikelihood, f: Marginals, *, num_samples: int, key: PRNGKeyArray) -> Prediction:
    """The prediction from draws of the last layer, the same noise for all images."""
    if not isinstance(likelihood, AbstractClassification):
        raise TypeError(
            f"class probabilities need a likelihood of classes, and {type(likelihood).__name__} has none; "
            "for a regression use model.propagate(x, key=key).mean"
        )
    noise = jax.random.normal(key, (num_samples, 1, *f.latent_mean.shape[1:]))
    p = jax.vmap(lambda noise: likelihood.probabilities(f.at(noise)))(noise)
    entropy = jnp.sum(entr(p), axis=2)
    return Prediction(jnp.mean(p, axis=0), jnp.mean(entropy, axis=0), jnp.mean(f.variance, axis=1))
