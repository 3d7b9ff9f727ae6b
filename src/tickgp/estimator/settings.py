"""The parameters of `TickClassifier`: what each may be, and the settings of a run that they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from tickgp.estimator.inputs import count_distinct
from tickgp.runs.model_file import ARRAYS
from tickgp.training.config import Config, DataConfig, ModelConfig, ModelName, TrainingConfig, applies

REPORT_EVERY = 100

_WHOLE = [Interval(Integral, 1, None, closed="left")]
_SHARE = [Interval(Real, 0, 1, closed="neither")]

CONSTRAINTS: dict[str, list[Any]] = {
    "model": [StrOptions({"auto", *get_args(ModelName)})],
    **dict.fromkeys(("depth", "num_inducing"), _WHOLE),
    **dict.fromkeys(("max_steps", "batch_size", "prediction_samples"), _WHOLE),
    "patch_size": [*_WHOLE, None],
    "stride": [*_WHOLE, None],
    "hidden_stride": [*_WHOLE, None],
    "likelihood": [StrOptions({"softmax", "robustmax", "bernoulli"})],
    "standardise": ["boolean"],
    "image_shape": [tuple, list, None],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "patience": [Interval(Integral, REPORT_EVERY, None, closed="left"), None],
    "validation_share": [Interval(Real, 0, 1, closed="left")],
    **dict.fromkeys(("max_error", "confidence"), _SHARE),
    "max_unusual": [Interval(Real, 0, 1, closed="left")],
    "random_state": ["random_state"],
    "verbose": ["boolean"],
}
"""What scikit-learn checks the parameters against."""


def run_config(params: Mapping[str, Any], name: ModelName, images: np.ndarray, seed: int) -> Config:
    """The settings of a run that trains the model `name` on these images.

    Parameters that this model does not use are ignored, as in scikit-learn, so that a grid may go over models.
    """
    names = ("depth", "patch_size", "stride", "hidden_stride", "likelihood", "standardise")
    of_model = _pick(params, [setting for setting in names if applies(setting, name)])
    of_training = _pick(params, ("max_steps", "batch_size", "learning_rate", "patience"))
    double = bool(jnp.result_type(float) == jnp.float64)
    return Config(
        seed=seed,
        data=DataConfig(ARRAYS, **_pick(params, ("validation_share",))),
        model=ModelConfig(name, float64=double, **_sizes(params, name, images), **of_model),
        training=TrainingConfig(report_every=REPORT_EVERY, **of_training),
        **_pick(params, ("prediction_samples", "max_error", "confidence", "max_unusual")),
    )


def _sizes(params: Mapping[str, Any], name: ModelName, images: np.ndarray) -> dict[str, Any]:
    """Settings that depend on the images: of whole ones or rows, no more inducing points than differ.

    Inducing patches are not capped: how many differ is known only when the model is built, which refuses too many.
    """
    sizes = _pick(params, ("num_inducing",))
    if name.endswith("se"):
        sizes["num_inducing"] = count_distinct(images, sizes["num_inducing"])
    if name == "deep-se":
        sizes["width"] = min(ModelConfig.width, len(images), images[0].size)
    return sizes


def _pick(params: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Some of the parameters; numpy's numbers, as a grid of parameters may hold them, as Python's."""
    return {name: v.item() if isinstance(v := params[name], np.generic) else v for name in names}
