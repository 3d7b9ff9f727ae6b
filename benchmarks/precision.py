"""`python -m benchmarks precision`: what float32 loses on this machine, against double precision on the same numbers.

Of the sums over patches and of A = Lu⁻¹Kuf, with their gradients: |got − exact| / |exact|, taken over whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from PIL import Image
from sklearn.datasets import load_digits

from tickgp.gp import builders
from tickgp.gp.convolution import Convolutional
from tickgp.gp.kernels import AbstractStationary
from tickgp.gp.likelihoods import Softmax
from tickgp.gp.linalg import whiten
from tickgp.gp.patch_sums import cross_sums, self_sums
from tickgp.gp.variational import inducing_covariance

Problem = tuple[Callable[..., Any], dict[str, np.ndarray]]
"""A function and its arguments."""


def answer(spec: dict[str, int]) -> dict[str, dict[str, float]]:
    """For each function, the errors of its value and of the gradients by its arguments, with M patches and N images."""
    with jax.enable_x64(True):
        problems = _problems(spec["M"], spec["N"])
    rng = np.random.default_rng(0)
    return {name: _errors(*problem, rng) for name, problem in problems.items()}


def _problems(M: int, N: int) -> dict[str, Problem]:
    """The sums and the projection of a TICK-GP as it starts, on scikit-learn's digits at MNIST's size."""
    small = load_digits().images.astype(np.float32)
    large = [np.asarray(Image.fromarray(image).resize((28, 28), Image.Resampling.BICUBIC)) for image in small]
    images = np.clip(np.stack(large)[..., None] / 16, 0, 1)
    gp = builders.tick(images, Softmax(10), num_inducing=M, key=jax.random.key(0)).layers[0].gp
    covariance, Z = gp.kernel.covariances[0], gp.inducing[0].value
    assert isinstance(covariance, Convolutional)
    response, places, x = covariance.response, covariance.grid.places(), jnp.asarray(images[:N])
    patch, location, P = response.patch, response.location, covariance.grid.num_patches
    assert isinstance(patch, AbstractStationary)
    assert location is not None
    correlation, patches = patch.correlation, covariance.grid.patches(x)
    scale, variance = patch.lengthscale.value**-2, patch.variance.value
    arrays: dict[str, tuple[Callable[..., Any], dict[str, Array]]] = {
        "cross sums": (
            lambda *a: cross_sums(correlation, *a),
            {"scale": scale, "C": variance / P * location(Z.place, places), "z": Z.patch, "x": patches},
        ),
        "self sums": (
            lambda *a: self_sums(correlation, *a),
            {"scale": scale, "C": variance / P**2 * location(places, places), "x": patches},
        ),
        "whitening": (
            whiten,
            {"K": inducing_covariance(gp, jnp.asarray(1e-5))[0], "B": covariance.Kuf(Z, x)[:, :, 0]},
        ),
    }
    return {name: (f, {n: np.asarray(a) for n, a in inputs.items()}) for name, (f, inputs) in arrays.items()}


def _errors(f: Callable[..., Any], arrays: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, float]:
    weights = rng.normal(size=jax.eval_shape(f, *map(jnp.asarray, arrays.values())).shape)

    def value_and_gradients(dtype: Any) -> list[np.ndarray]:
        cast = [jnp.asarray(array, dtype) for array in arrays.values()]
        value, pull = jax.vjp(jax.jit(f), *cast)
        return [np.asarray(a, float) for a in (value, *pull(jnp.asarray(weights, dtype)))]

    single = value_and_gradients(jnp.float32)
    with jax.enable_x64(True):
        double = value_and_gradients(jnp.float64)
    names = ["value", *(f"gradient by {name}" for name in arrays)]
    error = lambda a, b: float(np.linalg.norm(a - b) / np.linalg.norm(b))
    return {name: error(a, b) for name, a, b in zip(names, single, double, strict=True)}
