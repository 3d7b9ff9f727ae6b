"""How far an image lies from those of training, as the model sees them: its probabilities do not tell."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from tickgp.gp.batches import in_batches
from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Triangular

MOST_IMAGES = 10_000
"""Training images that suffice to know where their features lie."""


class Cloud(eqx.Module):
    """Mean and covariance C of the features a of the training images in one layer (see `DeepGP.features`).

    distance(a) = √((a − ā)ᵀ C⁻¹ (a − ā) / D), with D features: about 1 for images like those of training, less where
    these are few. C is shrunk towards a multiple of I (O. Ledoit, M. Wolf, 2004), so that it has an inverse even with
    fewer images than features.
    """

    mean: Float[Array, " D"]
    root: Triangular
    """The Cholesky factor of C."""

    @classmethod
    def of(cls, a: Float[np.ndarray, "N D"]) -> Cloud:
        from sklearn.covariance import ledoit_wolf

        mean = a.mean(axis=0)
        C, _ = ledoit_wolf(a - mean, assume_centered=True)
        C += 1e-6 * (np.trace(C) / len(C) or 1.0) * np.eye(len(C))  # for rounding, and where all images are alike
        return cls(jnp.asarray(mean, float), Triangular(np.linalg.cholesky(C), trainable=False))

    @classmethod
    def like(cls, D: int) -> Cloud:
        """One of this size, with any numbers in it."""
        return cls(jnp.zeros(D), Triangular(jnp.eye(D), trainable=False))

    def distance(self, a: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        from scipy.linalg import solve_triangular

        mean, root = np.asarray(self.mean, float), np.asarray(self.root.value, float)
        return np.sqrt(np.mean(solve_triangular(root, (a - mean).T, lower=True) ** 2, axis=0))


class Familiarity(eqx.Module):
    """Where the features of the training images lie, in each layer of a model.

    An image's distance is that in the layer where it is the furthest. A layer only ever learned what to make of
    features like those of training; of others the model may be sure without reason. The first layer of a deep model
    sees the image itself but says little of where in it something stands, which the last one does.
    """

    clouds: tuple[Cloud, ...]

    @classmethod
    def of(cls, model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> Familiarity:
        """From the training images of a trained model, or from a random part of them where there are many."""
        chosen = np.random.default_rng(0).permutation(len(images))[:MOST_IMAGES]
        layers = _features(model, images[np.sort(chosen)])
        if bad := int((~np.isfinite(np.concatenate(layers, axis=1))).any(axis=1).sum()):
            raise ArithmeticError(
                f"the trained model has no finite features for {bad} of {len(chosen)} training images; try a smaller "
                "learning rate, or float64"
            )
        return cls(tuple(map(Cloud.of, layers)))

    @classmethod
    def like(cls, model: DeepGP, image_shape: tuple[int, ...]) -> Familiarity:
        """One of the size that this model's would have, with any numbers in it."""
        image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
        layers = jax.eval_shape(lambda m, x: m.features(x), model, image)
        return cls(tuple(Cloud.like(a.shape[1]) for a in layers))

    def distance(self, model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> Float[np.ndarray, " N"]:
        """That of each image. `model` is the one that it was made for."""
        layers = zip(self.clouds, _features(model, images), strict=True)
        return np.max([cloud.distance(a) for cloud, a in layers], axis=0)


def _features(model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> list[Float[np.ndarray, "N _"]]:
    images = check_inputs(images)
    found = in_batches(lambda x: _of_batch(model, x), images, fitting_batch(model, images))
    return [np.asarray(a, float) for a in found]


@jit
def _of_batch(model: DeepGP, images: Array) -> tuple[Float[Array, "B _"], ...]:
    return model.features(images)
