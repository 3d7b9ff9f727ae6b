"""A fitted classifier as two files: `model.safetensors`, like that of a run, and the rest in `estimator.json`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from tickgp.estimator.inputs import Inputs, RowScale
from tickgp.files import write_whole
from tickgp.runs.folder import withdraw
from tickgp.runs.model_file import NAME, TrainedModel, load_model, save_model

_WORDS = "estimator.json"
_KINDS = "biufUO"
"""Kinds of labels that JSON can hold: true and false, numbers, names."""


@dataclass(frozen=True)
class Fitted:
    """All of a fitted classifier."""

    params: dict[str, Any]
    classes: Shaped[np.ndarray, " K"]
    feature_names: tuple[str, ...] | None
    inputs: Inputs
    trained: TrainedModel
    n_iter: int
    elbo: list[float]


def save_fitted(folder: Path, fitted: Fitted) -> None:
    """Write `fitted` to `folder`, which is made if need be, over another classifier if it holds one."""
    if (folder / "config.toml").exists():
        raise ValueError(f"{folder} holds a run of `tickgp train`, whose model would be lost; give another folder")
    if fitted.classes.dtype.kind not in _KINDS:
        raise ValueError(f"labels of type {fitted.classes.dtype} cannot be saved; fit with numbers or names")
    folder.mkdir(parents=True, exist_ok=True)
    withdraw(folder)
    save_model(folder, fitted.trained)
    words = {
        "params": fitted.params,
        "classes": {"type": fitted.classes.dtype.str, "values": fitted.classes.tolist()},
        "feature_names": fitted.feature_names,
        "scale": _scale_words(fitted.inputs.scale),
        "n_iter": fitted.n_iter,
        "elbo": fitted.elbo,
        "model_sha256": _sha256(folder),
    }
    write_whole(folder / _WORDS, json.dumps(words, default=_plain).encode())


def load_fitted(folder: Path) -> Fitted:
    """What `save_fitted` wrote."""
    path = folder / _WORDS
    if not path.is_file() or not (folder / NAME).is_file():
        raise ValueError(
            f"{folder} holds no saved classifier; give a folder written by TickClassifier.save, or bring the run of "
            "`tickgp train` back with tickgp.load_model"
        )
    try:
        words = json.loads(path.read_bytes())
        if words["model_sha256"] != _sha256(folder):
            raise ValueError(f"{folder / NAME} is not the one that {path} was saved with; save both again")
        return _fitted(words, load_model(folder))
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); use another copy") from None


def _fitted(words: dict[str, Any], trained: TrainedModel) -> Fitted:
    height, width, channels = trained.image_shape
    scale = words["scale"] and RowScale(*(np.array(words["scale"][part]) for part in ("mean", "deviation")))
    return Fitted(
        params={name: tuple(value) if isinstance(value, list) else value for name, value in words["params"].items()},
        classes=np.array(words["classes"]["values"], words["classes"]["type"]),
        feature_names=words["feature_names"] and tuple(words["feature_names"]),
        inputs=Inputs((height, width, channels), scale),
        trained=trained,
        n_iter=words["n_iter"],
        elbo=words["elbo"],
    )


def _scale_words(scale: RowScale | None) -> dict[str, list[float]] | None:
    return None if scale is None else {"mean": scale.mean.tolist(), "deviation": scale.deviation.tolist()}


def _sha256(folder: Path) -> str:
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's; a RandomState as None, for what it would draw next is not worth keeping."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.random.RandomState):
        return None
    raise TypeError(f"{value!r} cannot be written as JSON")
