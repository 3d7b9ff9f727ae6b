"""What is done with a finished run: evaluate, predict, compare, info, report; and the list of datasets."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.text import Text
from tyro.conf import Positional, arg

from tickgp.cli.device import Device, set_up
from tickgp.cli.tables import (
    answers_table,
    comparison_table,
    data_table,
    handed_over,
    metrics_table,
    open_console,
    say,
    strangeness_table,
)
from tickgp.errors import UsageError

Run = Positional[Annotated[Path, arg(metavar="RUN", help="Folder of a finished run.")]]
Model = Positional[
    Annotated[Path, arg(metavar="RUN", help="Folder of a finished run, or mnist-tick, which is included.")]
]
MaxError = Annotated[
    float | None, arg(help="Largest share of wrong decisions allowed; by default the run's own setting, normally 0.01.")
]
Confidence = Annotated[
    float | None, arg(help="Confidence of that promise; by default the run's own setting, normally 0.95.")
]
MaxUnusual = Annotated[
    float | None,
    arg(help="Share of held-out images that counts as unusual; by default the run's own setting, normally 0.01."),
]
DATASET = "A name that `tickgp data` lists, folder:PATH or npz:FILE."
Json = Annotated[bool, arg(help="Print one JSON object and nothing else.")]
Where = Annotated[Device, arg(help="Where to compute; by default a GPU if there is one.")]


def evaluate(
    run: Model,
    /,
    dataset: Annotated[str | None, arg(metavar="NAME", help=f"{DATASET} By default the run's own.")] = None,
    data_dir: Annotated[Path | None, arg(metavar="DIR", help="Folder with the publishers' files.")] = None,
    skip_bad_images: Annotated[bool, arg(help="Leave out images of a folder that cannot be read.")] = False,
    max_error: MaxError = None,
    confidence: Confidence = None,
    max_unusual: MaxUnusual = None,
    json: Json = False,
    device: Where = None,
) -> None:
    """Metrics of a run on its test images, or on data it was not trained on."""
    _compute_like(run, device)
    from tickgp.runs.evaluate import evaluate_run

    limits = {"max_error": max_error, "level": confidence, "max_unusual": max_unusual}
    evaluation = evaluate_run(run, dataset, data_dir=data_dir, skip_bad_images=skip_bad_images, **limits)
    metrics, console = evaluation.metrics, open_console(json)
    for note in evaluation.notes:
        say(console, note)
    if json:
        print(json_module.dumps(metrics))
        return
    if metrics["test"] is not None:
        console.print(metrics_table(f"{metrics['model']} on {metrics['dataset']}", metrics))
    if "auroc" in metrics:
        console.print(strangeness_table(metrics))
    for words in handed_over(metrics):
        say(console, words)


def predict(
    run: Model,
    images: Positional[
        Annotated[
            tuple[Path, ...],
            arg(metavar="IMAGE|DIR", help="Images, or folders of them.", help_behavior_hint="(at least one)"),
        ]
    ],
    /,
    max_error: MaxError = None,
    confidence: Confidence = None,
    max_unusual: MaxUnusual = None,
    csv: Annotated[bool, arg(help="Print comma-separated values and nothing else.")] = False,
    json: Json = False,
    skip_bad_images: Annotated[bool, arg(help="Leave out images that cannot be read.")] = False,
    device: Where = None,
) -> None:
    """What images show, how sure the model is, and whether to hand them over to a person."""
    if csv and json:
        raise UsageError("both --csv and --json were given; choose one")
    from tickgp.runs.predict import as_csv, find_pictures, other_sizes, predict_files

    files = find_pictures(images)
    _compute_like(run, device)
    from tickgp.runs.model_file import load_model

    trained, console = load_model(run), open_console(csv or json)
    rule = trained.rule(max_error, confidence, max_unusual)
    with console.status("") as status:
        done = lambda number: status.update(f"{number:,} of {len(files):,} images")
        answers, problems = predict_files(trained, files, rule=rule, skip_bad_images=skip_bad_images, done=done)
    for problem in problems:
        say(console, f"left out: {problem}")
    if not answers:
        raise ValueError("none of the images can be read; give others")
    if (note := other_sizes(trained, files)) is not None:
        say(console, note)
    if json:
        shown = {"images": [asdict(answer) for answer in answers], "hand_over": rule.as_json()}
        print(json_module.dumps(shown))
        return
    if csv:
        print(as_csv(answers), end="")
    else:
        console.print(answers_table(answers, promised=rule.threshold is not None))
    if not csv or rule.threshold is None:
        person = sum(answer.hand_over for answer in answers)
        say(console, f"For a person: {person} of {len(answers)}. {rule}")


def compare(
    runs: Positional[
        Annotated[
            tuple[Path, ...],
            arg(metavar="RUN", help="Folders of finished runs.", help_behavior_hint="(at least two)"),
        ]
    ],
    /,
    json: Json = False,
) -> None:
    """Runs in the order of their ELBO, which needs no held-out images, with their test metrics beside it."""
    from tickgp.runs.compare import MISLED, MIXED, NO_ELBO, READ_DIFFERENTLY, compare_runs, misleads

    compared, console = compare_runs(runs), open_console(json)
    if json:
        print(json_module.dumps({"runs": [asdict(run) for run in compared]}))
    else:
        console.print(comparison_table(compared))
    if any(run.elbo is None for run in compared):
        say(console, NO_ELBO)
    if {run.sampling for run in compared if run.elbo is not None} == {None, "marginal"}:
        say(console, MIXED)
    if len({run.images for run in compared}) > 1:
        say(console, READ_DIFFERENTLY)
    if misleads(compared):
        say(console, MISLED)


def info(run: Model, /, json: Json = False) -> None:
    """What a run has learned, in words."""
    _compute_like(run, "cpu")
    from tickgp.evaluation.words import describe
    from tickgp.runs.model_file import load_model

    trained, console = load_model(run), open_console(json)
    facts = describe(trained.model, rows=trained.takes_rows) | {"Hand-over": str(trained.rule())}
    if json:
        print(json_module.dumps(facts))
        return
    for topic, text in facts.items():
        console.print(Text.assemble((topic, "bold"), f": {text}"))


def report(
    run: Run,
    /,
    dataset: Annotated[
        str | None, arg(metavar="NAME", help="Where the run's images are now; by default where they were.")
    ] = None,
    data_dir: Annotated[Path | None, arg(metavar="DIR", help="Folder with the publishers' files.")] = None,
    json: Json = False,
    device: Where = None,
) -> None:
    """Make the report of a run anew: report.html in its folder."""
    _compute_like(run, device)
    from tickgp.runs.report import make_report

    path = make_report(run, data_dir, dataset)
    if json:
        print(json_module.dumps({"report": str(path)}))
    else:
        say(open_console(), f"the report is {path}")


def data(json: Json = False) -> None:
    """List the datasets."""
    if not json:
        open_console().print(data_table())
        return
    from tickgp.data.catalogue import CATALOGUE

    print(json_module.dumps({name: list(entry.class_names) for name, entry in CATALOGUE.items()}))


def _compute_like(run: Path, device: Device) -> None:
    """With the precision that the model of this run was trained in."""
    from tickgp.runs.model_file import load_config

    set_up(device, float64=load_config(run).model.float64)
