"""How far likeness reaches: how much responses agree by how different patches are, and by how far they are apart."""

from __future__ import annotations

from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tickgp.gp.kernels import AbstractKernel, NotStationaryError, expected_crossings
from tickgp.gp.patches import PatchGrid


def agreement(kernel: AbstractKernel, offsets: Float[np.ndarray, "T D"]) -> Float[np.ndarray, " T"]:
    """The correlation of a path's values at 0 and at `offsets`: if k is stationary, at any two points so far apart."""
    return np.asarray(_agreement(kernel, jnp.asarray(offsets, float)), float)


@eqx.filter_jit
def _agreement(kernel: AbstractKernel, offsets: Float[Array, "T D"]) -> Float[Array, " T"]:
    origin = jnp.zeros((1, offsets.shape[1]))
    return kernel(origin, offsets)[0] / jnp.sqrt(kernel.diag(origin) * kernel.diag(offsets))


def half_way(kernel: AbstractKernel, direction: Iterable[float]) -> float | None:
    """How many times `direction` two points must be apart until they agree to a half only; None if they always do."""
    steps = np.geomspace(1e-3, 1e4, 1401)
    share = agreement(kernel, steps[:, None] * np.asarray(list(direction)))
    if not (share < 0.5).any():
        return None
    first = max(int(np.argmax(share < 0.5)), 1)
    return float(np.interp(0.5, share[[first, first - 1]], steps[[first, first - 1]]))


def crossings_across(kernel: AbstractKernel, grid: PatchGrid) -> tuple[float, float] | None:
    """How often a response is expected to change sign from the first row of patches to the last, and across columns.

    None for a kernel that is not known to be stationary.
    """
    try:
        rates = expected_crossings(kernel)
    except NotStationaryError:
        return None
    down, across = np.broadcast_to(np.asarray(rates, float), (2,))
    return float(down) * (grid.rows - 1) * grid.stride[0], float(across) * (grid.columns - 1) * grid.stride[1]
