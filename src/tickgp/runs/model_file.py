"""A trained model as one file, with all that prediction needs: nothing else of a run has to be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tickgp.errors import UsageError
from tickgp.evaluation.familiarity import Familiarity
from tickgp.evaluation.handover import HeldOut, Rule
from tickgp.gp.convolution import Convolutional, MultiOutputConvolutional
from tickgp.gp.models import DeepGP
from tickgp.gp.patches import PatchGrid
from tickgp.gp.predict import Prediction, predict
from tickgp.runs.folder import lacks
from tickgp.runs.places import without_folders
from tickgp.training.assemble import build_model
from tickgp.training.config import Config
from tickgp.training.tensors import check_format, load_tree, read_some, read_words, save_tree
from tickgp.training.toml import format_config, parse_config

NAME = "model.safetensors"
ARRAYS = "arrays given to fit"
"""The dataset of a model that was fitted in Python."""
_INCLUDED = Path(__file__).parents[1] / "pretrained"


@dataclass(frozen=True)
class TrainedModel:
    """A model, the settings it was made with, and what its numbers stand for."""

    model: DeepGP = field(repr=False)
    config: Config
    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    familiarity: Familiarity | None = field(default=None, repr=False)
    """Where its training images lie, for the distance of others from them; None if no images were held out."""
    held_out: HeldOut | None = field(default=None, repr=False)
    """How sure it was of images it was not trained on; None if there were none."""

    def predict(
        self, images: np.ndarray, *, num_samples: int | None = None, likelihood_samples: int = 64
    ) -> Prediction:
        """Class probabilities of images (N, H, W, C) of `image_shape`: always the same for the same image.

        The numbers of draws: see `gp.predict.predict`; by default `num_samples` is that of its settings.
        """
        prediction = predict(
            self.model,
            images,
            key=jax.random.fold_in(jax.random.key(self.config.seed), 1),
            num_samples=self.config.prediction_samples if num_samples is None else num_samples,
            likelihood_samples=likelihood_samples,
        )
        if self.familiarity is None:
            return prediction
        distance = self.familiarity.distance(self.model, images, np.asarray(prediction.labels))
        return replace(prediction, distance=jnp.asarray(distance))

    def rule(
        self, max_error: float | None = None, level: float | None = None, max_unusual: float | None = None
    ) -> Rule:
        """Which images the model decides by itself; by default as its settings allow."""
        return _rule(self.config, self.held_out, max_error, level, max_unusual)

    @property
    def takes_rows(self) -> bool:
        """Whether it was fitted to rows of features, which are scaled by the `TickClassifier` that it was saved by."""
        return self.config.data.dataset == ARRAYS and self.image_shape[:2] == (1, 1)


def save_model(folder: Path, trained: TrainedModel) -> None:
    """`trained` as the file `model.safetensors` of `folder`: arrays by their names, the rest as JSON and TOML.

    The arrays of the held-out images are those that other thresholds can be chosen from.
    Where the data folder was, and the run that it started from, is left out: the file is for other machines too.
    """
    words = {
        "config": format_config(without_folders(trained.config)),
        "class_names": json.dumps(trained.class_names),
        "image_shape": json.dumps(trained.image_shape),
        "hand_over": json.dumps(_hand_over(trained)),
        "strides": strides(trained.model),
    }
    familiarity = None if trained.held_out is None else trained.familiarity
    held_out = _arrays(trained.held_out)
    save_tree(folder / NAME, {"model": trained.model, "familiarity": familiarity, "held_out": held_out}, words)


def load_model(folder: str | Path) -> TrainedModel:
    """The trained model of a finished run, of `TickClassifier.save`, or by its name one that comes with the library."""
    words = _read_words(Path(folder))
    check_precision(words.config)
    shape, num_classes = words.image_shape, len(words.class_names)
    skeleton = _skeleton(words.config, shape, num_classes)
    if words.strides != (now := strides(skeleton)):
        raise ValueError(
            f"{words.path} was made by a version of tickgp whose default strides were {words.strides} for such "
            f"images, and are {now} now; train it again, or use that version"
        )
    familiarity = None if words.held_out is None else Familiarity.like(skeleton, shape, num_classes)
    held_out = _arrays(words.held_out)
    like: dict[str, Any] = {"model": skeleton, "familiarity": familiarity, "held_out": held_out}
    trees = load_tree(words.path, like)
    return TrainedModel(trees["model"], words.config, words.class_names, shape, trees["familiarity"], words.held_out)


def check_precision(config: Config) -> None:
    """JAX computes in one precision at a time, and it must be that of the settings."""
    if config.model.float64 != jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"the settings ask for {'double' if config.model.float64 else 'single'} precision; set "
            f'jax.config.update("jax_enable_x64", {config.model.float64}) first'
        )


def grids(model: DeepGP) -> list[PatchGrid]:
    """Where the patches of each layer stand; none for layers on whole images."""
    covariances = [layer.gp.kernel.covariances[0] for layer in model.layers]
    return [c.grid for c in covariances if isinstance(c, Convolutional | MultiOutputConvolutional)]


def strides(model: DeepGP) -> str:
    """How far apart patches stand in each layer, in words; empty for layers on whole images."""
    return ", ".join("×".join(map(str, dict.fromkeys(grid.stride))) for grid in grids(model))


def load_config(folder: Path) -> Config:
    """The settings that the model in this folder was trained with."""
    return _read_words(folder).config


def load_rule(folder: Path) -> Rule:
    """Which images the model of a finished run decides by itself."""
    words = _read_words(folder)
    return _rule(words.config, words.held_out)


def included() -> list[str]:
    """The names of the trained models that come with the library."""
    return sorted(path.parent.name for path in _INCLUDED.glob(f"*/{NAME}"))


@dataclass(frozen=True)
class _Words:
    """What a model file says beside its arrays."""

    path: Path
    config: Config
    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]
    strides: str
    held_out: HeldOut | None


def _read_words(folder: Path) -> _Words:
    """Those of the model file of a folder."""
    path = _model_path(folder)
    words = read_words(path)
    check_format(path, words)
    if missing := {"config", "class_names", "image_shape", "hand_over", "strides"} - words.keys():
        raise ValueError(f"{path} does not say its {', '.join(sorted(missing))}; was it made by another program?")
    config = parse_config(words["config"], str(path))
    with _legible(path):
        names, shape = tuple(map(str, json.loads(words["class_names"]))), json.loads(words["image_shape"])
        held_out = _held_out(json.loads(words["hand_over"]), path)
        return _Words(path, config, names, tuple(map(int, shape)), words["strides"], held_out)


@contextmanager
def _legible(path: Path) -> Iterator[None]:
    """What cannot be read in the words of a file is damage."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: its words cannot be read ({error!r}); use another copy") from None


