import jax.numpy as jnp
import numpy as np
import pytest
import reference

from tickgp.gp.means import Identity, IdentityConv, Linear, Zero, principal_components
from tickgp.gp.params import Real, trainable
from tickgp.gp.patches import PatchGrid

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize(
    ("shape", "patch", "stride"),
    [
        ((6, 5, 3), (3, 3), (1, 1)),
        ((6, 5, 3), (2, 4), (1, 1)),
        ((7, 6, 3), (4, 3), (2, 3)),
        ((4, 5, 3), (1, 1), (3, 2)),
        ((4, 5, 3), (4, 5), (1, 1)),
    ],
    ids=["odd", "even", "strides", "pixel", "whole"],
)
def test_identity_conv_equals_the_loops(shape, patch, stride, channels):
    images = np.random.default_rng(0).normal(size=(2, *shape))
    result = IdentityConv(PatchGrid(shape, patch, stride), channels)(jnp.asarray(images))
    expected = reference.identity_conv(images, *patch, channels, *stride)
    np.testing.assert_array_equal(result, expected.reshape(2, -1))


def test_identity_conv_of_single_pixels_is_the_identity():
    images = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 3, 2)))
    mean = IdentityConv(PatchGrid((4, 3, 2), (1, 1)), 2)
    np.testing.assert_array_equal(mean(images).reshape(images.shape), images)


@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 2, 1)])
def test_zero_and_identity(shape):
    x = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_array_equal(Zero(4)(jnp.asarray(x)), np.zeros((3, 4)))
    np.testing.assert_array_equal(Identity()(jnp.asarray(x)), [row.ravel() for row in x])


@pytest.mark.parametrize("shape", [(4, 6), (4, 3, 2, 1)])
def test_linear(shape):
    rng = np.random.default_rng(0)
    x, A, b = rng.normal(size=shape), rng.normal(size=(2, 6)), rng.normal(size=6)
    expected = [[sum(A[o, d] * (row.ravel()[d] - b[d]) for d in range(6)) for o in range(2)] for row in x]
    np.testing.assert_allclose(Linear(Real(A), Real(b))(jnp.asarray(x)), expected, rtol=1e-12)


@pytest.mark.parametrize(("N", "shape"), [(20, (6,)), (20, (3, 2, 1)), (5, (6,))])
def test_principal_components_are_the_leading_eigenvectors(N, shape):
    rng = np.random.default_rng(0)
    x = 3.0 + rng.normal(size=(N, *shape)) * np.linspace(1, 4, 6).reshape(shape)
    rows = x.reshape(N, 6)
    vectors = np.linalg.eigh(np.cov(rows.T))[1][:, ::-1][:, :3]
    expected = (rows - rows.mean(axis=0)) @ vectors
    result = np.asarray(principal_components(x, 3)(jnp.asarray(x)))
    np.testing.assert_allclose(result * np.sign(np.sum(result * expected, axis=0)), expected, rtol=1e-9, atol=1e-9)


def test_principal_components_are_fixed():
    mean = principal_components(np.random.default_rng(0).normal(size=(5, 4)), 2)
    marks = trainable(mean)
    assert marks.A.raw is False
    assert marks.b.raw is False


@pytest.mark.parametrize(("N", "D", "width"), [(20, 4, 5), (3, 9, 4)])
def test_too_many_principal_components_are_refused(N, D, width):
    message = f"{width} principal components were asked for, but {N} inputs of length {D} have at most {width - 1}"
    with pytest.raises(ValueError, match=message):
        principal_components(np.ones((N, D)), width)
