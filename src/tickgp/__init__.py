"""Calibrated image classification with deep convolutional Gaussian processes.

Names are loaded when they are first used, so that `import tickgp` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickgp.data.contents import Split
    from tickgp.data.dataset import Dataset, load_dataset
    from tickgp.estimator.classifier import TickClassifier
    from tickgp.evaluation.bound import dataset_elbo
    from tickgp.gp.builders import (
        conv,
        convolutional,
        deep_conv,
        deep_se,
        deep_tick,
        pointwise,
        se,
        tick,
    )
    from tickgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
    from tickgp.gp.models import DeepGP
    from tickgp.gp.objective import elbo
    from tickgp.gp.params import Normal, freeze, trainable, unfreeze
    from tickgp.gp.predict import Prediction, predict, predict_moments
    from tickgp.gp.warm_start import warm_start
    from tickgp.runs.model_file import load_model
    from tickgp.runs.predict import predict_files
    from tickgp.training.loop import fit, train
    from tickgp.training.tensors import load_tree, save_tree

__version__ = "0.1.0"

_HOMES = {
    "tickgp.data.contents": ("Split",),
    "tickgp.data.dataset": ("Dataset", "load_dataset"),
    "tickgp.estimator.classifier": ("TickClassifier",),
    "tickgp.evaluation.bound": ("dataset_elbo",),
    "tickgp.gp.builders": (
        "conv",
        "convolutional",
        "deep_conv",
        "deep_se",
        "deep_tick",
        "pointwise",
        "se",
        "tick",
    ),
    "tickgp.gp.likelihoods": ("Bernoulli", "Gaussian", "RobustMax", "Softmax"),
    "tickgp.gp.models": ("DeepGP",),
    "tickgp.gp.objective": ("elbo",),
    "tickgp.gp.params": ("Normal", "freeze", "trainable", "unfreeze"),
    "tickgp.gp.predict": ("Prediction", "predict", "predict_moments"),
    "tickgp.gp.warm_start": ("warm_start",),
    "tickgp.runs.model_file": ("load_model",),
    "tickgp.runs.predict": ("predict_files",),
    "tickgp.training.loop": ("fit", "train"),
    "tickgp.training.tensors": ("load_tree", "save_tree"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tickgp' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
