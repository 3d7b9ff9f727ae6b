"""What happens when a step fails: Kuu too close to singular for its Cholesky factor, so that the loss is NaN.

The step is not applied. After three failures in a row the jitter of the model grows tenfold and training goes on. If at
a report the last three steps or more failed at a jitter of 1e-2, it stops and says which layer failed and at which
parameter values.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from tickgp.gp.models import DeepGP
from tickgp.gp.params import Positive
from tickgp.gp.variational import inducing_covariance

PATIENCE = 3
LARGEST_JITTER = 1e-2
_SMALL = 2**16
_PASSED_OVER = ("covariance", "members", "latents", "response", "kernel")
"""Names on the path to a kernel's parameter that say nothing of whose it is."""


class TrainingError(ArithmeticError):
    """No finite gradient, whatever the jitter."""


def all_finite(*trees: PyTree) -> Bool[Array, ""]:
    """Whether every number of every array is finite. Small arrays are looked at together: one kernel on a GPU, not one
    each.
    """
    finite = [jnp.isfinite(leaf).ravel() for leaf in jax.tree.leaves(trees)]
    small, large = ([leaf for leaf in finite if (leaf.size < _SMALL) == is_small] for is_small in (True, False))
    together = [jnp.concatenate(small)] if small else []
    return jnp.all(jnp.stack([jnp.all(leaf) for leaf in together + large]))


def raised_jitter(jitter: Float[Array, ""], failures: Int[Array, ""]) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """Jitter and count after `failures` in a row; computed on the device, so that training need not wait for it.

    At the limit the count goes on: only there can it reach the patience.
    """
    raised = (failures >= PATIENCE) & (jitter < LARGEST_JITTER)
    larger = jnp.minimum(10 * jnp.maximum(jitter, jnp.finfo(jitter.dtype).eps), LARGEST_JITTER)
    return jnp.where(raised, larger, jitter), jnp.where(raised, 0, failures)


def check_failures(model: DeepGP, failures: Int[Array, ""]) -> None:
    """Stop when steps fail although the jitter is as large as it may be."""
    if int(failures) < PATIENCE:
        return
    raise TrainingError(
        f"no finite gradient even with a jitter of {float(model.jitter):.0e}; {_diagnosis(model)}; "
        "try a smaller learning rate, fewer inducing variables, or float64"
    )


def _diagnosis(model: DeepGP) -> str:
    for i, layer in enumerate(model.layers, start=1):
        if not bool(all_finite(layer)):
            return f"layer {i} has parameters that are not finite"
        if not bool(all_finite(jnp.linalg.cholesky(inducing_covariance(layer.gp, model.jitter)))):
            return f"Kuu of layer {i} has no Cholesky factor at {_values(layer.gp.kernel)}"
    values = "; ".join(f"layer {i}: {_values(layer.gp.kernel)}" for i, layer in enumerate(model.layers, start=1))
    return f"every layer's inducing variables are sound, so look at the images and the likelihood ({values})"


def _values(kernel: Any) -> str:
    """The positive parameters of a kernel in words, by their path: `patch.variance 5.0, location.lengthscale 3.0`."""
    nodes = jax.tree_util.tree_leaves_with_path(kernel, is_leaf=lambda node: isinstance(node, Positive))
    positive = [(path, node) for path, node in nodes if isinstance(node, Positive)]
    return ", ".join(f"{_name(path)} {np.round(np.asarray(node.value), 6)}" for path, node in positive)


def _name(path: tuple[Any, ...]) -> str:
    names = [jax.tree_util.keystr((key,), simple=True) for key in path]
    return ".".join(name for name in names if name not in _PASSED_OVER)
