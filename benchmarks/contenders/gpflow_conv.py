"""GPflow's Conv-GP: a TICK-GP without the location kernel, so less work. One Cholesky factor serves all classes."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.rows import CLASSES, PATCH, Device, Row

_VARIANCE, _JITTER = 5.0, 1e-5


def _build(row: Row, images: np.ndarray) -> Any:
    """The whitened SVGP with a softmax likelihood, whose expectation is estimated from one sample as ours is."""
    gpflow.config.set_default_float(np.float32)
    gpflow.config.set_default_jitter(_JITTER * _VARIANCE)
    base = gpflow.kernels.SquaredExponential(variance=_VARIANCE, lengthscales=1.0)
    kernel = gpflow.kernels.Convolutional(base, row.image[:2], (PATCH, PATCH))
    rng = np.random.default_rng(0)
    few = images[:2000].reshape(min(2000, len(images)), -1).astype(np.float32) / 255
    patches = kernel.get_patches(few[rng.integers(len(few), size=row.M)]).numpy()
    Z = patches[np.arange(row.M), rng.integers(kernel.num_patches, size=row.M)]
    likelihood = gpflow.likelihoods.Softmax(CLASSES)
    likelihood.num_monte_carlo_points = 1
    return gpflow.models.SVGP(
        gpflow.kernels.SharedIndependent(kernel, CLASSES),
        likelihood,
        gpflow.inducing_variables.SharedIndependentInducingVariables(gpflow.inducing_variables.InducingPatches(Z)),
        num_latent_gps=CLASSES,
        whiten=True,
        num_data=row.num_images,
    )


class GPflow:
    """Adam on batches that are gathered, as bytes, inside one compiled step."""

    def __init__(self, row: Row, images: np.ndarray, labels: np.ndarray):
        self.versions = {"gpflow": gpflow.__version__, "tensorflow": tf.__version__}
        self.note = "Conv-GP, without locations"
        self._row, self._rng = row, np.random.default_rng(1)
        model = _build(row, images)
        optimiser = tf_keras.optimizers.Adam(0.01)
        x = tf.constant(images.reshape(len(images), -1))
        y = tf.constant(labels[:, None])

        def step(batch: Any) -> Any:
            pixels = tf.cast(tf.gather(x, batch), tf.float32) / 255
            with tf.GradientTape() as tape:
                loss = model.training_loss((pixels, tf.gather(y, batch)))
            variables = model.trainable_variables
            optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        self._step = tf.function(step)

    def prepare(self, steps: int) -> None:
        batches = self._rng.integers(self._row.num_images, size=(steps, self._row.B))
        self._batches = [tf.constant(batch) for batch in batches]

    def run(self, steps: int) -> None:
        for batch in self._batches:
            loss = self._step(batch)
        loss.numpy()

    def peak(self) -> None:
        return None


def start(name: str, row: Row, device: Device, images: np.ndarray, labels: np.ndarray) -> GPflow:
    if device != "cpu" or row.depth > 1 or row.image[2] > 1:
        raise ValueError("GPflow takes part on a CPU, with one layer and grey images")
    return GPflow(row, images, labels)
