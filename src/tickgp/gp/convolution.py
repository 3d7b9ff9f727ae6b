"""Convolutional priors: functions of an image that are made of one response g to each of its patches."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tickgp.gp.covariances import AbstractCovariance
from tickgp.gp.kernels import AbstractKernel, AbstractStationary
from tickgp.gp.linalg import einsum, matmul
from tickgp.gp.params import Real
from tickgp.gp.patch_sums import cross_sums, self_sums
from tickgp.gp.patches import Located, PatchGrid


class PatchResponse(eqx.Module):
    """Prior of the patch response g: k_g((a, s), (b, t)) = k_patch(a, b) · k_loc(s, t).

    Without `location` the response ignores where a patch stands: the translation-invariant Conv-GP.
    Paper: eq. tick
    """

    patch: AbstractKernel
    location: AbstractKernel | None = None

    def __call__(self, a: Located, b: Located) -> Float[Array, "A B"]:
        covariance = self.patch(a.patch, b.patch)
        return covariance if self.location is None else covariance * self.location(_place(a), _place(b))

    def diag(self, a: Located) -> Float[Array, " A"]:
        variance = self.patch.diag(a.patch)
        return variance if self.location is None else variance * self.location.diag(_place(a))

    def cross_sums(
        self, Z: Located, patches: Float[Array, "N P E"], places: Float[Array, "P 2"], w: Float[Array, " P"]
    ) -> Float[Array, "M N"]:
        """Σ_p w_p k_g(Z, (x_n[p], l(p))) for the patches of every image."""
        if not isinstance(self.patch, AbstractStationary):
            one_image = lambda x: matmul(self(Z, Located(x, places)), w)
            return jax.lax.map(jax.checkpoint(one_image), patches).T
        scale, z, x = _scaled(self.patch, Z.patch, patches, centre=jnp.mean(Z.patch, axis=0))
        location = jnp.ones((len(z), 1), z.dtype) if self.location is None else self.location(_place(Z), places)
        return cross_sums(self.patch.correlation, scale, self.patch.variance.value * location * w, z, x)

    def self_sums(
        self, patches: Float[Array, "N P E"], places: Float[Array, "P 2"], w: Float[Array, " P"]
    ) -> Float[Array, " N"]:
        """Σ_p Σ_q w_p w_q k_g((x_n[p], l(p)), (x_n[q], l(q))) for the patches of every image."""
        if not isinstance(self.patch, AbstractStationary):
            one_image = lambda x: einsum("p,pq,q->", w, self(Located(x, places), Located(x, places)), w)
            return jax.lax.map(jax.checkpoint(one_image), patches)
        scale, x = _scaled(self.patch, patches, centre=jnp.mean(patches, axis=1, keepdims=True))
        location = 1.0 if self.location is None else self.location(places, places)
        return self_sums(self.patch.correlation, scale, self.patch.variance.value * location * w[:, None] * w, x)


def _scaled(
    kernel: AbstractStationary, *arrays: Float[Array, "..."], centre: Float[Array, "*_ E"]
) -> list[Float[Array, "..."]]:
    """What distances are multiplied by, and the arrays, moved by `centre`: far from the origin distances lose digits.

    Where every dimension has its lengthscale, the arrays are in units of it.
    """
    moved, lengthscale = [array - jax.lax.stop_gradient(centre) for array in arrays], kernel.lengthscale.value
    if lengthscale.ndim:
        return [jnp.ones((), lengthscale.dtype), *(array / lengthscale for array in moved)]
    return [lengthscale**-2, *moved]


def _place(located: Located) -> Float[Array, "T 2"]:
    if located.place is None:
        raise ValueError("a location kernel was given patches without places; give the InducingPatches places")
    return located.place


class Convolutional(AbstractCovariance):
    """One real output: f(x) = (1/P) Σ_p w_p g(x[p], l(p)).

    The inducing variables are responses to patches, u = g(Z), so that
    Kuu = k_g(Z, Z), Kuf = (1/P) Σ_p w_p k_g(Z, x[p]) and Kff = (1/P²) Σ_p Σ_p' w_p w_p' k_g(x[p], x[p']).

    The 1/P is not in the paper. It keeps f's scale apart from the image's size and is applied in `_weights` alone.
    Without `weights` every w_p is 1.
    Paper: eq. conv-gp; K_uu, k_u of inducing patches
    """

    response: PatchResponse
    weights: Real | None
    grid: PatchGrid = eqx.field(static=True)

    def __init__(self, grid: PatchGrid, response: PatchResponse, weights: Real | None = None):
        if weights is not None and weights.value.shape != (grid.num_patches,):
            raise ValueError(
                f"patch weights have shape {weights.value.shape}; give one for each patch: ({grid.num_patches},)"
            )
        self.grid, self.response, self.weights = grid, response, weights

    def Kuu(self, Z: Located) -> Float[Array, "M M"]:
        return self.response(Z, Z)

    def Kuf(self, Z: Located, x: Float[Array, "N H W C"]) -> Float[Array, "M N 1"]:
        return self.response.cross_sums(Z, self.grid.patches(x), self.grid.places(), self._weights())[:, :, None]

    def Kff(self, x: Float[Array, "N H W C"]) -> Float[Array, "N 1"]:
        return self.response.self_sums(self.grid.patches(x), self.grid.places(), self._weights())[:, None]

    def Kff_joint(self, x: Float[Array, "N H W C"]) -> Float[Array, "N 1 1"]:
        return self.Kff(x)[:, :, None]

    def _weights(self) -> Float[Array, " P"]:
        P = self.grid.num_patches
        return jnp.full(P, 1 / P) if self.weights is None else self.weights.value / P


class MultiOutputConvolutional(AbstractCovariance):
    """An output for each patch: f_p(x) = g(x[p], l(p)), hence cov[f_p(x), f_q(x')] = k_g(x[p], x'[q]).

    The multi-output convolutional kernel (MOCK): image to image, with the P patches as sites.
    The inducing variables are responses to patches, u = g(Z): Kuu = k_g(Z, Z), Kuf = k_g(Z, x[p]) for all p.
    Paper: eq. deconv-f-def; K_uu, k_u of inducing patches
    """

    response: PatchResponse
    grid: PatchGrid = eqx.field(static=True)

    def __init__(self, grid: PatchGrid, response: PatchResponse):
        self.grid, self.response = grid, response

    def Kuu(self, Z: Located) -> Float[Array, "M M"]:
        return self.response(Z, Z)

    def Kuf(self, Z: Located, x: Float[Array, "N H W C"]) -> Float[Array, "M N P"]:
        places = self.grid.places()
        one_image = lambda patches: self.response(Z, Located(patches, places))
        return jax.vmap(one_image, out_axes=1)(self.grid.patches(x))

    def Kff(self, x: Float[Array, "N H W C"]) -> Float[Array, "N P"]:
        places = self.grid.places()
        return jax.vmap(lambda patches: self.response.diag(Located(patches, places)))(self.grid.patches(x))

    def Kff_joint(self, x: Float[Array, "N H W C"]) -> Float[Array, "N P P"]:
        places = self.grid.places()

        def one_image(patches: Float[Array, "P E"]) -> Float[Array, "P P"]:
            located = Located(patches, places)
            return self.response(located, located)

        return jax.vmap(one_image)(self.grid.patches(x))
