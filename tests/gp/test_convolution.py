import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import reference

from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional, PatchResponse
from tickgp.gp.covariances import Pointwise
from tickgp.gp.kernels import Matern32, SquaredExponential
from tickgp.gp.params import Real
from tickgp.gp.patches import Located, PatchGrid

pytestmark = pytest.mark.usefixtures("float64")

GRIDS = {
    "grey": ((5, 4, 1), (3, 2), (1, 1)),
    "strides": ((6, 5, 1), (2, 1), (2, 3)),
    "colour": ((4, 5, 3), (3, 2), (1, 2)),
}
every_grid = pytest.mark.parametrize("sizes", GRIDS.values(), ids=GRIDS)
with_and_without_location = pytest.mark.parametrize("located", [False, True], ids=["conv", "tick"])
M, N = 4, 2


class Problem:
    """Random images, inducing patches and weights, for the library and for the loops."""

    def __init__(self, sizes, located=True, weighted=True):
        rng = np.random.default_rng(0)
        self.grid = PatchGrid(*sizes)
        (H, W, _), P, E = self.grid.image_shape, self.grid.num_patches, self.grid.patch_length
        self.images = rng.uniform(size=(N, *self.grid.image_shape))
        self.Z, self.Z_places = rng.uniform(size=(M, E)), rng.uniform(0, [H, W], (M, 2))
        self.weights = rng.normal(size=P) if weighted else None
        self.x = reference.patches(self.images, *self.grid.patch_shape, *self.grid.stride)
        self.places = reference.places(H, W, *self.grid.patch_shape, *self.grid.stride)
        self.k_g = reference.patch_response(reference.se(1.5, 0.8), reference.matern32(0.9, 2.0) if located else None)
        self.response = PatchResponse(SquaredExponential(1.5, 0.8), Matern32(0.9, 2.0) if located else None)
        self.inducing = Located(jnp.asarray(self.Z), jnp.asarray(self.Z_places) if located else None)

    def convolutional(self):
        return Convolutional(self.grid, self.response, None if self.weights is None else Real(self.weights))

    def covariances(self, prior, inducing=None):
        """Kuu, Kuf, Kff, Kff_joint by the library."""
        Z = self.inducing if inducing is None else inducing
        return _covariances(prior, Z, jnp.asarray(self.images))


@eqx.filter_jit
def _covariances(prior, Z, x):
    return prior.Kuu(Z), prior.Kuf(Z, x), prior.Kff(x), prior.Kff_joint(x)


def assert_all_close(results, expected):
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-9, atol=1e-12)


@every_grid
@with_and_without_location
@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "weights"])
def test_convolutional_equals_the_loops(sizes, located, weighted):
    p = Problem(sizes, located, weighted)
    Kff = np.diag(reference.summed_Kff(p.k_g, p.x, p.x, p.places, p.weights))
    expected = (
        reference.inducing_Kuu(p.k_g, p.Z, p.Z_places),
        reference.summed_Kuf(p.k_g, p.Z, p.Z_places, p.x, p.places, p.weights)[:, :, None],
        Kff[:, None],
        Kff[:, None, None],
    )
    assert_all_close(p.covariances(p.convolutional()), expected)


@every_grid
@with_and_without_location
def test_multi_output_equals_the_loops(sizes, located):
    p = Problem(sizes, located)
    every_pair = reference.mock_Kff(p.k_g, p.x, p.x, p.places)
    joint = np.stack([every_pair[n, :, n, :] for n in range(N)])
    expected = (
        reference.inducing_Kuu(p.k_g, p.Z, p.Z_places),
        reference.mock_Kuf(p.k_g, p.Z, p.Z_places, p.x, p.places),
        np.diagonal(joint, axis1=1, axis2=2),
        joint,
    )
    assert_all_close(p.covariances(MultiOutputConvolutional(p.grid, p.response)), expected)


@every_grid
def test_weighted_sum_of_the_outputs_is_the_convolutional_function(sizes):
    """f = (1/P) Σ_p w_p f_p, so Kuf = Kuf_MOCK w / P and Kff = wᵀ Kff_MOCK w / P²."""
    p = Problem(sizes)
    w = p.weights / p.grid.num_patches
    Kuu, Kuf, _, joint = map(np.asarray, p.covariances(MultiOutputConvolutional(p.grid, p.response)))
    Kff = np.einsum("npq,p,q->n", joint, w, w)
    expected = Kuu, (Kuf @ w)[:, :, None], Kff[:, None], Kff[:, None, None]
    assert_all_close(p.covariances(p.convolutional()), expected)


@pytest.mark.parametrize("location", [Matern32, SquaredExponential])
def test_tick_with_a_long_location_lengthscale_is_conv(location):
    p = Problem(GRIDS["colour"])
    tick = eqx.tree_at(lambda c: c.response.location, p.convolutional(), location(1.0, 1e7))
    conv = Convolutional(p.grid, PatchResponse(p.response.patch), tick.weights)
    without_places = Located(p.inducing.patch, None)
    assert_all_close(p.covariances(tick), p.covariances(conv, without_places))


def test_conv_ignores_where_patches_stand():
    """Patches moved to other places leave an equally weighted Conv-GP's f unchanged, and change TICK's."""
    for located in (False, True):
        p = Problem(((4, 6, 1), (4, 2), (1, 2)), located, weighted=False)
        _, Kuf, Kff, _ = p.covariances(p.convolutional())
        p.images = p.images.reshape(N, 4, 3, 2, 1)[:, :, [2, 0, 1]].reshape(p.images.shape)
        _, Kuf_moved, Kff_moved, _ = p.covariances(p.convolutional())
        assert np.allclose(Kuf, Kuf_moved, rtol=1e-9) is not located
        assert np.allclose(Kff, Kff_moved, rtol=1e-9) is not located


@pytest.mark.parametrize("shape", [(3, 2, 1), (2, 3, 3)])
def test_patch_as_large_as_the_image_is_a_gp_on_pixels(shape):
    p = Problem((shape, shape[:2], (1, 1)), located=False, weighted=False)
    on_pixels = Pointwise(p.response.patch)
    assert_all_close(p.covariances(p.convolutional()), p.covariances(on_pixels, p.inducing.patch))
    flat = p.images.reshape(N, -1)
    np.testing.assert_allclose(
        p.covariances(on_pixels, p.inducing.patch)[1][:, :, 0],
        reference.gram(reference.se(1.5, 0.8), p.Z, flat),
        rtol=1e-9,
    )


@pytest.mark.parametrize("shape", [(8,), (9, 1), ()])
def test_weights_of_another_shape_are_refused(shape):
    p = Problem(GRIDS["grey"])
    message = f"patch weights have shape {shape}; give one for each patch: (9,)"
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        Convolutional(p.grid, p.response, Real(np.ones(shape)))


@pytest.mark.parametrize("prior", [Convolutional, MultiOutputConvolutional])
def test_location_kernel_without_places_is_refused(prior):
    p = Problem(GRIDS["grey"])
    without = Located(p.inducing.patch, None)
    message = "location kernel was given patches without places; give the InducingPatches places"
    with pytest.raises(ValueError, match=message):
        prior(p.grid, p.response).Kuu(without)
    with pytest.raises(ValueError, match=message):
        eqx.filter_eval_shape(prior(p.grid, p.response).Kuf, without, jnp.asarray(p.images))
