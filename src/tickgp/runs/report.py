"""What a run leaves for a person: a report, everything about it on one page, and a table of its test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tickgp.data.dataset import Dataset
from tickgp.errors import UsageError
from tickgp.evaluation.handover import Rule
from tickgp.evaluation.report import ReportContents, render
from tickgp.files import write_whole
from tickgp.gp.predict import Prediction
from tickgp.runs.folder import load_own, read_history, read_json
from tickgp.runs.model_file import TrainedModel, load_model
from tickgp.runs.places import without_folders
from tickgp.runs.predict import answers_of, as_csv
from tickgp.training.toml import format_config


def make_report(folder: Path, data_dir: Path | None = None, dataset: str | None = None) -> Path:
    """The report of a finished run, made anew; returns its path. `dataset` names the place its images have now."""
    trained = load_model(folder)
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} holds a model alone; a report needs the folder of a run of `tickgp train`")
    data = load_own(folder, trained.config, data_dir, dataset)
    metrics = read_json(folder / "metrics.json")
    return write_report(folder, trained, data, trained.predict(data.test.images), metrics)


def write_report(
    folder: Path, trained: TrainedModel, data: Dataset, prediction: Prediction, metrics: dict[str, Any]
) -> Path:
    """`report.html`, from the content of metrics.json and the other files of a run."""
    contents = ReportContents(
        model=trained.model,
        class_names=trained.class_names,
        test=data.test,
        prediction=prediction,
        metrics=metrics,
        history=read_history(folder, last=metrics["steps"]),  # it may be trained further just now
        rule=trained.rule(),
        rule_source=trained.held_out.source if trained.held_out else "test",
        settings=format_config(without_folders(trained.config)),
        manifest=read_json(folder / "manifest.json"),
    )
    path = folder / "report.html"
    _write(path, render(contents))
    return path


def write_predictions(folder: Path, data: Dataset, prediction: Prediction, rule: Rule) -> None:
    """`predictions.csv`: of each test image what it is, what the model says, how surely, and who decides."""
    names = [data.test.name(i) for i in range(len(data.test))]
    answers = answers_of(prediction, names, data.class_names, rule)
    _write(folder / "predictions.csv", as_csv(answers, true=[data.class_names[label] for label in data.test.labels]))


def _write(path: Path, content: str) -> None:
    """As UTF-8; what a file name has of other bytes is spelled out."""
    write_whole(path, content.encode(errors="backslashreplace"))