def _model_path(folder: Path) -> Path:
    """The model file of a folder, or of a model that comes with the library."""
    if not folder.is_dir() and str(folder) in included():
        folder = _INCLUDED / folder
    path = folder / NAME
    if not folder.is_dir():
        names = "".join(f", or {name}, which comes with tickgp" for name in included())
        raise UsageError(f"there is no folder {folder}; give that of a run{names}")
    if not path.is_file():
        raise lacks(folder, NAME)
    return path


def _rule(
    config: Config,
    held_out: HeldOut | None,
    max_error: float | None = None,
    level: float | None = None,
    max_unusual: float | None = None,
) -> Rule:
    """From the held-out images; with these limits, and with those of the settings for what is None."""
    if held_out is None:
        return Rule(reason="this model has seen no held-out images, so no threshold can be chosen; train it with some")
    return held_out.rule(
        config.max_error if max_error is None else max_error,
        config.confidence if level is None else level,
        config.max_unusual if max_unusual is None else max_unusual,
    )


def _hand_over(trained: TrainedModel) -> dict[str, Any] | None:
    """The threshold, or why there is none, and what the held-out images are."""
    if (held_out := trained.held_out) is None:
        return None
    return {"threshold": trained.rule().as_json(), "source": held_out.source, "images": len(held_out.right)}


def _arrays(held_out: HeldOut | None) -> dict[str, np.ndarray] | None:
    """In single precision, which limits are kept in."""
    if held_out is None:
        return None
    kinds = {"confidence": np.float32, "right": bool, "distance": np.float32}
    return {name: np.asarray(getattr(held_out, name), kind) for name, kind in kinds.items()}


def _held_out(words: dict[str, Any] | None, path: Path) -> HeldOut | None:
    if words is None:
        return None
    confidence, right, distance = read_some(path, "held_out.confidence", "held_out.right", "held_out.distance")
    return HeldOut(words["source"], confidence, right, distance)


def _skeleton(config: Config, image_shape: tuple[int, ...], num_classes: int) -> DeepGP:
    """A model with the arrays that `config` describes, and any numbers in them."""
    number = max(config.model.num_inducing, config.model.width)
    noise = np.random.default_rng(0).random((number, *image_shape), np.float32)
    plain = replace(config.model, initialiser="random")
    return build_model(plain, noise, num_classes, key=jax.random.key(0))
