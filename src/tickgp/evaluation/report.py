"""A report: one page of HTML with its pictures inside, to look at without a network and to send to others."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

from tickgp.data.contents import Split
from tickgp.evaluation.handover import Rule
from tickgp.gp.models import DeepGP
from tickgp.gp.predict import Prediction


@dataclass(frozen=True)
class ReportContents:
    """What a report is made of."""

    model: DeepGP
    class_names: tuple[str, ...]
    test: Split
    prediction: Prediction
    """Of the test images."""
    metrics: dict[str, Any]
    """As in metrics.json."""
    history: list[dict[str, Any]]
    """The lines of metrics.jsonl."""
    rule: Rule
    """When to hand over to a person."""
    rule_source: str
    """Which held-out images it was chosen on: `test` or `validation`."""
    settings: str
    """config.toml."""
    manifest: dict[str, Any]
    """manifest.json."""


def render(contents: ReportContents) -> str:
    """The page."""
    # Drawing is loaded with the first page that is made, not by those who only name its contents.
    from tickgp.evaluation.findings import counted
    from tickgp.evaluation.markup import text
    from tickgp.evaluation.report_sections import headline, sections

    template = Template(files("tickgp.evaluation").joinpath("report_template.html").read_text(encoding="utf-8"))
    parts, metrics = sections(contents), contents.metrics
    return template.substitute(
        title=text(f"{metrics['model']} on {metrics['dataset']}"),
        lead=text(
            f"A report on {counted(metrics['test']['n'], 'test image')} of {len(contents.class_names)} classes, "
            f"after {counted(metrics['steps'], 'training step')}."
        ),
        headline=headline(contents),
        contents="".join(f'<li><a href="#{part.name}">{text(part.title)}</a></li>' for part in parts),
        sections="\n".join(part.html() for part in parts),
    )
