"""The evidence lower bound of a TICK-GP, or a deep one, in plain PyTorch: the same equations as ours.

Written as one would for `torch.compile`: patches unfolded, squared distances by one matrix product, sums over patches
left to fusion, and no check that waits for the device.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.rows import PATCH, LayerSizes, Row

Tensor = Any
Parameters = list[dict[str, Tensor]]
"""For each layer Z, q_mu, q_sqrt, variance and lengthscale; for the last also places, weights and location.

The positive ones are stored as logarithms, q_sqrt as a full matrix of which the lower triangle counts.
"""
Normal = Callable[..., Tensor]
"""Standard normal noise of a shape."""

JITTER = 1e-5


def elbo(row: Row, parameters: Parameters, x: Tensor, y: Tensor, normal: Normal) -> Tensor:
    """(num_images / B) Σ_n log p(y_n | f(x_n)) for one draw of f, minus the KL divergence of every layer."""
    layers = list(row.layers())
    for sizes, p in zip(layers[:-1], parameters[:-1], strict=True):
        x = _hidden(row, sizes, p, x, normal)
    mean, variance = _class_scores(layers[-1], parameters[-1], x)
    f = mean + variance.sqrt() * normal(*mean.shape)
    fit = torch.log_softmax(f, dim=1).gather(1, y[:, None]).sum()
    return row.num_images / len(x) * fit - sum(_kl(p["q_mu"], p["q_sqrt"].tril()) for p in parameters)


def _class_scores(sizes: LayerSizes, p: dict[str, Tensor], images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (B, K) of f(x) = (1/P) Σ_p w_p g(x[p], l(p))."""
    variance, w = positive(p["variance"]), p["weights"] / sizes.P
    x, z = patches(images) / positive(p["lengthscale"]), p["Z"] / positive(p["lengthscale"])
    rows, columns = torch.meshgrid(*(torch.arange(n, device=x.device) for n in sizes.grid), indexing="ij")
    places = torch.stack([rows.flatten(), columns.flatten()], dim=1).to(x.dtype)
    location = lambda a, b: _matern32(a, b, positive(p["location"]))

    d = _distances(z, x.flatten(0, 1)).view(len(z), *x.shape[:2])
    Kuf = variance * (torch.exp(-d / 2) * (location(p["places"], places) * w)[:, None, :]).sum(2)
    Kff = variance * (torch.exp(-_distances(x, x) / 2) * (location(places, places) * w[:, None] * w)).sum((1, 2))
    Kuu = variance * torch.exp(-_distances(z, z) / 2) * location(p["places"], p["places"])

    A, residual = _project(Kuu, Kuf, Kff, variance)
    spread = p["q_sqrt"].tril().mT @ A
    return (p["q_mu"] @ A).T, (residual + spread.square().sum(1)).T


def _hidden(row: Row, sizes: LayerSizes, p: dict[str, Tensor], images: Tensor, normal: Normal) -> Tensor:
    """A draw (B, rows, columns, channels) of f_p(x) = centre of x[p] + g(x[p])."""
    variance, B = positive(p["variance"]), len(images)
    x, z = patches(images) / positive(p["lengthscale"]), p["Z"] / positive(p["lengthscale"])
    Kuf = variance * torch.exp(-_distances(z, x.flatten(0, 1)) / 2)
    Kuu = variance * torch.exp(-_distances(z, z) / 2)
    A, residual = _project(Kuu, Kuf, variance.expand(Kuf.shape[1]), variance)
    q_mu, q_sqrt = p["q_mu"], p["q_sqrt"].tril()
    if row.sampling == "marginal":
        variances = residual + (q_sqrt.mT @ A).square().sum(1)
        f = q_mu @ A + variances.sqrt() * normal(*variances.shape)
    else:
        v = q_mu[:, None, :] + normal(len(q_mu), B, row.M) @ q_sqrt.mT
        through_u = torch.einsum("mbp,lbm->lbp", A.view(row.M, B, sizes.P), v).flatten(1)
        f = through_u + residual.sqrt() * normal(*through_u.shape)
    return identity_mean(images, sizes) + f.view(-1, B, *sizes.grid).permute(1, 2, 3, 0)


def _project(Kuu: Tensor, Kuf: Tensor, Kff: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """A = Lu⁻¹ Kuf, and the variance Kff − diag AᵀA that u leaves unexplained."""
    jitter = JITTER * variance * torch.eye(len(Kuu), device=Kuu.device, dtype=Kuu.dtype)
    Lu = torch.linalg.cholesky_ex(Kuu + jitter).L
    A = torch.linalg.solve_triangular(Lu, Kuf, upper=False)
    return A, torch.maximum(Kff - A.square().sum(0), JITTER * Kff)


def _kl(m: Tensor, L: Tensor) -> Tensor:
    """Σ_l KL[N(m_l, L_l L_lᵀ) || N(0, I)]."""
    log_diagonal = L.diagonal(dim1=1, dim2=2).abs().log().sum()
    return 0.5 * (m.square().sum() + L.square().sum() - m.numel()) - log_diagonal


def identity_mean(images: Tensor, sizes: LayerSizes) -> Tensor:
    """The pixel at the centre of each patch; output channels beyond those of the image are 0."""
    (rows, columns), edge = sizes.grid, (PATCH - 1) // 2
    centres = images[:, edge : edge + rows, edge : edge + columns, : sizes.outputs]
    return torch.nn.functional.pad(centres, (0, sizes.outputs - centres.shape[3]))


def patches(images: Tensor) -> Tensor:
    """(B, P, E): row by row, and inside a patch row, column, channel."""
    rows, columns = images.shape[1] - PATCH + 1, images.shape[2] - PATCH + 1
    pixels = [images[:, i : i + rows, j : j + columns] for i in range(PATCH) for j in range(PATCH)]
    return torch.stack(pixels, dim=3).flatten(3).flatten(1, 2)


def positive(raw: Tensor) -> Tensor:
    return 1e-6 + torch.exp(raw)


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i − b_j|² for all i and j."""
    squares = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return (squares - 2 * a @ b.mT).clamp_min(0)


def _matern32(a: Tensor, b: Tensor, lengthscale: Tensor) -> Tensor:
    r2 = ((a[:, None, :] - b) / lengthscale).square().sum(2)
    apart = r2 > 0  # the root's gradient is infinite at 0
    s = math.sqrt(3) * torch.where(apart, torch.where(apart, r2, 1).sqrt(), 0)
    return (1 + s) * torch.exp(-s)
