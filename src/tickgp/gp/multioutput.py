"""Vector-valued priors: latent GPs, independent of each other, and how they make up the outputs.

Each latent is an `AbstractCovariance` with its own inducing variables. Inference works latent by latent, so that L
latents with M inducing variables each cost L factorisations of M×M, or a single one where all latents share both
kernel and inducing variables; an LM×LM matrix is never formed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.covariances import AbstractCovariance
from tickgp.gp.inducing import AbstractInducing
from tickgp.gp.params import Real

Inducing = tuple[AbstractInducing, ...]
"""Inducing variables: one member that all latents share, or a member for each latent."""


class AbstractMultiOutput(eqx.Module):
    """J distinct latent priors (J = 1 when all share one), and the `mixing` matrix that makes outputs of latents.

    Paper: multi-output framework
    """

    @property
    @abstractmethod
    def covariances(self) -> tuple[AbstractCovariance, ...]:
        """One member that all latents share, or a member for each latent."""

    @property
    @abstractmethod
    def mixing(self) -> Float[Array, "O L"] | None:
        """W of f = W g; None when the outputs are the latents."""

    def Kuu(self, inducing: Inducing) -> Float[Array, "J M M"]:
        """cov[u, u] of each distinct latent."""
        return jnp.stack([covariance.Kuu(Z.value) for covariance, Z in self._pairs(inducing)])

    def Kuf(self, inducing: Inducing, x: Float[Array, "N ..."]) -> Float[Array, "J M N Q"]:
        """cov[u, g(x)] of each distinct latent, at every site."""
        return jnp.stack([covariance.Kuf(Z.value, x) for covariance, Z in self._pairs(inducing)])

    def Kff(self, x: Float[Array, "N ..."]) -> Float[Array, "J N Q"]:
        """var[g(x)] of each distinct kernel, at every site."""
        return jnp.stack([covariance.Kff(x) for covariance in self.covariances])

    def Kff_joint(self, x: Float[Array, "N ..."]) -> Float[Array, "J N Q Q"]:
        """cov[g(x), g(x)] of each distinct kernel, between the sites of each input."""
        return jnp.stack([covariance.Kff_joint(x) for covariance in self.covariances])

    def _pairs(self, inducing: Inducing) -> Iterator[tuple[AbstractCovariance, AbstractInducing]]:
        J = max(len(self.covariances), len(inducing))
        repeat = lambda members: members * J if len(members) == 1 else members
        return zip(repeat(self.covariances), repeat(inducing), strict=True)


class Shared(AbstractMultiOutput):
    """Independent latents that all have the same prior: f_l = g_l with g_l ~ GP(0, k)."""

    covariance: AbstractCovariance

    @property
    def covariances(self) -> tuple[AbstractCovariance, ...]:
        return (self.covariance,)

    @property
    def mixing(self) -> None:
        return None


class Separate(AbstractMultiOutput):
    """Independent latents with a prior each: f_l = g_l with g_l ~ GP(0, k_l)."""

    members: tuple[AbstractCovariance, ...]

    @property
    def covariances(self) -> tuple[AbstractCovariance, ...]:
        return self.members

    @property
    def mixing(self) -> None:
        return None


class LinearCoregionalization(AbstractMultiOutput):
    """Correlated outputs mixed from independent latents: f = W g, so cov[f_o, f_o'] = Σ_l W_ol W_o'l k_l."""

    latents: Shared | Separate
    W: Real

    @property
    def covariances(self) -> tuple[AbstractCovariance, ...]:
        return self.latents.covariances

    @property
    def mixing(self) -> Float[Array, "O L"]:
        return self.W.value
