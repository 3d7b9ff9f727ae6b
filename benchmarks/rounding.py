"""`python -m benchmarks rounding`: what rounded matrix products change in the end, the ELBO that training reaches.

On a GPU products that allow it are rounded to TF32 (`gp.linalg.rounded_matmul`). The same training, with the same
random numbers, is done as it is and with exact products. The fused kernels' gradients are rounded in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from tickgp.data.dataset import load_dataset
from tickgp.gp import builders
from tickgp.gp.likelihoods import Softmax
from tickgp.training.loop import inverse_decay, train


def answer(spec: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """For each model, the ELBO of MNIST, averaged over each fifth of `steps`, rounded and exact."""
    data = load_dataset("mnist", data_dir=None if spec["data_dir"] is None else Path(spec["data_dir"])).train
    images, labels = data.images, data.labels
    start: dict[str, Any] = {"num_inducing": spec["M"], "key": jax.random.key(0)}
    models = {
        "TICK": builders.tick(images[:5000], Softmax(10), **start),
        "two layers, correlated": builders.deep_tick(images[:5000], Softmax(10), sampling="correlated", **start),
    }
    found: dict[str, dict[str, list[float]]] = {}
    for name, model in models.items():
        found[name] = {}
        for kind, precision in (("rounded", None), ("exact", "highest")):
            with jax.default_matmul_precision(precision):
                events = train(
                    *(model, images, labels),
                    steps=spec["steps"],
                    batch_size=spec["B"],
                    learning_rate=inverse_decay(),
                    natural_gradients=False,
                    likelihood_samples=1,
                    report_every=max(1, spec["steps"] // 5),
                    key=jax.random.key(1),
                )
                found[name][kind] = [event.elbo for event in events]
    return found
