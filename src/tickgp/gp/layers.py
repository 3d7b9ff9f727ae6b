"""Layers: a sparse GP and a mean function, from images or vectors to images, vectors or class scores."""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from tickgp.gp.means import AbstractMean
from tickgp.gp.variational import Marginals, Sampling, SparseGP, marginals, sample


class Layer(eqx.Module):
    """f(x) = mean(x) + GP. `output_shape` is that of one output: (rows, columns, channels), or (F,).

    A hidden layer on images, a hidden layer on vectors and a last layer differ only in their parts.
    """

    gp: SparseGP
    mean: AbstractMean
    output_shape: tuple[int, ...] = eqx.field(static=True)

    def marginals(self, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Marginals:
        """q(f(x)) of each output."""
        f = marginals(self.gp, x, jitter)
        return Marginals(f.latent_mean, f.latent_variance, f.mixing, self.mean(x))

    def sample(
        self,
        x: Float[Array, "N ..."],
        jitter: Float[Array, ""],
        how: Sampling,
        *,
        key: PRNGKeyArray,
        common: bool = False,
    ) -> Float[Array, "N ..."]:
        """A draw of the layer's output for each input, in the shape the next layer takes."""
        f = sample(self.gp, x, jitter, how, key=key, common=common) + self.mean(x)
        return f.reshape(len(x), *self.output_shape)

    def expectation(self, x: Float[Array, "N ..."], jitter: Float[Array, ""]) -> Float[Array, "N ..."]:
        """The mean of the layer's output, in the shape the next layer takes."""
        return self.marginals(x, jitter).mean.reshape(len(x), *self.output_shape)

    def kl(self) -> Float[Array, ""]:
        """KL[q(u) || p(u)]."""
        return self.gp.q.kl()
