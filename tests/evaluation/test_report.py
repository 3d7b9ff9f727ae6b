import base64
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest
from gp import tiny

from tickgp.data.contents import Split
from tickgp.evaluation.handover import Rule
from tickgp.evaluation.metrics import evaluate, intervals
from tickgp.evaluation.promise import Threshold
from tickgp.evaluation.report import ReportContents, render
from tickgp.gp.likelihoods import Bernoulli, RobustMax, Softmax
from tickgp.gp.predict import Prediction

NASTY = "<b>\"bold\" & 'quoted'</b>"
VOID = {"meta", "img", "br"}
RULE = Rule(18.0, Threshold(0.55, 0.02, 0.95, 0.9, 400, 3, 0.0187))


class Page(HTMLParser):
    """A page taken apart; tags that do not match are an error."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names))
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(self.words).replace("\xa0", " ").split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def predicted(labels, classes, *, misses, seed=0):
    """Probabilities of which the first `misses` are wrong."""
    p = np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=len(labels))
    wanted = (labels + (np.arange(len(labels)) < misses)) % classes
    rows, largest = np.arange(len(labels)), p.argmax(axis=1)
    p[rows, wanted], p[rows, largest] = p[rows, largest], p[rows, wanted]
    return p


def contents(model, *, names=("a", "b", "c"), images=None, misses=4, **changes):
    images = tiny.images(40) if images is None else images
    labels = np.arange(len(images)) % len(names)
    p, distance = predicted(labels, len(names), misses=misses), np.arange(len(images)) * 7 % len(images) / 2
    values = {
        "model": model,
        "class_names": tuple(names),
        "test": Split(images, labels),
        "prediction": Prediction(jnp.asarray(p), jnp.full(len(p), 0.1), jnp.zeros(len(p)), jnp.asarray(distance)),
        "metrics": {
            "model": "tick",
            "dataset": "made up",
            "steps": 1200,
            "elbo": -1234.56,
            "test": evaluate(p, labels),
            "interval": intervals(p, labels, num=20),
        },
        "history": [{"step": 100 * i, "elbo": -1000.0 / i, "nll": 1.0 / i} for i in range(1, 6)],
        "rule": RULE,
        "rule_source": "validation",
        "settings": 'seed = 0\n[data]\ndataset = "digits"\n',
        "manifest": {"tickgp": "0.1.0", "seed": 7, "dataset": {"name": "made up", "sha256": "c0ffee"}},
    }
    return ReportContents(**{**values, **changes})


@pytest.fixture(scope="module")
def tick():
    return tiny.perturbed(tiny.build("tick", Softmax(3)))


@pytest.fixture(scope="module")
def made(tick):
    given = contents(tick)
    html = render(given)
    return given, html, Page(html)


def sections(page):
    return [attributes["id"] for attributes in page.all("section")]


def test_numbers_are_those_of_the_metrics(made):
    given, _, page = made
    for name in ("top1_error", "top2_error", "nll", "nll_misses", "ece", "brier", "aurc"):
        assert f"{given.metrics['test'][name]:.4f}" in page.text
    for name in ("top1_error", "top2_error", "nll", "brier", "aurc", "ece_if_calibrated"):
        low, high = given.metrics["interval"][name]
        assert f"{low:.4f} to {high:.4f}" in page.text
    assert f"{high:.4f} if calibrated" in page.text
    assert "−1,234.6" in page.text
    assert "undefined" in page.text  # top-3 of three classes
    assert "Of 100 new images about 10.0 are labelled wrongly" in page.text
    assert "At most 2 % of these decisions are wrong" in page.text
    assert "Guessing" not in page.text
    assert "chosen on these very images" not in page.text
    assert "40 test images of 3 classes, after 1,200 training steps" in page.text


def test_all_sections_are_there_and_linked(made):
    page = made[2]
    assert sections(page) == [
        "reliability",
        "hand-over",
        "uncertain",
        "unusual",
        "misclassified",
        "confusion",
        "training",
        "patches",
        "places",
        "weights",
        "model",
        "numbers",
        "origin",
    ]
    assert [link["href"] for link in page.all("a")] == [f"#{name}" for name in sections(page)]


def test_the_page_needs_nothing_from_elsewhere(made):
    _, html, page = made
    assert not page.all("script")
    assert not page.all("link")
    assert not re.search(r"url\(|@import|https?://", html)
    sources = [image["src"] for image in page.all("img")]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all(base64.b64decode(source.partition(",")[2]).startswith(b"\x89PNG") for source in sources)
    assert len(html) < 2_000_000


def test_every_picture_has_words_and_a_size(made):
    images = made[2].all("img")
    assert len(images) == 12 + 6 + 4 + 8
    assert all(image["alt"] and int(image["width"]) and int(image["height"]) for image in images)


def test_the_surest_mistakes_come_first(made):
    given, html, _ = made
    p = np.asarray(given.prediction.probabilities)
    wrong = np.flatnonzero(p.argmax(axis=1) != given.test.labels)
    expected = wrong[np.argsort(-p.max(axis=1)[wrong])]
    part = html[html.index('<section id="misclassified">') : html.index('<section id="confusion">')]
    assert [int(i) for i in re.findall(r"Test image (\d+)", part)] == expected.tolist()


def test_the_least_sure_come_first(made):
    given, html, _ = made
    order = np.argsort(-np.asarray(given.prediction.entropy), kind="stable")[:12]
    part = html[html.index('<section id="uncertain">') : html.index('<section id="unusual">')]
    assert [int(i) for i in re.findall(r"Test image (\d+)", part)] == order.tolist()


def test_the_strangest_come_first(made):
    given, html, page = made
    order = np.argsort(-np.asarray(given.prediction.distance))[:6]
    part = html[html.index('<section id="unusual">') : html.index('<section id="misclassified">')]
    assert [int(i) for i in re.findall(r"Test image (\d+)", part)] == order.tolist()
    assert "Strange enough for a person to be asked: 3 of 40" in page.text
    assert "7.5 % because they are unlike those it knows" in page.text


def test_the_manifest_and_the_settings_are_shown(made):
    text = made[2].text
    assert "dataset.sha256 c0ffee" in re.sub(r"\s+", " ", " ".join(made[2].words))
    assert '[data] dataset = "digits"' in text
    assert len(made[2].all("details")) == 2


def test_what_the_user_wrote_is_escaped(tick):
    given = contents(
        tick,
        images=tiny.images(6),
        names=(NASTY, "$x$ & <i>", "c"),
        settings=f"name = '{NASTY}'",
        manifest={"command": NASTY},
        history=[],
    )
    metrics = {**given.metrics, "dataset": f"folder:{NASTY}"}
    html = render(replace(given, metrics=metrics, rule=Rule(reason=f"because {NASTY}")))
    page = Page(html)
    assert NASTY not in html
    assert not page.all("b")
    assert not page.all("i")
    assert f"folder:{NASTY}" in page.text
    assert f"because {NASTY}" in page.text
    assert any(NASTY in image["alt"] for image in page.all("img"))


def test_images_of_a_folder_are_called_by_their_files(made, tick):
    assert not any(attributes.get("class") == "file" for attributes in made[2].all("span"))
    given = contents(tick, images=tiny.images(3), misses=0, history=[])
    names = ("a/1.png", f"b/{NASTY}.png", f"c/{200 * 'x'}.png")
    html = render(replace(given, test=replace(given.test, names=names)))
    page = Page(html)
    assert NASTY not in html
    for name in names:
        assert name in page.words  # whole, as one text
        assert any(image["alt"].startswith(f"Test image {name} and its") for image in page.all("img"))


def test_no_mistakes_and_no_history(tick):
    page = Page(render(contents(tick, images=tiny.images(9), misses=0, history=[], rule_source="test")))
    assert "None of 9 test images was labelled wrongly" in page.text
    assert "are labelled wrongly; the threshold was chosen on these very images" in page.text
    assert "training" not in sections(page)
    assert "misclassified" in sections(page)


def test_a_single_test_image(tick):
    given = contents(tick, images=tiny.images(1), misses=0, rule=Rule(-1.0, reason="too few"), history=[])
    page = Page(render(given))
    assert "The one test image was labelled right" in page.text
    assert "too few" in page.text
    assert "Strange enough for a person to be asked: 1 of 1." in page.text  # without a threshold too


@pytest.mark.parametrize(
    ("name", "likelihood", "left_out"),
    [
        ("se", RobustMax(2), {"patches", "places", "weights"}),
        ("deep_se", Bernoulli(), {"patches", "places", "weights"}),
        ("conv", Bernoulli(), {"places", "weights"}),
        ("deep_tick", Softmax(2), {"weights"}),
    ],
)
def test_models_leave_out_what_they_do_not_have(name, likelihood, left_out):
    page = Page(
        render(contents(tiny.build(name, likelihood), names=("healthy", "ill"), images=tiny.images(3), misses=1))
    )
    assert {"patches", "places", "weights"} - set(sections(page)) == left_out
    assert ("Layer 1 of 2" in page.text) == name.startswith("deep")


@pytest.mark.slow
def test_colour_bytes_and_a_hundred_classes(tick):
    images = np.random.default_rng(0).integers(256, size=(8, 6, 5, 3), dtype=np.uint8)
    names = [f"a class with a very long name, number {i}" for i in range(100)]
    html = render(contents(tick, names=names, images=images, misses=3, history=[]))
    assert (
        "“a class with a very long name, number 0” for “a class with a very long name, number 1” once"
        in Page(html).text
    )
    assert len(html) < 2_000_000


def test_drawing_is_loaded_by_the_first_page():
    check = "import sys, tickgp.evaluation.report, tickgp.evaluation.words; print('matplotlib' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
