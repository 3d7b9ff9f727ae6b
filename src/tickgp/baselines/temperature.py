"""Temperature scaling: one number, fitted on validation images, that makes a network's probabilities less certain."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr
from jaxtyping import ArrayLike

from tickgp.gp.images import check_labels
from tickgp.gp.predict import Prediction

LEAST, MOST = 0.01, 100.0
_HALVINGS = 60


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """The T between 0.01 and 100 of least NLL(T) = −(1/N) Σ_n log softmax(logits_n / T) at label n.

    NLL is convex in 1/T, so its slope is zero at one T only, which bisection finds. Give logits of images that the
    network was not trained on. If every label has the largest logit, NLL falls for ever as T → 0: such images cannot
    say how sure the network may be, and T is 1.
    """
    z = _check_logits(logits)
    y = check_labels(labels, *z.shape)
    z -= z.max(axis=1, keepdims=True)
    if np.all(np.take_along_axis(z, y[:, None], axis=1) == 0):
        return 1.0
    low, high = math.log(LEAST), math.log(MOST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _slope(z, y, math.exp(-middle)) > 0 else (low, middle)
    return min(max(math.exp((low + high) / 2), LEAST), MOST)


def scaled(logits: ArrayLike, temperature: float) -> Prediction:
    """Class probabilities softmax(logits / temperature); there is one network, so no mutual information or variance."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"a temperature of {temperature} was given; it must be above 0 and finite")
    p = jax.nn.softmax(jnp.asarray(_check_logits(logits), float) / temperature)
    return Prediction(p, jnp.sum(entr(p), axis=1), jnp.zeros(len(p)))


def _slope(z: np.ndarray, labels: np.ndarray, inverse: float) -> float:
    """d NLL / d(1/T) = (1/N) Σ_n (Σ_k p_nk z_nk − z_n at label n), p = softmax(z / T)."""
    p = np.exp(inverse * z)
    p /= p.sum(axis=1, keepdims=True)
    return float(np.mean((p * z).sum(axis=1) - z[np.arange(len(z)), labels]))


def _check_logits(logits: ArrayLike) -> np.ndarray:
    """A new array (N, K) of finite numbers, in double precision for the sums over many images."""
    z = np.array(logits, np.float64)
    if z.ndim != 2 or len(z) == 0 or z.shape[1] < 2:
        raise ValueError(
            f"logits have shape {z.shape}; they must be (images, classes), with 1 image and 2 classes or more"
        )
    if not np.isfinite(z).all():
        raise ValueError(f"{int((~np.isfinite(z)).sum())} logits are NaN or infinite; look at the network's training")
    return z
