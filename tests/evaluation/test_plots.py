import math

import jax.numpy as jnp
import numpy as np
import pytest
from gp import tiny
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from tickgp.evaluation import plots, plots_images, plots_model
from tickgp.evaluation.handover import Rule
from tickgp.evaluation.promise import Threshold
from tickgp.gp.inducing import InducingPatches
from tickgp.gp.kernels import SquaredExponential
from tickgp.gp.params import Real
from tickgp.gp.patches import PatchGrid

DIGITS = tuple("0123456789")


def line(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def outside(figure):
    """Whatever text of a figure is cut off by its edge."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    boxes = [
        (text.get_text(), text.get_window_extent())
        for axes in figure.axes
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts)
        if text.get_text() and text.get_visible()
    ]
    return [words for words, b in boxes if b.x0 < -1 or b.y0 < -1 or b.x1 > width + 1 or b.y1 > height + 1]


@pytest.fixture(scope="module")
def outcome():
    """Probabilities (200, 3) and labels of which most are right."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([4.0, 1.0, 1.0], size=200)
    return p, np.where(rng.uniform(size=200) < 0.8, p.argmax(axis=1), 2)


def test_reliability_diagram(outcome):
    p, labels = outcome
    figure = plots.reliability_diagram(p, labels)
    above, below = figure.axes
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    index = np.minimum((confidence * 15).astype(int), 14)
    assert [bar.get_height() for bar in below.patches] == np.bincount(index, minlength=15).tolist()
    bins = np.unique(index)
    dots = line(above, "test images")
    np.testing.assert_allclose(dots.get_ydata(), [right[index == b].mean() for b in bins])
    np.testing.assert_allclose(dots.get_xdata(), [confidence[index == b].mean() for b in bins])
    gaps = [(index == b).mean() * abs(right[index == b].mean() - confidence[index == b].mean()) for b in bins]
    assert f"{100 * sum(gaps):.1f} %" in above.get_title(loc="left")
    assert above.get_ylabel()
    assert below.get_xlabel()
    assert below.get_ylabel()
    assert not outside(figure)


def test_handover_curve_marks_the_threshold(outcome):
    p, labels = outcome
    confidence, wrong = p.max(axis=1), p.argmax(axis=1) != labels
    rule = Rule(threshold=Threshold(0.6, 0.3, 0.95, 0.7, 100, 2, 0.19))
    axes = plots.handover_curve(p, labels, np.zeros(len(p)), rule).axes[0]
    mark = axes.lines[-1]
    assert mark.get_xdata()[0] == np.mean(confidence < 0.6)
    assert mark.get_ydata()[0] == wrong[confidence >= 0.6].mean()
    curve = line(axes, "test images")
    shares, errors = curve.get_xdata(), curve.get_ydata()
    np.testing.assert_allclose((shares[-1], errors[-1]), (0, wrong.mean()), atol=1e-12)
    # the mark lies on the curve
    np.testing.assert_allclose(errors[np.argmin(np.abs(shares - mark.get_xdata()[0]))], mark.get_ydata()[0])
    assert axes.get_xlim()[1] > mark.get_xdata()[0]
    assert line(axes, "allowed: 30 %").get_ydata()[0] == 0.3


def test_handover_curve_without_threshold_or_errors():
    p = np.tile([0.7, 0.3], (5, 1))
    axes = plots.handover_curve(p, np.zeros(5, int), np.zeros(5), Rule()).axes[0]
    assert len(axes.lines) == 1
    assert axes.get_ylim()[0] < 0 < axes.get_ylim()[1]


def test_the_mark_counts_unusual_images(outcome):
    p, labels = outcome
    distance, wrong = np.arange(len(p)) % 10.0, p.argmax(axis=1) != labels
    rule = Rule(8.0, Threshold(0.0, 0.3, 0.95, 0.9, 100, 2, 0.19))
    mark = plots.handover_curve(p, labels, distance, rule).axes[0].lines[-1]
    assert mark.get_xdata()[0] == np.mean(distance == 9)
    assert mark.get_ydata()[0] == wrong[distance < 9].mean()


def test_a_threshold_that_keeps_nothing_has_no_mark():
    p = np.tile([0.7, 0.3], (5, 1))
    rule = Rule(threshold=Threshold(0.9, 0.1, 0.95, 0.1, 100, 0, 0.09))
    axes = plots.handover_curve(p, np.zeros(5, int), np.zeros(5), rule).axes[0]
    assert len(axes.lines) == 3
    assert axes.get_xlim()[1] >= 1


def test_training_curves():
    history = [{"step": 10 * i, "elbo": -100.0 - 9900.0 * (i == 0)} for i in range(20)]
    history[3]["elbo"] = math.nan
    history[5]["nll"] = 0.4
    history[9]["nll"] = 0.3
    elbo, nll = plots.training_curves(history).axes
    assert 30 not in elbo.lines[0].get_xdata()
    assert list(nll.lines[0].get_xdata()) == [50, 90]
    assert list(nll.lines[0].get_ydata()) == [0.4, 0.3]
    low, high = elbo.get_ylim()
    assert -10_000 < low < -100 < high
    assert elbo.texts[0].get_text() == "One value lies below the frame; the first is −10,000"
    assert elbo.get_ylabel()
    assert nll.get_xlabel() == "training step"


def test_high_first_values_of_nll_are_left_out_above():
    history = [{"step": i, "nll": 50.0 if i < 2 else 0.3 - i / 1000} for i in range(30)]
    (axes,) = plots.training_curves(history).axes
    low, high = axes.get_ylim()
    assert low < 0.272
    assert 0.3 < high < 50
    assert axes.texts[0].get_text() == "2 values lie above the frame; the first is 50"


def test_nothing_is_left_out_of_a_calm_curve():
    (axes,) = plots.training_curves([{"step": i, "elbo": -100.0 + i} for i in range(30)]).axes
    assert not axes.texts
    assert axes.get_ylim()[0] < -100
    assert axes.get_ylim()[1] > -71


@pytest.mark.parametrize("history", [[], [{"step": 1, "elbo": math.nan}], [{"step": 1, "elbo": -5.0}]])
def test_short_histories(history):
    assert len(plots.training_curves(history).axes) == 1


def test_confusion_matrix_counts():
    labels, predicted = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 1, 2, 2, 0])
    figure = plots.confusion_matrix(labels, predicted, ("a", "b", "c"))
    cells = {text.get_position(): int(text.get_text()) for text in figure.axes[0].texts}
    assert cells == {(0, 0): 1, (1, 0): 1, (1, 1): 1, (2, 2): 2, (0, 2): 1}
    assert figure.axes[0].get_xlabel() == "predicted class"


