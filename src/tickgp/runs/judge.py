"""How good a model is: in passing while it is trained, and in full at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tickgp.data.contents import Split
from tickgp.data.dataset import Dataset
from tickgp.evaluation.handover import HeldOut
from tickgp.evaluation.metrics import Outcomes, evaluate, intervals
from tickgp.gp.models import DeepGP
from tickgp.gp.predict import Prediction, predict
from tickgp.runs.model_file import TrainedModel
from tickgp.training.config import Config


def some_of_each(held_out: Split, train: Split, number: int, seed: int) -> tuple[Split, Split]:
    """At most `number` images of each, of all classes: those of a folder lie class by class."""
    rng = np.random.default_rng(seed)

    def some(split: Split) -> Split:
        return split.take(rng.permutation(len(split))[:number])

    return some(held_out), some(train)


def watch(config: Config, model: DeepGP, watched: Split) -> tuple[float, float]:
    """NLL and error, from few draws where draws are dear. NaN while some probability is: training may get over it."""
    numbers = {"num_samples": 100 if len(model.layers) == 1 else 10, "likelihood_samples": 1}
    try:
        prediction = predict(model, watched.images, key=jax.random.key(config.seed), **numbers)
    except ArithmeticError:
        return math.nan, math.nan
    outcomes = Outcomes.of(prediction.probabilities, watched.labels)
    return outcomes.nll(), outcomes.top_error()


def overfitting(history: Sequence[dict[str, Any]]) -> int | None:
    """The step of the least NLL of held-out images in lines of metrics.jsonl, if it has risen by a fifth since then.

    And if that of training images has fallen meanwhile: the model fits these too closely. The ELBO does not tell, since
    what is learned with it, such as lengthscales and the weights of patches, is not paid for in it as q(u) is.
    """
    lines = [line for line in history if None not in (line["nll"], line["train_nll"])]
    if not lines:
        return None
    best, last = min(lines, key=lambda line: line["nll"]), lines[-1]
    rose = last["nll"] > 1.2 * best["nll"] and last["nll"] > best["nll"] + 0.05
    return best["step"] if rose and last["train_nll"] < best["train_nll"] else None


def held_out(trained: TrainedModel, data: Dataset, test: Prediction) -> HeldOut:
    """Of the validation images, or if there are none of the test images, whose prediction is `test`.

    Copies are left out: of training images a model is surer than of new ones.
    """
    source, prediction = "test", test
    if data.validation is not None:
        source, prediction = "validation", trained.predict(data.validation.images)
    distance = np.asarray(prediction.distance)
    return HeldOut.of(source, prediction.probabilities, distance, data.held_out.labels, data.is_counted())


def final_metrics(config: Config, data: Dataset, steps: int, bound: float | None, p: np.ndarray) -> dict[str, Any]:
    """The content of metrics.json."""
    return {
        "model": config.model.name,
        "dataset": data.name,
        "steps": steps,
        "elbo": bound,
        "test": evaluate(p, data.test.labels),
        "interval": intervals(p, data.test.labels, seed=config.seed),
    }
