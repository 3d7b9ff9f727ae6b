"""The parameters of `TickClassifier`: what each may be, and the settings of a run that they stand for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from tickgp.estimator.inputs import count_distinct
from tickgp.training.config import Config, DataConfig, ModelConfig, ModelName, TrainingConfig

REPORT_EVERY = 100
_PATCHES = 16
"""Patches along the shorter side of an image that a laptop can work through."""

_WHOLE = [Interval(Integral, 1, None, closed="left")]
_SHARE = [Interval(Real, 0, 1, closed="neither")]

CONSTRAINTS: dict[str, list[Any]] = {
    "model": [StrOptions({"auto", *get_args(ModelName)})],
    **dict.fromkeys(("depth", "hidden_stride", "num_inducing"), _WHOLE),
    **dict.fromkeys(("max_steps", "batch_size", "prediction_samples"), _WHOLE),
    "patch_size": [*_WHOLE, None],
    "stride": [*_WHOLE, None],
    "likelihood": [StrOptions({"softmax", "robustmax", "bernoulli"})],
    "standardise": ["boolean"],
    "image_shape": [tuple, list, None],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "patience": [Interval(Integral, REPORT_EVERY, None, closed="left"), None],
    "validation_share": [Interval(Real, 0, 1, closed="left")],
    **dict.fromkeys(("max_error", "confidence"), _SHARE),
    "random_state": ["random_state"],
    "verbose": ["boolean"],
}
"""What scikit-learn checks the parameters against."""


def run_config(params: Mapping[str, Any], name: ModelName, images: np.ndarray, seed: int) -> Config:
    """The settings of a run that trains the model `name` on these images."""
    of_model = _pick(params, ("depth", "patch_size", "hidden_stride", "likelihood", "standardise"))
    of_training = _pick(params, ("max_steps", "batch_size", "learning_rate", "patience"))
    double = bool(jnp.result_type(float) == jnp.float64)
    return Config(
        seed=seed,
        data=DataConfig("arrays given to fit", **_pick(params, ("validation_share",))),
        model=ModelConfig(name, float64=double, **_sizes(params, name, images), **of_model),
        training=TrainingConfig(report_every=REPORT_EVERY, **of_training),
        **_pick(params, ("prediction_samples", "max_error", "confidence")),
    )


def _sizes(params: Mapping[str, Any], name: ModelName, images: np.ndarray) -> dict[str, Any]:
    """Settings that depend on the images: no more of anything than they have, and strides that skip no pixel."""
    sizes = _pick(params, ("num_inducing", "stride"))
    if name.endswith("se"):
        sizes["num_inducing"] = count_distinct(images, sizes["num_inducing"])
    if name == "deep-se":
        sizes["width"] = min(ModelConfig.width, len(images), images[0].size)
    if sizes["stride"] is None:
        sizes["stride"] = 1 if name.endswith("se") else _stride(min(images.shape[1:3]), params["patch_size"])
    return sizes


def _stride(side: int, patch_size: int | None) -> int:
    return min(math.ceil(side / _PATCHES), patch_size or (5 if side >= _PATCHES else 3))


def _pick(params: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Some of the parameters; numpy's numbers, as a grid of parameters may hold them, as Python's."""
    return {name: v.item() if isinstance(v := params[name], np.generic) else v for name in names}
