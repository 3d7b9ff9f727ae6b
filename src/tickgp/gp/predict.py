"""Class probabilities, and how much of their uncertainty is the model's own; of a regression, mean and variance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from tickgp.gp.batches import in_batches
from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs
from tickgp.gp.likelihoods import AbstractClassification, AbstractLikelihood
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP
from tickgp.gp.variational import Marginals

DOUBTS = ("entropy", "mutual_information", "variance", "distance")
"""The numbers of a `Prediction` that say how far it can be trusted."""
_TOGETHER = 10


class Prediction(eqx.Module):
    """p(y | x) of each image, with its entropy split in two, and how unlike the known images it is.

    entropy H[E p] = expected entropy E H[p] + mutual information. The first part is ambiguity in the image that more
    data would not remove; the second is what the model does not know. For an image unlike any in training the
    probabilities can be sure all the same: `distance` finds most of these, and `variance` those with unknown patches.
    """

    probabilities: Float[Array, "N K"]
    expected_entropy: Float[Array, " N"]
    variance: Float[Array, " N"]
    """Of the latent functions f_k(x) given the hidden layers, the mean over k and the draws of hidden layers.

    Of a CNN: that of its logits over draws of dropout or members of an ensemble.
    """
    distance: Float[Array, " N"] | None = None
    """From the training images, of all classes and of the one that is predicted, so that it may hang on the draws
    (`evaluation.familiarity`); None from a model that does not know them."""

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

    prediction = in_batches(of_batch, images, batch_size)
    _check_finite(prediction.probabilities, "probabilities")
    return prediction


def predict_moments(
    model: DeepGP, x: ArrayLike, *, key: PRNGKeyArray, num_samples: int = 20, batch_size: int | None = None
) -> tuple[Float[Array, "N F"], Float[Array, "N F"]]:
    """Mean and variance of f(x) under q: E[m] and E[v] + Var[m], with m and v those given a draw of the hidden layers.

    That is what a regression predicts of f; a new target has the variance of the noise, that of the likelihood, on top.
    num_samples: draws of the hidden layers; of a single layer both are exact. Noise and batches are as for `predict`.
    """
    x = check_inputs(x)
    batch_size = fitting_batch(model, x) if batch_size is None else batch_size
    if min(num_samples, batch_size) < 1:
        raise ValueError(f"{num_samples} samples in batches of {batch_size} were asked for; each must be at least 1")
    keys = jax.random.split(key, 1 if len(model.layers) == 1 else num_samples)
    groups = [keys[i : i + _TOGETHER] for i in range(0, len(keys), _TOGETHER)]

    def of_batch(x: Array) -> tuple[Array, Array]:
        draws = [_moments(model, x, group) for group in groups]
        m, v = (jnp.concatenate(parts) for parts in zip(*draws, strict=True))
        return jnp.mean(m, axis=0), jnp.mean(v, axis=0) + jnp.var(m, axis=0)

    mean, variance = in_batches(of_batch, x, batch_size)
    _check_finite(jnp.stack([mean, variance], axis=1), "mean and variance")
    return mean, variance


def _check_finite(numbers: Float[Array, "N ..."], what: str) -> None:
    """Of NaN the first class would be the most probable."""
    if bad := int((~np.isfinite(numbers)).reshape(len(numbers), -1).any(axis=1).sum()):
        raise ArithmeticError(
            f"the model has no finite {what} for {bad} of {len(numbers)} inputs; give it a larger jitter, train it at "
            "a smaller learning rate, or use float64"
        )


@functools.partial(jit, static_argnames="likelihood_samples")
def _sum_samples(model: DeepGP, images: Array, keys: Key[Array, " S"], likelihood_samples: int) -> Prediction:
    """Σ over `keys` of what `_given_hidden` says."""
    given = functools.partial(_given_hidden, model.likelihood, num_samples=likelihood_samples)
    predictions = _for_each_draw(lambda f, key: given(f, key=key), model, images, keys)
    return jax.tree.map(lambda a: jnp.sum(a, axis=0), predictions)


@jit
def _moments(model: DeepGP, x: Array, keys: Key[Array, " S"]) -> tuple[Float[Array, "S N F"], Float[Array, "S N F"]]:
    """Mean and variance of q(f(x)) given a draw of the hidden layers, for each key."""
    return _for_each_draw(lambda f, key: (f.mean, f.variance), model, x, keys)


def _for_each_draw(
    given: Callable[[Marginals, PRNGKeyArray], Any], model: DeepGP, x: Array, keys: Key[Array, " S"]
) -> Any:
    """given(q(f(x)), a key of its own) for a draw of the hidden layers by each of `keys`, one after the other.

    What the first layer needs for a draw is computed once for all of them.
    """
    hidden, output = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    if len(model.layers) == 1:
        f = model.propagate(x, key=keys[0])
        return jax.lax.map(lambda key: given(f, key), output, batch_size=min(_TOGETHER, len(keys)))
    pixels = model.pixels(x)
    first = jax.vmap(lambda key: model.draw(0, pixels, key=key, common=True))(hidden)
    rest = lambda x, key, own: given(model.propagate(x, key=key, common=True, after=1), own)
    return jax.lax.map(lambda inputs: rest(*inputs), (first, hidden, output))


def _given_hidden(likelihood: AbstractLikelihood, f: Marginals, *, num_samples: int, key: PRNGKeyArray) -> Prediction:
    """The prediction from draws of the last layer, the same noise for all images."""
    if not isinstance(likelihood, AbstractClassification):
        raise TypeError(
            f"class probabilities need a likelihood of classes, and {type(likelihood).__name__} has none; "
            "for a regression use tickgp.predict_moments(model, x, key=key)"
        )
    noise = jax.random.normal(key, (num_samples, 1, *f.latent_mean.shape[1:]))
    p = jax.vmap(lambda noise: likelihood.probabilities(f.at(noise)))(noise)
    entropy = jnp.sum(entr(p), axis=2)
    return Prediction(jnp.mean(p, axis=0), jnp.mean(entropy, axis=0), jnp.mean(f.variance, axis=1))
