"""How far an image lies from those of training, as the model sees them: its probabilities do not tell."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from tickgp.gp.batches import in_batches
from tickgp.gp.compiling import jit
from tickgp.gp.images import check_inputs
from tickgp.gp.memory import fitting_batch
from tickgp.gp.models import DeepGP
from tickgp.gp.params import Triangular

MOST_IMAGES = 10_000
"""Training images that suffice to know where their features lie."""
MOST_COMPONENTS = 64
"""Principal components in which this is known for each class. K covariances of all features would take as much memory
as the model."""


class Cloud(eqx.Module):
    """Where the features a of the training images lie in one layer (see `DeepGP.features`): all, and class by class.

    distance(a, k)² = ½ (a − ā)ᵀ C⁻¹ (a − ā) / D + ½ (b − b̄_k)ᵀ C_k⁻¹ (b − b̄_k) / R of an image that is taken for class
    k: about 1 for images like those of training, less where these are few. The first half, with mean and covariance of
    all D features, finds images of another kind. The second, with those of the R leading principal components b in
    class k, finds what lies among the training images but not among those of its class: faint strokes are less ink than
    those of most digits, yet no digit.
    C is shrunk towards a multiple of I (O. Ledoit, M. Wolf, 2004), so that it has an inverse even with fewer images
    than features. So is C_k, and then it is mixed with what C_k is on average, as if from one image more. A class
    without training images has the mean of all.
    """

    mean: Float[Array, " D"]
    root: Triangular
    """The Cholesky factor of C."""
    directions: Float[Array, "D R"]
    """b = (a − ā) · directions, each component with variance 1."""
    class_means: Float[Array, "K R"]
    class_roots: Triangular
    """The Cholesky factor of each C_k."""

    @classmethod
    def of(cls, a: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], num_classes: int) -> Cloud:
        mean = a.mean(axis=0)
        C = _shrunk_covariance(a - mean)
        variances, vectors = (found[..., -MOST_COMPONENTS:] for found in np.linalg.eigh(C))
        directions = vectors / np.sqrt(variances)
        b = (a - mean) @ directions
        each = [b[labels == k] for k in range(num_classes)]
        class_means = np.stack([own.mean(axis=0) if len(own) else np.zeros_like(variances) for own in each])
        common = _common_covariance(b - class_means[labels], len(np.unique(labels)))
        C_k = np.stack([_covariance_of(own - m, common) for own, m in zip(each, class_means, strict=True)])
        return cls(
            jnp.asarray(mean, float),
            _constant(np.linalg.cholesky(C)),
            jnp.asarray(directions, float),
            jnp.asarray(class_means, float),
            _constant(np.linalg.cholesky(C_k)),
        )

    @classmethod
    def like(cls, D: int, num_classes: int) -> Cloud:
        """One of this size, with any numbers in it."""
        R = min(D, MOST_COMPONENTS)
        roots = np.zeros((D, D)), np.zeros((num_classes, R, R))
        one, each = map(_constant, roots)
        return cls(jnp.zeros(D), one, jnp.zeros((D, R)), jnp.zeros((num_classes, R)), each)

    def distance(self, a: Float[np.ndarray, "N D"], classes: Int[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Of images that are taken for `classes`."""
        apart = a - np.asarray(self.mean, float)
        b = apart @ np.asarray(self.directions, float) - np.asarray(self.class_means, float)[classes]
        squares, roots = _squares(self.root.value, apart), self.class_roots.value
        for k in np.unique(classes):
            squares[classes == k] += _squares(roots[k], b[classes == k])
        return np.sqrt(squares / 2)


def _common_covariance(deviations: Float[np.ndarray, "N R"], num_means: int) -> Float[np.ndarray, "R R"]:
    """Inside the classes, of deviations from `num_means` means; where each has one image, that of all images, I."""
    N, R = deviations.shape
    return np.eye(R) if num_means == N else _shrunk_covariance(deviations) * N / (N - num_means)


def _covariance_of(apart: Float[np.ndarray, "N R"], common: Float[np.ndarray, "R R"]) -> Float[np.ndarray, "R R"]:
    """Of a class, from how far its images are apart from their mean, and `common`, as if from one image more."""
    n = len(apart)
    return common if n < 2 else np.asarray((n * n / (n - 1) * _shrunk_covariance(apart) + common) / (n + 1))


def _shrunk_covariance(deviations: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "D D"]:
    from sklearn.covariance import ledoit_wolf

    C, _ = ledoit_wolf(deviations, assume_centered=True)
    # for rounding, and where all images are alike
    return np.asarray(C + 1e-6 * (np.trace(C) / len(C) or 1.0) * np.eye(len(C)))


def _constant(root: Float[np.ndarray, "*stack D D"]) -> Triangular:
    return Triangular(root, trainable=False)


def _squares(root: Float[Array, "D D"], apart: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """Mahalanobis' squared distances, for each dimension, by the Cholesky factor of the covariance."""
    from scipy.linalg import solve_triangular

    return np.asarray(np.mean(solve_triangular(np.asarray(root, float), apart.T, lower=True) ** 2, axis=0))


class Familiarity(eqx.Module):
    """Where the features of the training images lie, in each layer of a model.

    An image's distance is that in the layer where it is the furthest. A layer only ever learned what to make of
    features like those of training; of others the model may be sure without reason. The first layer of a deep model
    sees the image itself but says little of where in it something stands, which the last one does.
    """

    clouds: tuple[Cloud, ...]

    @classmethod
    def of(
        cls, model: DeepGP, images: Shaped[np.ndarray, "N ..."], labels: Int[np.ndarray, " N"], num_classes: int
    ) -> Familiarity:
        """From the training images of a trained model, or from a random part of them where there are many."""
        chosen = np.sort(np.random.default_rng(0).permutation(len(images))[:MOST_IMAGES])
        layers = _features(model, images[chosen])
        if bad := int((~np.isfinite(np.concatenate(layers, axis=1))).any(axis=1).sum()):
            raise ArithmeticError(
                f"the trained model has no finite features for {bad} of {len(chosen)} training images; try a smaller "
                "learning rate, or float64"
            )
        return cls(tuple(Cloud.of(a, labels[chosen], num_classes) for a in layers))

    @classmethod
    def like(cls, model: DeepGP, image_shape: tuple[int, ...], num_classes: int) -> Familiarity:
        """One of the size that this model's would have, with any numbers in it."""
        image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
        layers = jax.eval_shape(lambda m, x: m.features(x), model, image)
        return cls(tuple(Cloud.like(a.shape[1], num_classes) for a in layers))

    def distance(
        self, model: DeepGP, images: Shaped[np.ndarray, "N ..."], classes: Int[np.ndarray, " N"]
    ) -> Float[np.ndarray, " N"]:
        """That of each image, which `model`, the one that this was made for, takes for one of `classes`."""
        layers = zip(self.clouds, _features(model, images), strict=True)
        return np.max([cloud.distance(a, classes) for cloud, a in layers], axis=0)


def _features(model: DeepGP, images: Shaped[np.ndarray, "N ..."]) -> list[Float[np.ndarray, "N _"]]:
    images = check_inputs(images)
    found = in_batches(lambda x: _of_batch(model, x), images, fitting_batch(model, images))
    return [np.asarray(a, float) for a in found]


@jit
def _of_batch(model: DeepGP, images: Array) -> tuple[Float[Array, "B _"], ...]:
    return model.features(images)
