"""`python -m benchmarks precision`: what float32 loses on this machine, against double precision on the same numbers.

Of the sums over patches and of A = Lu⁻¹Kuf, with their gradients: |got − exact| / |exact|, taken over whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tickgp.gp.kernels import SquaredExponential
from tickgp.gp.linalg import whiten
from tickgp.gp.patch_sums import cross_sums, self_sums


def answer(spec: dict[str, int]) -> dict[str, dict[str, float]]:
    """For each function, the errors of its value and of the gradients by its arguments, at sizes M, N, P, E."""
    M, N, P, E = (spec[name] for name in "MNPE")
    rng = np.random.default_rng(0)

    def patches(*shape: int) -> np.ndarray:
        return np.where(rng.random(shape) < 0.4, rng.random(shape), 0)

    among, z = rng.random((P, P)) / P, patches(M, E)
    distance = np.sum((z[:, None] - z) ** 2, axis=2)
    correlation = SquaredExponential.correlation
    problems: dict[str, tuple[Callable[..., Any], dict[str, np.ndarray]]] = {
        "cross sums": (
            lambda *a: cross_sums(correlation, *a),
            {"scale": np.array(1.3), "C": np.divide(rng.random((M, P)), P), "z": z, "x": patches(N, P, E)},
        ),
        "self sums": (
            lambda *a: self_sums(correlation, *a),
            {"scale": np.array(1.3), "C": among + among.T, "x": patches(N, P, E)},
        ),
        "whitening": (
            whiten,
            {"K": 5 * (np.exp(-distance / 2) + 1e-5 * np.eye(M)), "B": rng.random((M, N))},
        ),
    }
    return {name: _errors(*problem, rng) for name, problem in problems.items()}


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
