"""PyTorch: `pytorch_elbo` compiled by `torch.compile`, in CUDA graphs if it can be, with the fused Adam, on a GPU.

`torch` computes matrix products in float32 as we do; `torch-tf32` may round what goes into them to 10 bits.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import math

import numpy as np
import torch
import torch._inductor.config

from benchmarks.contenders.pytorch_elbo import Parameters, Tensor, elbo, identity_mean, patches
from benchmarks.rows import Device, Row

_VARIANCE, _HIDDEN_VARIANCE, _LENGTHSCALE, _LOCATION = 5.0, 1.0, 1.0, 3.0


def initial_parameters(row: Row, images: np.ndarray, device: str) -> Parameters:
    """Our start: patches of images and their places, q(v) = N(0, I), and nearly a point in hidden layers."""
    rng, parameters = np.random.default_rng(0), []
    x = torch.as_tensor(images[:500]).float() / 255
    layers = list(row.layers())
    for sizes in layers:
        hidden = sizes is not layers[-1]
        pick, place = rng.integers(len(x), size=row.M), rng.integers(sizes.P, size=row.M)
        start = {
            "Z": patches(x[pick])[np.arange(row.M), place],
            "variance": _raw(_HIDDEN_VARIANCE if hidden else _VARIANCE),
            "lengthscale": _raw(_LENGTHSCALE),
            "q_mu": torch.as_tensor(rng.normal(size=(sizes.outputs, row.M)) * (0.01 if hidden else 0)),
            "q_sqrt": torch.eye(row.M).repeat(sizes.outputs, 1, 1) * (1e-3 if hidden else 1),
        }
        if not hidden:
            start["places"] = torch.as_tensor(np.stack(np.divmod(place, sizes.grid[1]), axis=1))
            start["weights"], start["location"] = torch.ones(sizes.P), _raw(_LOCATION)
        parameters.append({n: t.to(device, torch.float32).clone().requires_grad_() for n, t in start.items()})
        x = identity_mean(x, sizes)
    return parameters


def _raw(value: float) -> Tensor:
    """The inverse of `positive`."""
    return torch.tensor(math.log(value - 1e-6))


class PyTorch:
    """Training with Adam on batches that are gathered, as bytes, inside the compiled loss."""

    def __init__(self, row: Row, device: str, images: np.ndarray, labels: np.ndarray):
        self.versions, self.note = {"torch": torch.__version__}, ""
        self._row, self._device, self._done = row, device, 0
        self._parameters = initial_parameters(row, images, device)
        tensors = [tensor for layer in self._parameters for tensor in layer.values()]
        self._adam = torch.optim.Adam(tensors, lr=0.01, fused=True)
        self._images, self._labels = torch.as_tensor(images).to(device), torch.as_tensor(labels).to(device)
        self._order = torch.randperm(row.num_images, device=device)
        self._loss = self._plain_loss

    def prepare(self, steps: int) -> None:
        pass

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self._done:
                self._step()
            else:
                self._first_step()
            self._done += 1
        if self._device == "cuda":
            torch.cuda.synchronize()

    def peak(self) -> int | None:
        return torch.cuda.max_memory_allocated() if self._device == "cuda" else None

    def _step(self) -> None:
        first = self._done % (self._row.num_images // self._row.B) * self._row.B
        self._adam.zero_grad(set_to_none=True)
        self._loss(self._parameters, self._order[first : first + self._row.B]).backward()
        self._adam.step()

    def _first_step(self) -> None:
        """The first step, in the fastest way that works."""
        torch._inductor.config.triton.cudagraph_or_error = True  # not silently without them
        ways = {
            "in CUDA graphs": torch.compile(self._plain_loss, mode="reduce-overhead"),
            "without CUDA graphs": torch.compile(self._plain_loss),
        }
        for note, loss in ways.items():
            self.note, self._loss = note, loss
            try:
                self._step()
                self._step()  # what is wrong with a graph shows when it is replayed
                return
            except Exception as error:  # whatever goes wrong inside a compiler
                failure = type(error).__name__
        self._loss, self.note = self._plain_loss, f"eager: torch.compile failed ({failure})"
        self._step()

    def _plain_loss(self, parameters: Parameters, batch: Tensor) -> Tensor:
        x = self._images[batch].float() / 255
        normal = lambda *shape: torch.randn(shape, device=x.device)
        return -elbo(self._row, parameters, x, self._labels[batch], normal)


def start(name: str, row: Row, device: Device, images: np.ndarray, labels: np.ndarray) -> PyTorch:
    torch.set_float32_matmul_precision("high" if name == "torch-tf32" else "highest")
    return PyTorch(row, {"gpu": "cuda", "cpu": "cpu"}[device], images, labels)
