"""A run: training with its folder, from the first step or from where it stopped.

config.toml         every setting
metrics.jsonl       a line for each report of training
checkpoint/         the last states of training
metrics.json        the final metrics: equal runs have equal files
model.safetensors   the trained model, with what prediction needs
manifest.json       version, command, seed, dataset, libraries, device, seconds
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tickgp
from tickgp.data.dataset import Dataset, load_dataset
from tickgp.evaluation.bound import dataset_elbo
from tickgp.evaluation.metrics import bootstrap, evaluate
from tickgp.gp.models import DeepGP
from tickgp.gp.predict import predict
from tickgp.training.assemble import build_model, schedule
from tickgp.training.checkpoint import load_checkpoint, save_checkpoint
from tickgp.training.config import Config
from tickgp.training.loop import Progress, State, initial_state, train
from tickgp.training.tensors import load_tree, read_arrays, save_tree, write_whole
from tickgp.training.toml import format_config, parse_config, read_config


@dataclass(frozen=True)
class Note:
    """Something worth saying."""

    text: str


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step, with a checkpoint."""

    step: int


@dataclass(frozen=True)
class Finished:
    """Training ended; the folder is complete."""

    metrics: dict[str, Any]


def prepare(config: Config, folder: Path, *, overwrite: bool = False) -> None:
    """A new folder for a run with these settings; one that holds a run is refused."""
    if folder.exists() and {path.name for path in folder.iterdir()} - {"config.toml"}:
        if not overwrite:
            raise ValueError(
                f"{folder} is not empty; give another --out, --overwrite it, or continue it with --resume {folder}"
            )
        if not (folder / "config.toml").is_file():
            raise ValueError(f"{folder} holds no run, so it is not overwritten; give another --out")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.toml", format_config(config).encode())


def execute(
    folder: Path, *, stop: Callable[[], bool] = lambda: False, command: str = ""
) -> Iterator[Progress | Note | Stopped | Finished]:
    """Train as the folder's settings say, from its latest good checkpoint if it has one, to the end.

    When `stop` says so, or after the settings' `max_seconds`, it ends early with a checkpoint.
    """
    config, began = read_config(folder / "config.toml"), time.monotonic()
    settings, limit = config.training, config.training.max_seconds
    data = _load(config)
    yield from (Note(note) for note in data.notes)
    keys = _keys(config.seed)
    state, broken = _start(folder, config, data, keys["model"])
    yield from (Note(f"passed over a broken checkpoint: {reason}") for reason in broken)
    for event in train(
        state,
        data.train.images,
        data.train.labels,
        steps=settings.max_steps,
        batch_size=settings.batch_size,
        learning_rate=schedule(settings),
        num_samples=settings.num_samples,
        report_every=settings.report_every,
        stop=lambda: stop() or (limit is not None and time.monotonic() - began > limit),
        key=keys["training"],
    ):
        state = event.state
        if event.step % settings.report_every == 0:
            _append(folder / "metrics.jsonl", {"step": event.step, "elbo": event.elbo})
        if event.step % settings.checkpoint_every == 0:
            save_checkpoint(folder / "checkpoint", state)
        yield event
    save_checkpoint(folder / "checkpoint", state)
    if int(state.step) < settings.max_steps:
        yield Stopped(int(state.step))
        return
    metrics = _evaluate(config, data, state.model, int(state.step), keys)
    if not np.isfinite(metrics["elbo"]):
        raise ArithmeticError("the ELBO of the trained model is not finite; try a smaller learning rate, or float64")
    words = {"config": format_config(config), "class_names": json.dumps(data.class_names)}
    words["image_shape"] = json.dumps(data.train.images.shape[1:])
    save_tree(folder / "model.safetensors", state.model, words)
    write_whole(folder / "manifest.json", _json(_manifest(config, data, command, time.monotonic() - began)))
    write_whole(folder / "metrics.json", _json(metrics))
    yield Finished(metrics)


@dataclass(frozen=True)
class TrainedModel:
    """What a finished run leaves for prediction."""

    model: DeepGP
    config: Config
    class_names: tuple[str, ...]
    image_shape: tuple[int, ...]


def load_model(folder: Path) -> TrainedModel:
    """The trained model of a finished run."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ValueError(f"{folder} holds no trained model; finish the run with `tickgp train --resume {folder}`")
    _, words = read_arrays(path)
    config = parse_config(words["config"], str(path))
    class_names, image_shape = tuple(json.loads(words["class_names"])), tuple(json.loads(words["image_shape"]))
    like = _skeleton(config, image_shape, len(class_names))
    return TrainedModel(load_tree(path, like), config, class_names, image_shape)


def _load(config: Config) -> Dataset:
    settings = config.data
    return load_dataset(
        settings.dataset,
        data_dir=settings.data_dir,
        image_size=settings.image_size,
        grey=settings.grey,
        skip_bad_images=settings.skip_bad_images,
        test_share=settings.test_share,
        seed=config.seed,
    )


def _keys(seed: int) -> dict[str, jax.Array]:
    names = ("model", "training", "test", "elbo")
    return dict(zip(names, jax.random.split(jax.random.key(seed), len(names)), strict=True))


def _start(folder: Path, config: Config, data: Dataset, key: jax.Array) -> tuple[State, list[str]]:
    """The state to go on from, and what is broken; lines of metrics after it are taken back."""
    state = initial_state(build_model(config.model, data.train.images, len(data.class_names), key=key))
    lines, broken = folder / "metrics.jsonl", list[str]()
    if (folder / "checkpoint").is_dir():
        state, broken = load_checkpoint(folder / "checkpoint", state)
    if lines.is_file():
        kept = [line for line in lines.read_text().splitlines() if _step_of(line) <= int(state.step)]
        write_whole(lines, "".join(f"{line}\n" for line in kept).encode())
    return state, broken


def _step_of(line: str) -> int:
    """The step that a line of metrics.jsonl is about; a line cut short by a crash is about none."""
    try:
        return int(json.loads(line)["step"])
    except (json.JSONDecodeError, KeyError):
        return sys.maxsize


def _evaluate(config: Config, data: Dataset, model: DeepGP, steps: int, keys: dict[str, jax.Array]) -> dict[str, Any]:
    prediction = predict(model, data.test.images, key=keys["test"], num_samples=config.prediction_samples)
    p, labels = np.asarray(prediction.probabilities, float), data.test.labels
    return {
        "model": config.model.name,
        "dataset": data.name,
        "steps": steps,
        "elbo": dataset_elbo(model, data.train.images, data.train.labels, key=keys["elbo"]),
        "test": evaluate(p, labels),
        "interval": bootstrap(p, labels, seed=config.seed),
    }


def _manifest(config: Config, data: Dataset, command: str, seconds: float) -> dict[str, Any]:
    libraries = ("jax", "jaxlib", "equinox", "optax", "numpy")
    return {
        "tickgp": tickgp.__version__,
        "command": command,
        "seed": config.seed,
        "dataset": {"name": data.name, "sha256": data.sha256()},
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in libraries},
        "device": jax.devices()[0].device_kind,
        "seconds": round(seconds, 1),
    }


def _skeleton(config: Config, image_shape: tuple[int, ...], num_classes: int) -> DeepGP:
    """A model with the arrays that `config` describes, and any numbers in them."""
    noise = np.random.default_rng(0).random(
        (max(config.model.num_inducing, config.model.width), *image_shape), np.float32
    )
    plain = replace(config.model, initialiser="random")
    return build_model(plain, noise, num_classes, key=jax.random.key(0))


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
