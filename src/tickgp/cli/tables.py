"""Results as a person reads them. Names of files, classes and runs go in as `Text`: in a str, rich reads markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from tickgp.runs.compare import Compared
    from tickgp.runs.predict import Answer

_WIDE = 10_000
"""Characters in a line of a pipe or a file."""


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def metrics_table(title: str, metrics: dict[str, Any]) -> Table:
    """Error, NLL and ECE with their intervals."""
    test, interval = metrics["test"], metrics["interval"]
    table = Table("", "value", "95 % interval", title=_title(f"{title}: {test['n']} test images"))
    rows: dict[str, tuple[str, Callable[[float | None], str]]] = {
        "error": ("top1_error", percent),
        "top-2 error": ("top2_error", percent),
        "top-3 error": ("top3_error", percent),
        "NLL (nats per image)": ("nll", number),
        "NLL of the misses": ("nll_misses", number),
        "calibration error (ECE)": ("ece", number),
        "Brier score": ("brier", number),
    }
    for words, (name, show) in rows.items():
        if test[name] is not None:
            between = interval.get("ece_if_calibrated" if name == "ece" else name)
            shown = "" if between is None else f"{show(between[0])} to {show(between[1])}"
            shown += " if calibrated" if shown and name == "ece" else ""
            table.add_row(words, show(test[name]), shown)
    if metrics.get("elbo") is not None:
        table.add_row("ELBO", number(metrics["elbo"], 1), "")
    return table


def strangeness_table(metrics: dict[str, Any]) -> Table:
    """How well uncertainty tells the images from those of the run's own kind."""
    some = "unknown classes of " if {"hand_over", "unknown"} <= metrics.keys() else ""
    title = _title(f"telling {some}{metrics['dataset']} from {metrics['trained_on']}")
    table = Table("by", "AUROC", "false alarms at 95 % found", title=title)
    for name, area in metrics["auroc"].items():
        table.add_row(name.replace("_", " "), number(area), percent(metrics["fpr95"][name]))
    return table


def answers_table(answers: list[Answer], promised: bool) -> Table:
    """The answers; where nothing can be `promised` a person decides all, for that reason or since they are unusual."""
    table = Table(_path("image"), "label", "probability", "entropy", "decides")
    for answer in answers:
        why = ": unusual" if answer.unusual else ": unsure" if promised else ": no promise"
        decides = f"[bold]a person[/bold]{why}" if answer.hand_over else "the model"
        image, label = Text(answer.file), Text(answer.label)
        table.add_row(image, label, percent(answer.probability), number(answer.entropy, 3), decides)
    return table


def comparison_table(runs: list[Compared]) -> Table:
    """The runs; how their images were read only where they differ in it."""
    differ = len({run.images for run in runs}) > 1
    images = ["images"] if differ else []
    table = Table(_path("run"), "model", *images, "steps", "ELBO", "test error", "test NLL", "test ECE")
    for run in runs:
        scores = percent(run.test["top1_error"]), number(run.test["nll"]), number(run.test["ece"])
        model = (Text(run.model), Text(run.images or "as they are")) if differ else (Text(run.model),)
        table.add_row(Text(run.run), *model, str(run.steps), number(run.elbo, 1), *scores)
    return table


def data_table() -> Table:
    """The datasets that have a name, and the two kinds of one's own."""
    from tickgp.data.catalogue import CATALOGUE

    table = Table("name", "what", "train", "test", "image", "classes")
    for name, entry in CATALOGUE.items():
        size = "×".join(map(str, entry.image))
        table.add_row(name, entry.about, str(entry.train), str(entry.test), size, str(len(entry.class_names)))
    table.add_row("folder:PATH", "a folder of images, one subfolder for each class", "", "", "", "")
    table.add_row("npz:FILE", "arrays x and y in a NumPy file", "", "", "", "")
    return table


def handed_over(metrics: dict[str, Any]) -> Iterator[str]:
    """What the threshold of a run made of the images of an evaluation, or why it has none."""
    named = {"hand_over": "", "unknown": " of classes that it does not know"}
    found = {whose: metrics[name] for name, whose in named.items() if name in metrics}
    if reason := next((handed["reason"] for handed in found.values() if "reason" in handed), None):
        from tickgp.evaluation.handover import Rule

        yield str(Rule(reason=reason))
    for whose, handed in found.items():
        images = f"Of {handed['n']:,} images{whose}"
        if "share" in handed:
            yield f"{images} {_shares(handed)}."
        elif "unusual" in handed:
            yield f"{images} {percent(handed['unusual'])} are unlike the training images."


def _shares(handed: dict[str, Any]) -> str:
    rest = ""
    if handed.get("error_of_the_rest") is not None:
        rest = f"; of the rest {percent(handed['error_of_the_rest'])} are labelled wrongly"
        rest += f" (allowed: {100 * handed['max_error']:g} %, for images like those of training)"
    unlike = f"({percent(handed['unusual'])} because they are unlike the training images)"
    return f"{percent(handed['share'])} go to a person {unlike}{rest}"


def _path(title: str) -> Column:
    """A column of paths: folded where it is narrow, for cut short they would look alike."""
    return Column(title, overflow="fold")


def _title(words: str) -> Text:
    return Text(words, style="table.title")


def open_console(machine: bool = False) -> Console:
    """Where to talk to a person: not on standard output, when a machine reads that; lines of a pipe have no end."""
    console = Console(stderr=machine)
    return console if console.is_terminal else Console(stderr=machine, width=_WIDE)


def say(console: Console, text: str) -> None:
    """A sentence as it is, whatever stands in it; a terminal gets lines that end between words."""
    console.print(text, highlight=False, soft_wrap=not console.is_terminal, markup=False)
