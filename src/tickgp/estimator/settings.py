"""The parameters of `TickClassifier`: what each may be, and the settings of a run that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np

from tickgp.errors import UsageError
from tickgp.estimator.inputs import count_distinct
from tickgp.runs.model_file import ARRAYS
from tickgp.training.config import Config, DataConfig, Likelihood, ModelConfig, ModelName, TrainingConfig, applies

REPORT_EVERY = 100


@dataclass(frozen=True)
class _Rule:
    """What a parameter may be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def or_none(self) -> _Rule:
        return _Rule(f"{self.words}, or None", lambda value: value is None or self.holds(value))


def _number(kind: type, words: str, holds: Callable[[Any], bool]) -> _Rule:
    is_one = lambda value: isinstance(value, kind) and not isinstance(value, bool)
    return _Rule(words, lambda value: is_one(value) and bool(holds(value)))


def _from(least: int) -> _Rule:
    return _number(Integral, f"a whole number of at least {least}", lambda value: value >= least)


def _one_of(*names: str) -> _Rule:
    return _Rule(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


_SHARE = _number(Real, "a number above 0 and below 1", lambda value: 0 < value < 1)
_SHARE_OR_0 = _number(Real, "a number from 0 to below 1", lambda value: 0 <= value < 1)
_YES_OR_NO = _Rule("True or False", lambda value: isinstance(value, bool | np.bool_))

_RULES = {
    "model": _one_of("auto", *get_args(ModelName)),
    **dict.fromkeys(("depth", "num_inducing", "max_steps", "batch_size", "prediction_samples"), _from(1)),
    **dict.fromkeys(("patch_size", "stride", "hidden_stride"), _from(1).or_none()),
    "likelihood": _one_of(*get_args(Likelihood)),
    "image_shape": _Rule("a tuple", lambda value: isinstance(value, tuple | list)).or_none(),
    "learning_rate": _number(Real, "a number above 0", lambda value: value > 0),
    "patience": _from(REPORT_EVERY).or_none(),
    **dict.fromkeys(("max_error", "confidence"), _SHARE),
    **dict.fromkeys(("validation_share", "max_unusual"), _SHARE_OR_0),
    **dict.fromkeys(("standardise", "verbose"), _YES_OR_NO),
}


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse what no model can be made with, whatever the images."""
    for name, rule in _RULES.items():
        if not rule.holds(params[name]):
            raise UsageError(f"{name} is {params[name]!r}; give {rule.words}")


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
