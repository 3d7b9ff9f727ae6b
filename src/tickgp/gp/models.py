"""The model: layers one after the other, and a likelihood."""

from __future__ import annotations

from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from tickgp.gp.images import Standardise, to_pixels
from tickgp.gp.layers import Layer
from tickgp.gp.likelihoods import AbstractLikelihood
from tickgp.gp.variational import Marginals, Sampling, features


class DeepGP(eqx.Module):
    """f = f_L(… f_2(f_1(x))), each f_l a sparse GP, and y | f from the likelihood. With one layer: a shallow GP.

    `jitter` is relative to the variance of each layer and is an array, so that training can raise it on the way.
    `sampling` says how hidden layers are drawn (see `gp.variational.sample`). `standardise` is what is done to pixels
    first, if anything.
    Paper: deep GP
    """

    layers: tuple[Layer, ...]
    likelihood: AbstractLikelihood
    jitter: Float[Array, ""]
    standardise: Standardise | None
    sampling: Sampling = eqx.field(static=True)

    def __init__(
        self,
        layers: tuple[Layer, ...],
        likelihood: AbstractLikelihood,
        *,
        jitter: float = 1e-5,
        sampling: Sampling = "marginal",
        standardise: Standardise | None = None,
    ):
        if not layers:
            raise ValueError("a model of no layers was asked for; give at least one")
        if not 0 <= jitter < 1:
            raise ValueError(f"jitter {jitter} was given; it is a share of the variance, such as 1e-5")
        if layers[-1].output_shape != (likelihood.num_outputs,):
            raise ValueError(
                f"the last layer puts out {layers[-1].output_shape} and {type(likelihood).__name__} takes "
                f"({likelihood.num_outputs},); give the last layer as many outputs as the likelihood takes"
            )
        if sampling not in get_args(Sampling):
            raise ValueError(f"sampling {sampling!r} is not known; choose one of: {', '.join(get_args(Sampling))}")
        self.layers, self.likelihood = layers, likelihood
        self.jitter, self.sampling, self.standardise = jnp.asarray(jitter, float), sampling, standardise

    def pixels(self, x: Shaped[Array, "N ..."]) -> Float[Array, "N ..."]:
        """`x` as the first layer sees it. x: floats, or bytes to be divided by 255."""
        x = to_pixels(x)
        return x if self.standardise is None else self.standardise(x)

    def draw(
        self, layer: int, x: Float[Array, "N ..."], *, key: PRNGKeyArray, common: bool = False
    ) -> Float[Array, "N ..."]:
        """A draw of what hidden layer number `layer` makes of `x`, which the layers below it put out."""
        own_key = jax.random.fold_in(key, layer)
        x = self.layers[layer].sample(x, self.jitter, self.sampling, key=own_key, common=common)
        return jax.lax.optimization_barrier(x)  # a pixel is worked out once, not once for each patch it is in

    def propagate(
        self, x: Shaped[Array, "N ..."], *, key: PRNGKeyArray, common: bool = False, after: int = 0
    ) -> Marginals:
        """q(f(x)) of the last layer, given a draw of every hidden layer. x: floats, or bytes to be divided by 255.

        With `after`, x has been through so many layers already (see `draw`).
        """
        x = x if after else self.pixels(x)
        for layer in range(after, len(self.layers) - 1):
            x = self.draw(layer, x, key=key, common=common)
        return self.layers[-1].marginals(x, self.jitter)

    def features(self, x: Shaped[Array, "N ..."]) -> tuple[Float[Array, "N _"], ...]:
        """What each layer makes its outputs of, a(x) = Lu⁻¹ k_u(x), averaged over its sites.

        Layers above the first are given the means of those below them.
        """
        means = [self.pixels(x)]
        for layer in self.layers[:-1]:
            means.append(jax.lax.optimization_barrier(layer.expectation(means[-1], self.jitter)))  # as in `draw`
        return tuple(features(layer.gp, x, self.jitter) for layer, x in zip(self.layers, means, strict=True))

    def kl(self) -> Float[Array, ""]:
        """Σ_l KL[q(u_l) || p(u_l)] over the layers."""
        return sum((layer.kl() for layer in self.layers[1:]), start=self.layers[0].kl())
