"""Mean functions: what a layer does before its GP learns anything."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from tickgp.gp.linalg import matmul
from tickgp.gp.params import Real
from tickgp.gp.patches import PatchGrid


class AbstractMean(eqx.Module):
    """E[f(x)] of the prior, for all F outputs, numbered as `Marginals` numbers them."""

    @abstractmethod
    def __call__(self, x: Float[Array, "N ..."]) -> Float[Array, "N F"]: ...


class Zero(AbstractMean):
    """0 for each of F outputs."""

    num_outputs: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "N ..."]) -> Float[Array, "N F"]:
        return jnp.zeros((len(x), self.num_outputs))


class IdentityConv(AbstractMean):
    """The pixel at the centre of each patch: input channel i becomes output channel i, further outputs are 0.

    The centre is at ((h − 1) // 2, (w − 1) // 2) from the patch's corner. Any stride; if there are more input than
    output channels, the first are kept.
    Paper: identity Conv2D mean
    """

    grid: PatchGrid = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "N H W C"]) -> Float[Array, "N F"]:
        (h, w), (sy, sx), C = self.grid.patch_shape, self.grid.stride, self.grid.image_shape[2]
        top, left = (h - 1) // 2, (w - 1) // 2
        bottom, right = top + (self.grid.rows - 1) * sy + 1, left + (self.grid.columns - 1) * sx + 1
        centres = x[:, top:bottom:sy, left:right:sx, : self.channels]
        padded = jnp.pad(centres, ((0, 0), (0, 0), (0, 0), (0, max(0, self.channels - C))))
        return padded.reshape(len(x), -1)


class Identity(AbstractMean):
    """f(x) = x: as many outputs as inputs."""

    def __call__(self, x: Float[Array, "N ..."]) -> Float[Array, "N F"]:
        return x.reshape(len(x), -1)


class Linear(AbstractMean):
    """f(x) = A (x − b)."""

    A: Real
    b: Real

    def __call__(self, x: Float[Array, "N ..."]) -> Float[Array, "N F"]:
        return matmul(x.reshape(len(x), -1) - self.b.value, self.A.value.T)


def principal_components(x: np.ndarray, num_outputs: int) -> Linear:
    """The fixed linear map from inputs (N, …) to their first principal components."""
    rows = np.asarray(x, float).reshape(len(x), -1)
    if num_outputs > min(rows.shape):
        raise ValueError(
            f"{num_outputs} principal components were asked for, but {rows.shape[0]} inputs of length {rows.shape[1]} "
            f"have at most {min(rows.shape)}; use a width of at most that"
        )
    centre = rows.mean(axis=0)
    directions = _directions(rows - centre)[:num_outputs]
    return Linear(Real(directions, trainable=False), Real(centre, trainable=False))


def _directions(rows: np.ndarray) -> np.ndarray:
    """Right singular vectors of N rows of length D, the largest singular value first; of many rows by a D×D matrix."""
    N, D = rows.shape
    return np.linalg.eigh(rows.T @ rows)[1][:, ::-1].T if N >= D else np.linalg.svd(rows, full_matrices=False)[2]
