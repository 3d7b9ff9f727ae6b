"""`python -m benchmarks predict`: seconds to predict 10,000 images with M = 1000, when compiled."""

from __future__ import annotations

import time
from typing import Any

import jax

from benchmarks.contenders.ours import build
from benchmarks.rows import MNIST, Row, make_data
from benchmarks.timing import quartiles
from tickgp.gp.predict import predict

_TIMES = 5


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the first call, which compiles, and of the next ones."""
    row = Row("predict", MNIST, M=spec["num_inducing"], B=128, num_images=spec["num_images"])
    images, _ = make_data(row)
    model = build(row, images)
    seconds = []
    for i in range(1 + _TIMES):
        began = time.perf_counter()
        prediction = predict(model, images, num_samples=100, key=jax.random.key(i))
        prediction.probabilities.block_until_ready()
        seconds.append(time.perf_counter() - began)
    low, median, high = quartiles(seconds[1:])
    return {**spec, "first_s": seconds[0], "median_s": median, "quartiles_s": [low, high]}
