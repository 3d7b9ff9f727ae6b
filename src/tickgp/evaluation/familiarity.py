"""How far an image lies from those of training, as the model sees them: its probabilities do not tell."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs, in_batches
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Triangular

MOST_IMAGES = 10_000
"""Training images that suffice to know where their features lie."""


class Familiarity(eqx.Module):
    """Mean and covariance C of the features a(x) of the training images (see `DeepGP.features`).

    distance(x) = √((a − ā)ᵀ C⁻¹ (a − ā) / D), with D features: about 1 for images like those of training, less where
    these are few. A model only ever learned what to make of features like theirs; of others it may be sure without
    reason. C is shrunk towards a multiple of I (O. Ledoit, M. Wolf, 2004), so that it has an inverse even with fewer
    images than features.

    The features are those of the first layer, which sees the image itself. In a deep model they say little of where in
    the image something stands.
    """

    mean: Float[Array, " D"]
    root: Triangular
    """The Cholesky factor of C."""

    @classmethod
    def of(cls, model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> Familiarity:
        """From the training images of a trained model, or from a random part of them where there are many."""
        from sklearn.covariance import ledoit_wolf

        chosen = np.random.default_rng(0).permutation(len(images))[:MOST_IMAGES]
        a = _features(model, images[np.sort(chosen)])
        if bad := int((~np.isfinite(a)).any(axis=1).sum()):
            raise ArithmeticError(
                f"the trained model has no finite features for {bad} of {len(a)} training images; try a smaller "
                "learning rate, or float64"
            )
        mean = a.mean(axis=0)
        C, _ = ledoit_wolf(a - mean, assume_centered=True)
        C += 1e-6 * (np.trace(C) / len(C) or 1.0) * np.eye(len(C))  # for rounding, and where all images are alike
        return cls(jnp.asarray(mean, float), Triangular(np.linalg.cholesky(C), trainable=False))

    @classmethod
    def like(cls, model: DeepGP, image_shape: tuple[int, ...]) -> Familiarity:
        """One of the size that this model's would have, with any numbers in it."""
        image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
        D = jax.eval_shape(lambda m, x: m.features(x), model, image).shape[1]
        return cls(jnp.zeros(D), Triangular(jnp.eye(D), trainable=False))

    def distance(self, model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> Float[np.ndarray, " N"]:
        """That of each image. `model` is the one that it was made for."""
        from scipy.linalg import solve_triangular

        mean, root = np.asarray(self.mean, float), np.asarray(self.root.value, float)
        scaled = solve_triangular(root, (_features(model, images) - mean).T, lower=True)
        return np.sqrt(np.mean(scaled**2, axis=0))


def _features(model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> Float[np.ndarray, "N D"]:
    images = check_inputs(images)
    return np.asarray(in_batches(lambda x: _of_batch(model, x), images, fitting_batch(model, images)), float)


@jit
def _of_batch(model: DeepGP, images: Array) -> Float[Array, "B D"]:
    return model.features(images)
