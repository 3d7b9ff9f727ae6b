"""The sections of a report, in the order a reader asks for them: how good, which images, what was learned, how made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from tickgp.evaluation import findings, plots
from tickgp.evaluation.findings import counted, percent
from tickgp.evaluation.handover import share_and_error
from tickgp.evaluation.markup import Section, details, paragraph, picture, plot, table, text
from tickgp.evaluation.plots_images import image_with_bars
from tickgp.evaluation.report import ReportContents
from tickgp.evaluation.report_model import model_sections

_MOST_EXAMPLES = 12
_FEW_EXAMPLES = 6
_TIMES = {1: "once", 2: "twice"}

_NUMBERS = {
    "top1_error": ("Error", "share of images whose predicted class is wrong"),
    "top2_error": ("Top-2 error", "true class not among the two most probable"),
    "top3_error": ("Top-3 error", "true class not among the three most probable"),
    "nll": ("NLL", "mean −log probability of the true class, in nats: lower is better"),
    "nll_misses": ("NLL of the misses", "the same over the wrongly labelled images: how surely it errs"),
    "ece": ("ECE", "mean gap between confidence and share right, in 15 bins"),
    "brier": ("Brier score", "squared distance from certainty of the true class, summed over classes"),
    "aurc": ("AURC", "mean error of the images kept, over all shares handed over"),
}

_BOUND = "lower bound of the log probability of all training labels"
_NOT_QUITE = ", but from marginal samples of hidden layers, so that it may lie above it"

_KEY = (
    '<p class="key"><span class="swatch predicted"></span> predicted class &ensp; <span class="swatch true"></span> '
    'true class &ensp; <span class="swatch both"></span> both &ensp; <span class="swatch other"></span> others</p>'
)


@dataclass(frozen=True)
class _Outcome:
    """The test images as arrays: what was said of each, and whether it is right."""

    probabilities: Float[np.ndarray, "N K"]
    labels: Int[np.ndarray, " N"]
    predicted: Int[np.ndarray, " N"]
    confidence: Float[np.ndarray, " N"]
    distance: Float[np.ndarray, " N"]
    right: Bool[np.ndarray, " N"]

    @classmethod
    def of(cls, contents: ReportContents) -> _Outcome:
        p, labels = np.asarray(contents.prediction.probabilities, float), np.asarray(contents.test.labels).astype(int)
        predicted = np.asarray(contents.prediction.labels).astype(int)
        distance = np.asarray(contents.prediction.distance, float)
        return cls(p, labels, predicted, p.max(axis=1), distance, predicted == labels)


def headline(contents: ReportContents) -> str:
    """The three things to know, before any figure."""
    outcome = _Outcome.of(contents)
    found = [
        findings.mistakes(contents.metrics, outcome.labels),
        findings.calibration(outcome.confidence, outcome.right),
        findings.handing_over(contents.rule),
    ]
    return f'<div class="findings">\n{"".join(map(_finding, found))}</div>'


def _finding(finding: findings.Finding) -> str:
    number, unit = text(finding.number), text(finding.unit)
    return (
        f'<div class="finding"><span class="number">{number}</span> <span class="unit">{unit}</span>\n'
        f"{paragraph(finding.text)}</div>\n"
    )


def sections(contents: ReportContents) -> list[Section]:
    """All sections that there is something to show for."""
    outcome = _Outcome.of(contents)
    made = [
        _reliability(contents, outcome),
        _hand_over(contents, outcome),
        _uncertain(contents, outcome),
        _unusual(contents, outcome),
        _misclassified(contents, outcome),
        _confusion(contents, outcome),
        _training(contents.history),
        *model_sections(contents.model),
        _numbers(contents),
        _origin(contents),
    ]
    return [section for section in made if section is not None]


def _reliability(contents: ReportContents, outcome: _Outcome) -> Section:
    figure = plots.reliability_diagram(outcome.probabilities, outcome.labels)
    ece = f"{100 * contents.metrics['test']['ece']:.1f} %"
    body = paragraph(
        "Images are put together by how sure the model was. Each dot says how many of them it got right: on the dashed "
        "line its confidence can be taken at its word, above it is too modest, below too bold. The thin lines are 95 % "
        "intervals: where there are few images (see the bars) a dot says little."
    )
    alt = f"Reliability diagram: share of images that is right against confidence; calibration error {ece}."
    return Section("reliability", "Can its confidence be believed?", body + plot(figure, alt))


def _hand_over(contents: ReportContents, outcome: _Outcome) -> Section:
    rule = contents.rule
    figure = plots.handover_curve(outcome.probabilities, outcome.labels, outcome.distance, rule)
    body = paragraph(
        "The images it is least sure of go to a person first. The curve says how many of the others are labelled "
        "wrongly: it should fall fast."
    )
    alt = "Error of the images kept against the share of images handed over to a person."
    if rule.threshold is not None:
        share, error = share_and_error(rule.hand_over(outcome.confidence, outcome.distance), outcome.right)
        unusual = float(rule.unusual(outcome.distance).mean())
        wrong = "" if error is None else f", and {percent(error)} of the others are labelled wrongly"
        if wrong and contents.rule_source == "test":
            wrong += "; the threshold was chosen on these very images, so that of new ones it may be more"
        strange = f", {percent(unusual)} because they are unlike those it knows" if unusual else ""
        marked = (
            f"With the threshold that is marked, {percent(share)} of the test images are handed over{strange}{wrong}."
        )
        body, alt = body + paragraph(marked), f"{alt} {marked}"
    return Section("hand-over", "When should a person look?", body + plot(figure, alt))


def _uncertain(contents: ReportContents, outcome: _Outcome) -> Section:
    entropy = np.asarray(contents.prediction.entropy, float)
    unknown = np.asarray(contents.prediction.mutual_information, float)
    chosen = np.argsort(-entropy, kind="stable")[:_MOST_EXAMPLES]
    own = float(unknown[chosen].sum() / max(entropy[chosen].sum(), 1e-9))
    body = paragraph(
        "The test images with the most evenly spread probabilities: those to hand over first. Of the doubt in these, "
        f"{percent(own)} is the model's own, which more training images could remove; the rest it takes to lie in the "
        "images, as it also does when it was not trained for long enough."
    )
    return Section("uncertain", "Where it is least sure", body + _examples(contents, outcome, chosen))


def _unusual(contents: ReportContents, outcome: _Outcome) -> Section:
    chosen = np.argsort(-outcome.distance, kind="stable")[:_FEW_EXAMPLES]
    said = (
        "The test images that are least like those it was trained on, the strangest first. This is told by how far "
        "their features, as the model sees them, lie from those of its training images, and not by the probabilities, "
        "which may be sure of an image that does not belong here. Strange enough for a person to be asked: "
        f"{int(contents.rule.unusual(outcome.distance).sum()):,} of {len(outcome.distance):,}"
    )
    said += ", but it was on these that the limit was chosen." if contents.rule_source == "test" else "."
    return Section("unusual", "What is unlike the rest", paragraph(said) + _examples(contents, outcome, chosen))


def _misclassified(contents: ReportContents, outcome: _Outcome) -> Section:
    wrong, N, title = np.flatnonzero(~outcome.right), len(outcome.right), "Where it is wrong"
    if not len(wrong):
        return Section("misclassified", title, paragraph(findings.no_misses(N)))
    chosen = wrong[np.argsort(-outcome.confidence[wrong], kind="stable")][:_MOST_EXAMPLES]
    which = "all of them" if len(chosen) == len(wrong) else f"the {len(chosen)} it was surest of"
    body = paragraph(
        f"Labelled wrongly: {counted(len(wrong), 'image')} of {N:,}. Below are {which}, the surest mistake first. "
        "A good model leaves the true class a fair share."
    )
    return Section("misclassified", title, body + _examples(contents, outcome, chosen))


def _examples(contents: ReportContents, outcome: _Outcome, chosen: Int[np.ndarray, " n"]) -> str:
    cards = "\n".join(_example(contents, outcome, int(i)) for i in chosen)
    return f'{_KEY}\n<div class="examples">\n{cards}\n</div>'


def _example(contents: ReportContents, outcome: _Outcome, i: int) -> str:
    p, names = outcome.probabilities[i], contents.class_names
    label, predicted = int(outcome.labels[i]), int(outcome.predicted[i])
    figure = image_with_bars(contents.test.images[i], p, label, names)
    say = lambda k, most: f"{plots.shorten(names[k], most)}, {percent(p[k])}"
    truth = lambda most: "right" if predicted == label else f"is {say(label, most)}"
    alt = f"Test image {contents.test.name(i)} and its class probabilities: says {say(predicted, 80)}; {truth(80)}."
    file = "" if contents.test.names is None else f'<span class="file">{text(contents.test.name(i))}</span>'
    caption = f"says {text(say(predicted, 22))}<br>{text(truth(22))}{file}"
    return f"<figure>{picture(figure, alt, dpi=200)}<figcaption>{caption}</figcaption></figure>"


def _confusion(contents: ReportContents, outcome: _Outcome) -> Section:
    figure = plots.confusion_matrix(outcome.labels, outcome.predicted, contents.class_names)
    body = paragraph(
        "Each row holds the test images of one class, each column those given one label: numbers off the diagonal are "
        "mistakes. The darker a cell, the larger its share of the row."
    )
    pairs = list(_frequent(outcome, contents.class_names))
    if pairs:
        body += paragraph(f"Taken for another most often: {'; '.join(pairs)}.")
    alt = f"Confusion matrix of {len(contents.class_names)} classes: {'; '.join(pairs) or 'no mistakes'}."
    return Section("confusion", "What is taken for what", body + plot(figure, alt))


def _frequent(outcome: _Outcome, names: tuple[str, ...], most: int = 5) -> Iterator[str]:
    wrong = ~outcome.right
    pairs, counts = np.unique(np.stack([outcome.labels[wrong], outcome.predicted[wrong]]), axis=1, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:most]:
        true, given = (plots.shorten(names[k], 40) for k in pairs[:, i])
        yield f"“{true}” for “{given}” {_TIMES.get(int(counts[i]), f'{counts[i]} times')}"


def _training(history: list[dict[str, Any]]) -> Section | None:
    names = [name for name in ("elbo", "nll") if len(plots.curve(history, name)[0])]
    if not names:
        return None
    body = paragraph(
        "The ELBO is what training raises: how well the model explains the training images, less a price for being "
        "complicated. Once it is flat, more steps gain little."
    )
    if "nll" in names:
        body += paragraph("The held-out NLL is how much new images surprise it: it should fall, and stay low.")
    alt = f"Training curves over the steps: {' and '.join(name.upper() for name in names)}."
    return Section("training", "How training went", body + plot(plots.training_curves(history), alt))


def _numbers(contents: ReportContents) -> Section:
    metrics, rows = contents.metrics, []
    is_bound = len(contents.model.layers) == 1 or contents.model.sampling != "marginal"
    for name, (title, meaning) in _NUMBERS.items():
        value, between = metrics["test"].get(name), _between(metrics["interval"].get(name))
        if name == "ece" and (calibrated := _between(metrics["interval"].get("ece_if_calibrated"))):
            between = f"{calibrated} if calibrated"
        rows.append((title, "undefined" if value is None else f"{value:.4f}", between, meaning))
    if metrics.get("elbo") is not None:
        elbo = f"{metrics['elbo']:,.1f}".replace("-", "−")
        rows.append(("ELBO", elbo, "", _BOUND if is_bound else f"{_BOUND}{_NOT_QUITE}"))
    intervals = "95 % intervals: exact ones of errors, of a calibrated model's ECE, of the rest from resampling"
    said = paragraph(f"On {counted(metrics['test']['n'], 'test image')}, with {intervals}.")
    return Section("numbers", "All numbers", said + table(rows, ("", "value", "95 % interval", "meaning"), "numbers"))


def _between(interval: list[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.4f} to {interval[1]:.4f}"


def _origin(contents: ReportContents) -> Section:
    settings = f"<pre>{text(contents.settings)}</pre>"
    body = details("The run: command, data, versions, device", table(_flat(contents.manifest)))
    return Section("origin", "How the run was made", body + details("All settings (config.toml)", settings))


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
