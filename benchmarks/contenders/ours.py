"""This library: the models of `tickgp.gp.builders`, trained by `tickgp.training.loop`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

import tickgp
from benchmarks.rows import CLASSES, Device, Row
from tickgp.gp.builders import deep_tick, tick
from tickgp.gp.likelihoods import Softmax
from tickgp.gp.models import DeepGP
from tickgp.training.loop import Progress, State, train

_FOREVER = 2**30


def build(row: Row, images: np.ndarray) -> DeepGP:
    """The model of a row, with inducing patches from the first 2,000 images."""
    few, likelihood, key = images[:2000], Softmax(CLASSES), jax.random.key(0)
    if row.depth == 1:
        return tick(few, likelihood, num_inducing=row.M, key=key)
    return deep_tick(
        few,
        likelihood,
        depth=row.depth,
        channels=row.channels,
        num_inducing=row.M,
        sampling=row.sampling,
        key=key,
    )


class Ours:
    """Training by `train`, one report for each block of steps.

    By Adam and with one draw, as the peers, or as it is by default: natural gradients for the last q(u), 16 draws.
    """

    def __init__(self, row: Row, device: Device, images: np.ndarray, labels: np.ndarray, *, as_peers: bool):
        self.versions = {"tickgp": tickgp.__version__, "jax": jax.__version__, "jaxlib": version("jaxlib")}
        self.note = ""
        self._row, self._device, self._data = row, device, (images, labels)
        self._state: DeepGP | State = build(row, images)
        self._events: Iterator[Progress] = iter(())
        self._block = 0
        self._how: dict[str, Any] = {"natural_gradients": False, "likelihood_samples": 1} if as_peers else {}

    def prepare(self, steps: int) -> None:
        """A new length of block takes a new call of `train`, which reports at multiples of that length."""
        if steps == self._block:
            return
        self._events = train(
            self._state,
            *self._data,
            steps=_FOREVER,
            batch_size=self._row.B,
            report_every=steps,
            key=jax.random.key(1),
            **self._how,
        )
        if self._block:
            self._next()
        self._block = steps

    def run(self, steps: int) -> None:
        self._next()

    def peak(self) -> int | None:
        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] if self._device == "gpu" else None

    def _next(self) -> None:
        self._state = next(self._events).state


def start(name: str, row: Row, device: Device, images: np.ndarray, labels: np.ndarray) -> Ours:
    return Ours(row, device, images, labels, as_peers=name == "tickgp")
