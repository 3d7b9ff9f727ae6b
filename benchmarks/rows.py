"""What is measured: the sizes of each training step, and the images it is done on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Device = Literal["cpu", "gpu"]
PATCH, CLASSES = 5, 10
"""Patches are 5×5 with stride 1 in every layer; there are ten classes."""


@dataclass(frozen=True)
class LayerSizes:
    """A layer takes `image` (H, W, C) apart into P patches of length E and has `outputs` channels, or classes."""

    image: tuple[int, int, int]
    outputs: int

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image[0] - PATCH + 1, self.image[1] - PATCH + 1

    @property
    def P(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def E(self) -> int:
        return PATCH * PATCH * self.image[2]


@dataclass(frozen=True)
class Row:
    """One kind of step: a TICK-GP, or with `depth` above 1 a deep one, on batches of B images."""

    name: str
    image: tuple[int, int, int]
    M: int
    B: int
    depth: int = 1
    channels: int = 10
    sampling: Literal["marginal", "correlated"] = "marginal"
    num_images: int = 60_000
    target: str = ""

    def layers(self) -> Iterator[LayerSizes]:
        """Hidden layers first: each puts out an image of its grid's size."""
        image = self.image
        for _ in range(self.depth - 1):
            layer = LayerSizes(image, self.channels)
            yield layer
            image = (*layer.grid, self.channels)
        yield LayerSizes(image, CLASSES)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Row:
        return Row(**{**fields, "image": tuple(fields["image"])})


MNIST, CIFAR = (28, 28, 1), (32, 32, 3)

ROWS: dict[Device, tuple[Row, ...]] = {
    "gpu": (
        Row("tick-1000", MNIST, M=1000, B=128, target="≥ 600 it/s, ≤ 1 GB"),
        Row("tick-384", MNIST, M=384, B=32, target="≥ 1500 it/s"),
        Row("deep-mnist-marginal", MNIST, M=384, B=32, depth=2, target="≥ 800 it/s"),
        Row("deep-mnist-correlated", MNIST, M=384, B=32, depth=2, sampling="correlated", target="≥ 800 it/s"),
        Row("deep-cifar-marginal", CIFAR, M=384, B=64, depth=2, target="≥ 450 it/s"),
        Row("deep-cifar-correlated", CIFAR, M=384, B=64, depth=2, sampling="correlated", target="≥ 450 it/s"),
        Row("tick-96", (96, 96, 3), M=384, B=32, num_images=5_000, target="≤ 20 GB"),
    ),
    "cpu": (
        Row("cpu-1000", MNIST, M=1000, B=128, num_images=10_000, target="≥ 1.5 × gpflow, less memory"),
        Row("cpu-200", MNIST, M=200, B=32, num_images=10_000, target="≥ 1.5 × gpflow, less memory"),
    ),
}

TINY = (
    Row("tiny", (10, 10, 1), M=8, B=4, num_images=40),
    Row("tiny-deep", (12, 12, 1), M=8, B=4, depth=2, channels=2, sampling="correlated", num_images=40),
)
"""To see in seconds whether everything runs, on any device; measured only when asked for by name."""


def choose_rows(device: Device, only: tuple[str, ...] = ()) -> list[Row]:
    """The rows of `device`, or those of them, and of the tiny ones, that are named."""
    known = {row.name: row for row in (*ROWS[device], *TINY)}
    if unknown := [name for name in only if name not in known]:
        raise ValueError(f"there is no row {unknown[0]} for a {device}; choose among: {', '.join(known)}")
    return [known[name] for name in only] or list(ROWS[device])


def make_data(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """Random bytes (N, H, W, C), 60 % of them zero as in MNIST and no two images alike, and random labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(row.num_images, *row.image), dtype=np.uint8)
    images[images < 154] = 0
    return images, rng.integers(CLASSES, size=row.num_images)
