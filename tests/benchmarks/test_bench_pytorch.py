"""The PyTorch peer is fair only if it computes what we compute: the same bound, and the same gradients of it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.contenders.ours import build
from benchmarks.rows import TINY, Row, make_data
from tickgp.gp.models import DeepGP
from tickgp.gp.objective import elbo

torch = pytest.importorskip("torch", reason="torch is not installed")
from benchmarks.contenders import pytorch, pytorch_elbo  # noqa: E402

NOISE = 0.7
ROWS = {
    "one layer": TINY[0],
    "marginal": replace(TINY[1], sampling="marginal"),
    "correlated": TINY[1],
    "colour": replace(TINY[0], image=(9, 10, 3)),
}


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All of our noise is one number, however and in whatever order it is drawn."""
    with jax.enable_x64(True):
        monkeypatch.setattr(jax.random, "normal", lambda key, shape=(), *_, **__: jnp.full(shape, NOISE))
        yield


def raw_arrays(model: DeepGP) -> list[dict[str, Any]]:
    """Our parameters, or gradients with respect to them, by the names that they have in PyTorch."""
    layers = []
    for layer in model.layers:
        gp, response = layer.gp, layer.gp.kernel.covariance.response
        arrays = {
            "Z": gp.inducing[0].Z,
            "q_mu": gp.q.q_mu,
            "q_sqrt": gp.q.q_sqrt,
            "variance": response.patch.variance,
            "lengthscale": response.patch.lengthscale,
        }
        if layer is model.layers[-1]:
            arrays["places"], arrays["weights"] = gp.inducing[0].places, gp.kernel.covariance.weights
            arrays["location"] = response.location.lengthscale
        layers.append({name: np.asarray(parameter.raw) for name, parameter in arrays.items()})
    return layers


def shaken(model: DeepGP) -> DeepGP:
    """Away from the start, where many gradients are equal or 0."""
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    rng = np.random.default_rng(0)
    moved = [leaf + 0.1 * rng.normal(size=leaf.shape) if leaf.ndim else leaf for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, moved), rest)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_bound_and_gradients_are_ours(row: Row, same_noise: None) -> None:
    images, labels = make_data(row)
    model = shaken(build(row, images))
    x, y = images[: row.B], labels[: row.B]

    def ours(model: DeepGP) -> jax.Array:
        return elbo(model, jnp.asarray(x), jnp.asarray(y), row.num_images, key=jax.random.key(0))

    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(ours))(model)

    parameters = [{n: torch.tensor(a, requires_grad=True) for n, a in layer.items()} for layer in raw_arrays(model)]
    constant = lambda *shape: torch.full(shape, NOISE, dtype=torch.float64)
    pixels = torch.as_tensor(x).double() / 255
    theirs = pytorch_elbo.elbo(row, parameters, pixels, torch.as_tensor(y), constant)
    theirs.backward()

    assert theirs.item() == pytest.approx(float(value), rel=1e-9)
    for layer, expected in zip(parameters, raw_arrays(gradient), strict=True):
        for name, array in expected.items():
            np.testing.assert_allclose(
                layer[name].grad, array, rtol=1e-6, atol=1e-8 * np.abs(array).max(), err_msg=name
            )


def test_starts_where_we_start() -> None:
    """But for the patches drawn, the peer's first parameters are those of our builders."""
    row = TINY[1]
    images, _ = make_data(row)
    ours = raw_arrays(build(row, images))
    for layer, expected in zip(pytorch.initial_parameters(row, images, "cpu"), ours, strict=True):
        assert {name: tuple(t.shape) for name, t in layer.items()} == {n: a.shape for n, a in expected.items()}
        for name in ("variance", "lengthscale", "q_sqrt", "location", "weights"):
            if name in expected:
                np.testing.assert_allclose(layer[name].detach(), expected[name], rtol=1e-6)