def test_confusion_matrix_of_a_hundred_classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(100, size=2000)
    predicted = labels.copy()
    predicted[labels == 77] = 3
    names = [f"a class with the long name {i}" for i in range(100)]
    figure = plots.confusion_matrix(labels, predicted, names)
    axes = figure.axes[0]
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    assert ticks[-1] == "76 others"
    assert len(ticks) == 25
    assert all(len(tick) <= 18 for tick in ticks)
    assert sum(int(text.get_text()) for text in axes.texts) == 2000
    assert str((labels == 77).sum()) in {text.get_text() for text in axes.texts}
    assert not outside(figure)


@pytest.mark.parametrize("label", [2, 4])
def test_bars_are_the_probabilities(label):
    p = np.random.default_rng(0).dirichlet(np.ones(10))
    predicted = int(p.argmax())
    _, axes = plots_images.image_with_bars(tiny.images(1)[0], p, label, DIGITS).axes
    assert [bar.get_height() for bar in axes.patches] == p.tolist()
    colours = [to_hex(bar.get_facecolor()).upper() for bar in axes.patches]
    expected = [plots.GREY] * 10
    expected[label], expected[predicted] = plots.BLUE, plots.ORANGE
    assert colours == expected
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(DIGITS)
    assert axes.get_ylim() == (0, 1)
    assert axes.get_ylabel() == "probability"


def test_a_right_prediction_is_hatched():
    p = np.array([0.2, 0.7, 0.1])
    _, axes = plots_images.image_with_bars(tiny.images(1)[0], p, 1, ("a", "b", "c")).axes
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, True, False]
    assert to_hex(axes.patches[1].get_facecolor()).upper() == plots.ORANGE


