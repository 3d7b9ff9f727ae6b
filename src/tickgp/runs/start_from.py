"""A run that starts from the trained model of another."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import jax
import numpy as np

from tickgp.data.catalogue import CATALOGUE
from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.gp.models import DeepGP
from tickgp.gp.warm_start import warm_start
from tickgp.runs.folder import own_data, trained_on
from tickgp.runs.model_file import load_config, load_model, strides
from tickgp.training.assemble import initialiser
from tickgp.training.config import Config

_UNKNOWN = "; make sure that it was not trained on images that are held out now: its own are not here to tell"


def inherited(config: Config, fresh: DeepGP, data: Dataset, key: jax.Array) -> tuple[DeepGP, np.ndarray | None, str]:
    """`fresh` with the numbers of the model that it is to start from, made a layer deeper if need be, and a sentence.

    Between them digests of the images that this was trained on, if they are known.
    Refused are models for other images, of other shapes, and those that were trained on images held out now.
    """
    folder, new = config.training.start_from, config.model
    assert folder is not None
    if load_config(folder).model.float64 != new.float64:
        given = "without" if new.float64 else "with"
        raise UsageError(f"the model of {folder} has another precision; start from it {given} --float64")
    source = load_model(folder)
    if source.image_shape != (shape := data.train.images.shape[1:]):
        there, here = ("×".join(map(str, sizes)) for sizes in (source.image_shape, shape))
        raise UsageError(f"the model of {folder} is for images of {there}, and these are of {here}; start from another")
    if (seen := _seen(folder, source.config, config)) is not None:
        _check_unseen(folder, seen, data)
    trained = source.model
    if len(trained.layers) == 1 < len(fresh.layers):
        raise UsageError(
            f"the model of {folder} has a single layer, and a deep one starts from a deep one; train it without "
            "--start-from"
        )
    if len(fresh.layers) == len(trained.layers) + 1:
        trained = warm_start(
            trained,
            data.train.images,
            stride=new.hidden_stride,
            q_mu=new.hidden_q_mu,
            initialiser=initialiser(new),
            key=key,
        )
    pairs = {field.name: (getattr(source.config.model, field.name), getattr(new, field.name)) for field in fields(new)}
    said = lambda value: "by default" if value is None else value
    differing = "; ".join(
        f"{name.replace('_', '-')} {said(a)} there, {said(b)} here" for name, (a, b) in pairs.items() if a != b
    )
    there, here = strides(trained), strides(fresh)
    if there != here:
        raise UsageError(
            f"patches of the model of {folder} stand {there} pixels apart, layer by layer, and {here} with these "
            "settings; say it with --stride and --hidden-stride as it is there"
        )
    shapes = [[leaf.shape for leaf in jax.tree.leaves(model)] for model in (fresh, trained)]
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"the model of {folder} does not fit these settings ({differing or 'other images or classes'}); "
            "start from a run with the same settings of the model, or with one layer less"
        )
    where = f"{folder} ({differing})" if differing else folder
    note = (
        f"starts from the trained model of {where}; its numbers take the place of settings of the start, such as "
        f"variances and lengthscales{'' if seen is not None else _UNKNOWN}"
    )
    return jax.tree.unflatten(jax.tree.structure(fresh), jax.tree.leaves(trained)), seen, note


def _seen(folder: Path, before: Config, config: Config) -> np.ndarray | None:
    """Digests of the images that the model in `folder` was trained on; None if that is not known here."""
    if (kept := trained_on(folder)) is not None:
        return kept
    if before.data.dataset in CATALOGUE and before.data.dataset != config.data.dataset:
        return None  # these might have to be downloaded
    own, _ = own_data(folder, before, config.data.dataset, config.data.data_dir)
    return None if own is None else own.train.digests


def _check_unseen(folder: Path, seen: np.ndarray, data: Dataset) -> None:
    """Images held out now must not be among those that `folder` was trained on."""
    parts = data.parts[1:]
    counted = [np.isin(part.digests, seen) & ~part.is_in(data.train) for part in parts]
    if number := sum(int(each.sum()) for each in counted):
        raise UsageError(
            f"{folder} was trained on {number} of the {sum(map(len, parts))} images that are held out now; start from "
            "it with its seed, shares and numbers of images, or, if there are more images than then, put those to "
            "train on and those to test on into folders train and test yourself"
        )
