"""The report of a run: everything about it on one page."""

from __future__ import annotations

from pathlib import Path

from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.evaluation.report import ReportContents, render
from tickgp.gp.predict import Prediction
from tickgp.runs.folder import load_own, read_history, read_json
from tickgp.runs.model_file import TrainedModel, load_model
from tickgp.training.tensors import write_whole


def make_report(folder: Path, data_dir: Path | None = None, dataset: str | None = None) -> Path:
    """The report of a finished run, made anew; returns its path. `dataset` names the place its images have now."""
    trained = load_model(folder)
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} holds a model alone; a report needs the folder of a run of `tickgp train`")
    data = load_own(folder, trained.config, data_dir, dataset)
    return write_report(folder, trained, data, trained.predict(data.test.images))


def write_report(folder: Path, trained: TrainedModel, data: Dataset, prediction: Prediction) -> Path:
    """`report.html` of a run whose other files are there."""
    contents = ReportContents(
        model=trained.model,
        class_names=trained.class_names,
        test=data.test,
        prediction=prediction,
        metrics=read_json(folder / "metrics.json"),
        history=read_history(folder),
        threshold=trained.threshold_or_reason(),
        threshold_source=trained.held_out.source if trained.held_out else "test",
        settings=(folder / "config.toml").read_text(),
        manifest=read_json(folder / "manifest.json"),
    )
    path = folder / "report.html"
    write_whole(path, render(contents).encode())
    return path