def test_long_names_stand_beside_the_most_probable_and_the_true_class():
    p = np.linspace(0, 1, 100)
    p /= p.sum()
    names = [f"class number {i}" for i in range(99)] + ["a $ and a $"]
    _, axes = plots_images.image_with_bars(tiny.images(1, (6, 5, 3))[0], p, 7, names).axes
    assert [bar.get_width() for bar in axes.patches] == p[[99, 98, 97, 96, 7]].tolist()
    assert next(tick.get_text() for tick in axes.get_yticklabels()) == r"a \$ and a \$"
    assert to_hex(axes.patches[-1].get_facecolor()).upper() == plots.BLUE
    FigureCanvasAgg(axes.figure).draw()


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (np.full((4, 5, 1), 255, np.uint8), (4, 5)),
        (np.full((4, 5, 3), 255, np.uint8), (4, 5, 3)),
        (np.ones((4, 5, 2)), (4, 5)),
        (np.linspace(-3, 9, 20).reshape(4, 5, 1), (4, 5)),
    ],
)
def test_pictures(image, shape):
    picture = plots_images.as_picture(image)
    assert picture.shape == shape
    assert picture.max() == 1
    assert picture.min() >= 0


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("num", [1, 7, 130])
def test_inducing_patches_without_places(channels, num):
    grid = PatchGrid((6, 5, channels), (3, 2))
    Z = np.random.default_rng(0).normal(size=(num, grid.patch_length))
    figure = plots_model.inducing_patches(InducingPatches(Real(Z)), grid)
    (axes,) = figure.axes
    canvas = np.ma.getdata(axes.images[0].get_array())
    shown = Z[:100] if num <= 100 else Z[np.linspace(0, num - 1, 100).round().astype(int)]
    first = shown[0].reshape(3, 2, channels) if channels == 3 else shown[0].reshape(3, 2, channels)[..., 0]
    scaled = (first - shown.min()) / (shown.max() - shown.min())
    np.testing.assert_allclose(canvas[:3, :2], scaled, atol=1e-6)
    assert not outside(figure)


@pytest.mark.parametrize("shape", [(6, 5, 1), (28, 28, 3), (60, 12, 1), (12, 60, 1)])
def test_places_are_the_middles_of_patches(shape):
    grid = PatchGrid(shape, (3, 5))
    places = np.array([[0.0, 0.0], [2.5, 1.0], [-1.0, 30.0]])
    figure = plots_model.inducing_places(places, grid)
    (axes,) = figure.axes
    np.testing.assert_allclose(axes.collections[0].get_offsets(), places[:, ::-1] + [2.5, 1.5])
    frame, patch = axes.patches
    assert (frame.get_width(), frame.get_height()) == (shape[1], shape[0])
    assert (patch.get_width(), patch.get_height()) == (5, 3)
    bottom, top = axes.get_ylim()
    assert bottom > top
    assert not outside(figure)


def test_translation_insensitivity():
    grid = PatchGrid((8, 9, 1), (3, 3))
    (axes,) = plots_model.translation_insensitivity(SquaredExponential(2.0, 3.0), grid).axes
    distance, share = axes.lines[0].get_data()
    np.testing.assert_allclose(share, np.exp(-(distance**2) / 18), rtol=1e-4)
    assert distance[-1] == 8
    assert axes.texts[0].get_text() == f"a half at {3 * math.sqrt(2 * math.log(2)):.2g} pixels"


def test_directions_that_differ_have_their_own_lines():
    grid, scales = PatchGrid((8, 8, 1), (3, 3)), jnp.array([1.0, 4.0])
    (axes,) = plots_model.translation_insensitivity(SquaredExponential(1.0, scales), grid).axes
    across, down = line(axes, "across"), line(axes, "down")
    np.testing.assert_allclose(across.get_ydata(), np.exp(-(across.get_xdata() ** 2) / 32), rtol=1e-4)
    np.testing.assert_allclose(down.get_ydata(), np.exp(-(down.get_xdata() ** 2) / 2), rtol=1e-4, atol=1e-6)


def test_patch_weights():
    w = np.arange(12.0)
    image = plots_model.patch_weights(w, PatchGrid(tiny.SHAPE, (3, 3))).axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), w.reshape(4, 3))
    assert image.get_clim() == (-11, 11)
