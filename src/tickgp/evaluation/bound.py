"""The evidence lower bound of a whole dataset."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from tickgp.gp.batches import padded_batches
from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP
from tickgp.gp.objective import expected_log_prob


def dataset_elbo(
    model: DeepGP,
    images: ArrayLike,
    labels: ArrayLike,
    *,
    key: PRNGKeyArray,
    num_samples: int | None = None,
    likelihood_samples: int = 64,
    batch_size: int | None = None,
) -> float:
    """The ELBO of all images, a batch at a time (see `predict`).

    From `num_samples` draws of the hidden layers, by default 10 where there are any, and for each of them
    `likelihood_samples` of the last, where the likelihood has no closed form. If it is not finite, that is an error,
    which says how many images are to blame.
    Paper: eq. elbo
    """
    images = check_inputs(images)
    batch_size = fitting_batch(model, images) if batch_size is None else batch_size
    if num_samples is None:
        num_samples = 10 if len(model.layers) > 1 else 1
    if min(num_samples, likelihood_samples, batch_size) < 1:
        raise ValueError(
            f"{num_samples} × {likelihood_samples} samples in batches of {batch_size} were asked for; all must be at "
            "least 1"
        )
    labels = model.likelihood.check(labels, len(images))
    batches = zip(padded_batches(images, batch_size), padded_batches(labels, batch_size), strict=True)
    parts = [
        _explained(model, jnp.asarray(x), jnp.asarray(y), jax.random.fold_in(key, i), num_samples, likelihood_samples)
        for i, (x, y) in enumerate(batches)
    ]
    explained, kl = np.asarray(jnp.concatenate(parts)[: len(images)]), float(model.kl())
    bound = float(explained.sum(dtype=float)) - kl
    if not np.isfinite(bound):
        bad = np.sum(~np.isfinite(explained))
        raise ArithmeticError(
            f"the ELBO is not finite: nor is log p(y | f) of {bad} of {len(images)} images, "
            f"and KL[q(u) || p(u)] is {kl:.6g}"
        )
    return bound


def guessing_bound(labels: Int[np.ndarray, " N"]) -> float:
    """Σ log p(y) where p is the share of each class: what a model must exceed to have learned anything of images."""
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    return float(np.sum(counts * np.log(counts / counts.sum())))


@functools.partial(jit, static_argnames=("num_samples", "likelihood_samples"))
def _explained(
    model: DeepGP, images: Array, labels: Array, key: PRNGKeyArray, num_samples: int, likelihood_samples: int
) -> Float[Array, " B"]:
    one_draw = lambda key: expected_log_prob(model, images, labels, key=key, likelihood_samples=likelihood_samples)
    return jnp.mean(jax.lax.map(one_draw, jax.random.split(key, num_samples)), axis=0)
