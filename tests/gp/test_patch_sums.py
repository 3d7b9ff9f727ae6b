"""Sums over patches: values and gradients of the plain sums, in groups of images and by fused kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tickgp.gp import patch_sums, patch_sums_gpu, patch_sums_groups
from tickgp.gp.convolution import PatchResponse
from tickgp.gp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from tickgp.gp.patch_sums_gpu import tiles
from tickgp.gp.patches import Located

N, P, M, E = 6, 5, 4, 7
KERNELS = {kernel.__name__: kernel for kernel in (SquaredExponential, Matern12, Matern32, Matern52)}
each_kernel = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in ("Matern12", "Matern32") else []) for name in KERNELS],
)


@pytest.fixture(params=["small groups", pytest.param("one group", marks=pytest.mark.slow), "fused"])
def way(request, monkeypatch):
    """Fused kernels are run by an interpreter, with tiles that divide neither M nor P."""
    if request.param == "fused":
        monkeypatch.setattr(patch_sums, "_implementation", lambda x: patch_sums_gpu)
        for name, value in {"INTERPRET": True, "INDUCING": 3, "PATCHES": 2, "TILES": 13}.items():
            monkeypatch.setattr(tiles, name, value)
    else:
        monkeypatch.setitem(patch_sums_groups.AT_ONCE, "cpu", 2 * M * P if request.param == "small groups" else 10**6)


def problem(name, ard):
    rng = np.random.default_rng(0)
    response = PatchResponse(KERNELS[name](1.7, rng.uniform(1, 2, E) if ard else 1.3), Matern32(1.0, 2.0))
    Z = Located(jnp.asarray(rng.normal(size=(M, E))), jnp.asarray(rng.uniform(0, 5, (M, 2))))
    patches, places = (jnp.asarray(rng.normal(size=shape)) for shape in ((N, P, E), (P, 2)))
    return response, Z, patches, places, jnp.asarray(rng.normal(size=P))


def plain_cross(response, Z, patches, places, w):
    """Σ_p w_p k_g(Z, x_n[p]), an image after the other."""
    return jnp.stack([response(Z, Located(x, places)) @ w for x in patches], axis=1)


def plain_self(response, patches, places, w):
    return jnp.stack([w @ response(Located(x, places), Located(x, places)) @ w for x in patches])


def assert_same_with_gradients(plain, fused, arguments, seed):
    """Of a random combination of the outputs, with respect to every argument."""
    weights = jnp.asarray(np.random.default_rng(seed).normal(size=jax.eval_shape(plain, *arguments).shape))
    both = [jax.jit(jax.value_and_grad(lambda a, f=f: jnp.sum(weights * f(*a))))(arguments) for f in (plain, fused)]
    for a, b in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)


@each_kernel
def test_cross_sums(name, float64, way):
    """Matérn-5/2 with a lengthscale for each pixel."""
    arguments = problem(name, ard=name == "Matern52")
    assert_same_with_gradients(plain_cross, lambda r, *rest: r.cross_sums(*rest), arguments, 1)


@each_kernel
def test_self_sums(name, float64, way):
    response, _, *rest = problem(name, False)
    assert_same_with_gradients(plain_self, lambda r, *a: r.self_sums(*a), (response, *rest), 2)


def test_without_places_every_patch_counts_alike(float64):
    response, Z, patches, places, w = problem("SquaredExponential", False)
    invariant = PatchResponse(response.patch)
    bare = Located(Z.patch, None)
    expected = plain_cross(invariant, bare, patches, places, w)
    np.testing.assert_allclose(invariant.cross_sums(bare, patches, places, w), expected, rtol=1e-10)
    np.testing.assert_allclose(
        invariant.self_sums(patches, places, w), plain_self(invariant, patches, places, w), rtol=1e-10
    )


def test_far_from_the_origin_single_precision_keeps_its_digits():
    """Distances of order 1 between numbers near 1000: moved to their mean, five digits are left of seven."""
    response, Z, patches, places, w = problem("SquaredExponential", False)
    far = lambda a: (np.asarray(a, np.float64) + 1000).astype(np.float32)
    moved = [jnp.asarray(far(a) - np.float32(1000)) for a in (Z.patch, patches)]
    places, w = jnp.asarray(places, jnp.float32), jnp.asarray(w, jnp.float32)
    near = response.cross_sums(Located(moved[0], jnp.asarray(Z.place)), moved[1], places, w)
    given = response.cross_sums(
        Located(jnp.asarray(far(Z.patch)), jnp.asarray(Z.place)), jnp.asarray(far(patches)), places, w
    )
    np.testing.assert_allclose(given, near, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("images", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_images_that_fill_no_whole_group(images, float64, monkeypatch):
    """Seven of them, in groups of at most so many."""
    response, Z, _, places, w = problem("SquaredExponential", False)
    patches = jnp.asarray(np.random.default_rng(1).normal(size=(7, P, E)))
    monkeypatch.setitem(patch_sums_groups.AT_ONCE, "cpu", images * P * P)
    cross = lambda r, *rest: r.cross_sums(*rest)
    assert_same_with_gradients(plain_cross, cross, (response, Z, patches, places, w), 3)
    assert_same_with_gradients(plain_self, lambda r, *rest: r.self_sums(*rest), (response, patches, places, w), 4)


def test_groups_are_as_large_as_fits():
    """With 2**16 values of k at a time: all images, or a power of two of them, whatever their number."""
    sizes = [
        patch_sums_groups._group_size(N, per_image)
        for N, per_image in ((64, 2**14), (64, 2**20), (60, 2**12), (127, 2**13), (7, 2**13), (7, 10_000))
    ]
    assert sizes == [4, 1, 16, 8, 7, 4]
