"""What inference needs to know of a GP prior: Kuu, Kuf, Kff. One class per kind of function."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from tickgp.gp.kernels import AbstractKernel


class AbstractCovariance(eqx.Module):
    """Covariances of a latent GP f, seen at Q sites of each input x, and of its M inducing variables u.

    A function with one output has one site; an image-to-image function has a site for each patch. The sites of one
    input may be correlated in any way: this is where a new multi-output prior is written (docs/multioutput.md).
    `Z` is what the inducing variables of this prior stand on: points, or located patches.
    """

    @abstractmethod
    def Kuu(self, Z: Any) -> Float[Array, "M M"]:
        """cov[u, u]."""

    @abstractmethod
    def Kuf(self, Z: Any, x: Float[Array, "N ..."]) -> Float[Array, "M N Q"]:
        """cov[u, f(x)] at every site."""

    @abstractmethod
    def Kff(self, x: Float[Array, "N ..."]) -> Float[Array, "N Q"]:
        """var[f(x)] at every site."""

    @abstractmethod
    def Kff_joint(self, x: Float[Array, "N ..."]) -> Float[Array, "N Q Q"]:
        """cov[f(x), f(x)] between the sites of each input."""


class Pointwise(AbstractCovariance):
    """f(x) ~ GP(0, k) on vectors, or on whole images taken as vectors; u = f(Z)."""

    kernel: AbstractKernel

    def Kuu(self, Z: Float[Array, "M D"]) -> Float[Array, "M M"]:
        return self.kernel(Z, Z)

    def Kuf(self, Z: Float[Array, "M D"], x: Float[Array, "N ..."]) -> Float[Array, "M N 1"]:
        rows = x.reshape(len(x), -1)
        if rows.shape[1] != Z.shape[1]:
            raise ValueError(
                f"inputs of shape {x.shape[1:]} have {rows.shape[1]} numbers each, and the model is for "
                f"{Z.shape[1]}; resize them or build the model for this shape"
            )
        return self.kernel(Z, rows)[:, :, None]

    def Kff(self, x: Float[Array, "N ..."]) -> Float[Array, "N 1"]:
        return self.kernel.diag(x.reshape(len(x), -1))[:, None]

    def Kff_joint(self, x: Float[Array, "N ..."]) -> Float[Array, "N 1 1"]:
        return self.Kff(x)[:, :, None]
