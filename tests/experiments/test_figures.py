"""What is drawn is what was given: bars, pictures and lines are read back from the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from scipy.stats import binom

from tickgp.evaluation.plots import BLUE, GREEN, GREY, INK, ORANGE
from tickgp.experiments.figures.dropout import Curve, dropout_figure
from tickgp.experiments.figures.full_covariance import SwitchedRun, full_covariance_figure
from tickgp.experiments.figures.insensitivity import Fitted, Sweep, insensitivity_figure
from tickgp.experiments.figures.invariance import invariance_figure, matching_patches
from tickgp.experiments.figures.misclassified import (
    MOST_ON_A_PAGE,
    Misclassified,
    all_misclassified,
    choose,
    few_misclassified,
)
from tickgp.experiments.figures.patch_response import patch_response_figure
from tickgp.experiments.figures.traces import Trace, traces_figure

DIGITS = tuple("0123456789")


def drawn(figure: Figure) -> Figure:
    """Drawn once, so that a warning of the drawing itself fails the test."""
    FigureCanvasAgg(figure).draw()
    return figure


def words(figure: Figure) -> str:
    """All that the figure says outside its axes."""
    return " ".join(text.get_text() for text in figure.findobj(lambda artist: artist in figure.texts))


def pictures(axes: Axes) -> list[np.ndarray]:
    return [np.asarray(image.get_array()) for image in axes.images]


def data_lines(axes: Axes, colour: str) -> list[Line2D]:
    return [line for line in axes.lines if same_color(line.get_color(), colour) and len(line.get_xdata()) > 2]


def part_titles(figure: Figure) -> list[str]:
    """Of the parts that stand below each other, left of a scale."""
    return [part.get_suptitle() for part in figure.subfigs[0].subfigs]


def legend_words(owner: Axes | Figure) -> list[str]:
    legend = owner.get_legend() if isinstance(owner, Axes) else owner.legends[0]
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


# Why invariance is unrealistic


def stroked(row: int) -> np.ndarray:
    """A horizontal stroke, and a vertical one that is the same in every image."""
    image = np.zeros((20, 20))
    image[row : row + 2, 4:14] = 1.0
    image[8:12, 16] = 0.5
    return image


def test_the_matching_patches_hold_the_same_stroke_at_other_heights():
    two, seven = stroked(15), stroked(2)
    (a, b), (c, d) = matching_patches(two, seven, 5)
    np.testing.assert_array_equal(two[a : a + 5, b : b + 5], seven[c : c + 5, d : d + 5])
    assert two[a : a + 5, b : b + 5].sum() > 0
    assert a - c >= 20 / 3


def test_the_matching_patches_are_the_best_of_a_slow_search():
    size = 4
    rng = np.random.default_rng(1)
    two, seven = rng.uniform(size=(2, 9, 9))

    def windows(image):
        found = {(r, c): image[r : r + size, c : c + size] for r in range(6) for c in range(6)}
        most = max(window.sum() for window in found.values())
        return {place: window for place, window in found.items() if window.sum() >= most / 2}

    pairs = [
        (np.sum((window - other) ** 2), place, other_place)
        for place, window in windows(two).items()
        for other_place, other in windows(seven).items()
        if place[0] - other_place[0] >= 3
    ]
    assert matching_patches(two, seven, size) == min(pairs)[1:]


def test_images_without_a_match_are_refused():
    with pytest.raises(ValueError, match="use a smaller size or other images"):
        matching_patches(np.zeros((20, 20)), stroked(2), 5)
    with pytest.raises(ValueError, match="patch 21x21 does not fit in image 20x20"):
        matching_patches(stroked(15), stroked(2), 21)


def test_bytes_and_fractions_match_alike():
    as_bytes = [np.uint8(255 * stroked(row)) for row in (15, 2)]
    assert matching_patches(*as_bytes, 5) == matching_patches(stroked(15), stroked(2), 5)


def test_the_windows_are_marked_and_enlarged():
    two, seven = stroked(15), stroked(2)
    left, upper, right, lower = drawn(invariance_figure(two, seven, ((13, 3, 5), (0, 6, 5)))).axes
    for image, axes, patch, row, column in ((two, left, upper, 13, 3), (seven, right, lower, 0, 6)):
        np.testing.assert_array_equal(pictures(axes)[0], image)
        np.testing.assert_array_equal(pictures(patch)[0], image[row : row + 5, column : column + 5])
        for frame in axes.patches:
            assert isinstance(frame, Rectangle)
            assert (frame.get_x(), frame.get_y(), frame.get_width()) == (column - 0.5, row - 0.5, 5)
        assert f"row {row}, column {column}" in axes.get_xlabel()


# Patch responses


def test_all_samples_of_all_models_share_one_symmetric_colour_range():
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(2, 9, 9))
    samples = {"Conv-GP": 0.1 * rng.normal(size=(2, 5, 7, 7)), "TICK-GP": rng.normal(size=(2, 5, 7, 7))}
    figure = drawn(patch_response_figure(images, samples))
    *panels, bar = figure.axes
    largest = np.abs(samples["TICK-GP"]).max()
    for number, deviations in enumerate(samples.values()):
        grid = np.array(panels[12 * number : 12 * (number + 1)], object).reshape(2, 6)
        for row in range(2):
            np.testing.assert_array_equal(pictures(grid[row, 0])[0], images[row])
            for axes, sample in zip(grid[row, 1:], deviations[row], strict=True):
                np.testing.assert_array_equal(pictures(axes)[0], sample)
                assert axes.images[0].norm is grid[0, 1].images[0].norm
                assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == (-largest, largest)
    assert bar.get_ylim() == (-largest, largest)
    assert part_titles(figure) == ["(a) Conv-GP", "(b) TICK-GP"]


def test_notes_stand_below_the_names_and_the_images_are_said():
    samples = {name: np.ones((2, 5, 3, 3)) for name in ("Conv-GP", "TICK-GP")}
    figure = drawn(patch_response_figure(np.zeros((2, 5, 5)), samples, {"TICK-GP": "4 pixels"}, "Two images"))
    assert part_titles(figure) == ["(a) Conv-GP", "(b) TICK-GP\n4 pixels"]
    assert figure.get_suptitle() == "Two images"


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_samples_without_any_deviation_are_drawn(value):
    figure = drawn(patch_response_figure(np.zeros((2, 5, 5)), {"Conv-GP": np.full((2, 1, 3, 3), value)}))
    assert figure.axes[1].images[0].norm.vmax == 1


# Misclassified images


def predicted(wrong: list[int], n: int = 40, seed: int = 0, name: str = "TICK-GP") -> Misclassified:
    """Images of noise, of which these are misclassified."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 10
    probabilities = rng.dirichlet(np.ones(10), n)
    top = labels.copy()
    top[wrong] = (labels[wrong] + 3) % 10
    best = probabilities.argmax(axis=1)
    order = np.arange(n)
    probabilities[order, top], probabilities[order, best] = probabilities[order, best], probabilities[order, top]
    return Misclassified(name, np.random.default_rng(9).uniform(size=(n, 6, 6, 1)), labels, probabilities, DIGITS)


def check_bars(bars: list[Rectangle], probabilities: np.ndarray, label: int, unit: float = 1.0) -> None:
    np.testing.assert_allclose([bar.get_height() / unit for bar in bars], probabilities)
    for k, bar in enumerate(bars):
        colour = ORANGE if k == probabilities.argmax() else BLUE if k == label else GREY
        assert same_color(bar.get_facecolor(), colour)
        assert bool(bar.get_hatch()) == (k == label)
        assert same_color(bar.get_edgecolor(), INK)


def test_few_misclassified_images_stand_above_the_bars_of_every_model():
    models = [predicted([3, 7, 11, 20], seed=1, name="B-CNN"), predicted([3, 7, 11, 25], seed=2)]
    chosen, _ = choose(models, 3, seed=0)
    assert set(chosen) == {3, 7, 11}
    figure = drawn(few_misclassified(models, 3, seed=0))
    grid = np.array(figure.axes, object).reshape(3, 3)
    for column, i in enumerate(chosen):
        np.testing.assert_array_equal(pictures(grid[0, column])[0], models[0].images[i, ..., 0])
        assert grid[0, column].get_title() == f"true: {i % 10}"
        for row, model in enumerate(models, start=1):
            check_bars(list(grid[row, column].patches), model.probabilities[i], i % 10)
    assert [grid[row, 0].get_ylabel() for row in (1, 2)] == ["B-CNN\nprobability", "TICK-GP\nprobability"]
    assert legend_words(figure) == ["predicted class", "true class", "other classes"]


def test_images_that_some_models_get_wrong_fill_up_and_it_is_said():
    models = [predicted([3, 5], seed=1, name="B-CNN"), predicted([3], seed=2)]
    chosen, said = choose(models, 8, seed=0)
    assert chosen.tolist() == [3, 5]
    assert said == "1 of the 1 images misclassified by both models, at random; 1 misclassified by some of them"
    figure = drawn(few_misclassified(models, 8))
    # The second model is right about the second image: orange, and hatched as the true class is.
    check_bars(list(figure.axes[-1].patches), models[1].probabilities[5], 5)


def test_the_choice_is_random_and_repeatable():
    model = predicted(list(range(30)))
    first, said = choose([model], 8, seed=0)
    assert said == "8 of the 30 images misclassified by TICK-GP, at random"
    np.testing.assert_array_equal(first, choose([model], 8, seed=0)[0])
    assert set(first) != set(choose([model], 8, seed=1)[0])


def test_models_with_other_images_are_refused():
    other = replace(predicted([3]), images=np.zeros((40, 6, 6, 1)), name="B-CNN")
    with pytest.raises(ValueError, match="B-CNN and TICK-GP have different images"):
        few_misclassified([predicted([3]), other])


def test_no_misclassified_image_is_said():
    assert "None of these images is misclassified." in words(drawn(few_misclassified([predicted([])])))
    (figure,) = map(drawn, all_misclassified(predicted([])))
    assert not figure.axes
    assert "TICK-GP misclassifies none of the 40 images." in words(figure)


def page_head(figure: Figure) -> str:
    return figure.legends[0].get_title().get_text()


@pytest.mark.parametrize("wrong", [[4], [1, 2, 5, 8], list(range(37))])
def test_all_misclassified_images_are_shown_surest_first(wrong):
    model = predicted(wrong)
    (figure,) = all_misclassified(model)
    (axes,) = drawn(figure).axes
    assert "all shown" in page_head(figure)
    assert legend_words(figure) == ["predicted class", "true class", "other classes"]
    confidence = model.probabilities.max(axis=1)
    order = sorted(wrong, key=lambda i: -confidence[i])
    assert len(axes.images) == len(wrong)
    bars = list(axes.patches)
    foot = {bars[10 * n].get_y() for n in range(min(10, len(wrong)))}
    assert len(foot) == 1
    titles, numbers = axes.texts[: len(wrong)], axes.texts[len(wrong) :]
    assert [number.get_text() for number in numbers] == [*DIGITS] * len(wrong)
    for bar, number in zip(bars, numbers, strict=True):
        place, below = number.get_position()
        assert place == pytest.approx(bar.get_x() + bar.get_width() / 2)
        assert below == pytest.approx(bar.get_y(), abs=0.05)
    for n, i in enumerate(order):
        np.testing.assert_array_equal(pictures(axes)[n], model.images[i, ..., 0])
        assert titles[n].get_text() == f"{i % 10}→{(i + 3) % 10}"
        left, right, bottom, _ = axes.images[n].get_extent()
        here = bars[10 * n : 10 * (n + 1)]
        # Heights go up the page, where this axis falls: one image's bars are 0.6 of its own height at most.
        check_bars(here, model.probabilities[i], i % 10, unit=-0.6)
        assert left <= here[0].get_x() < here[-1].get_x() + here[-1].get_width() <= right
        assert min(bar.get_y() + bar.get_height() for bar in here) > bottom


@pytest.mark.slow
def test_many_misclassified_images_go_on_over_pages():
    model = predicted(list(range(2 * MOST_ON_A_PAGE + 50)), n=500)
    pages = all_misclassified(model)
    shown = [axes.get_array() for page in pages for axes in page.axes[0].images]
    confidence = model.probabilities.max(axis=1)
    order = sorted(model.wrong(), key=lambda i: -confidence[i])
    np.testing.assert_array_equal(shown, model.images[order, ..., 0])
    assert [len(page.axes[0].images) for page in pages] == [MOST_ON_A_PAGE, MOST_ON_A_PAGE, 50]
    for number, page in enumerate(pages, start=1):
        assert f"450 of 500 images misclassified, surest first; page {number} of 3" in page_head(page)


def test_bars_of_many_classes_have_no_numbers():
    model = predicted([2, 3])
    eleven = np.c_[model.probabilities, np.zeros(40)]
    (figure,) = all_misclassified(replace(model, probabilities=eleven, class_names=(*DIGITS, "ten")))
    assert {text.get_text() for text in figure.axes[0].texts} == {"2→5", "3→6"}
    assert "numbers" not in page_head(figure)


def test_colour_images_and_long_names_are_drawn():
    names = tuple(f"a rather long name, $ {k}" for k in range(10))
    model = replace(predicted([2, 3]), images=np.zeros((40, 6, 6, 3), np.uint8), class_names=names)
    assert pictures(drawn(few_misclassified([model])).axes[0])[0].shape == (6, 6, 3)
    assert pictures(drawn(all_misclassified(model)[0]).axes[0])[0].shape == (6, 6, 3)


# Curves


def test_test_and_training_images_have_a_panel_each():
    epochs = np.arange(1, 31)
    curves = {
        name: Curve(epochs, 1e-3 * (n + 1) / epochs, 0.2 * (n + 1) / epochs)
        for n, name in enumerate(("TICK-GP", "B-CNN p=0.25", "B-CNN p=0.75"))
    }
    figure = drawn(dropout_figure(curves))
    test, train = figure.axes
    assert test.get_title(loc="left") == "test images"
    assert train.get_title(loc="left") == "training images, on another scale"
    markers = set()
    for curve, colour in zip(curves.values(), (BLUE, ORANGE, GREEN), strict=True):
        for axes, values in ((test, curve.test_nll), (train, curve.train_nll)):
            (line,) = data_lines(axes, colour)
            np.testing.assert_array_equal(line.get_xdata(), epochs)
            np.testing.assert_array_equal(line.get_ydata(), values)
            assert line.get_markevery() == (0, 3)
            markers.add(line.get_marker())
    assert len(markers) == 3
    assert test.get_ylim()[0] > train.get_ylim()[1] / 3
    assert legend_words(figure) == [*curves]


def test_a_value_that_is_not_finite_is_a_gap():
    curve = Curve(np.arange(4), np.array([0.4, np.nan, np.inf, 0.1]), np.full(4, np.nan))
    test, train = drawn(dropout_figure({"TICK-GP": curve})).axes
    (line,) = data_lines(train, BLUE)
    np.testing.assert_array_equal(line.get_ydata(), [0.4, np.nan, np.nan, 0.1])
    assert np.isnan(data_lines(test, BLUE)[0].get_ydata()).all()
    assert train.get_ylim() == pytest.approx((0, 0.432))


def test_curves_of_nothing_are_drawn():
    none = Curve(np.arange(3), np.full(3, np.nan), np.full(3, np.nan))
    assert drawn(dropout_figure({"TICK-GP": none})).axes


def test_traces_have_the_dashes_of_their_kernel_and_the_colour_of_their_depth():
    steps = np.array([1000, 2000, 10000])
    error = np.array([0.5, 0.1, 0.01])
    traces = [Trace(kernel, depth, steps * depth, error) for kernel in ("TICK", "Conv") for depth in (1, 2, 3)]
    (axes,) = drawn(traces_figure(traces, "2,000")).axes
    assert axes.get_ylabel() == "error on 2,000 test images (%)"
    for depth, colour in ((1, BLUE), (2, ORANGE), (3, GREEN)):
        lines = data_lines(axes, colour)
        assert [line.get_linestyle() for line in lines] == ["-", "--"]
        for line in lines:
            np.testing.assert_allclose(line.get_xdata(), steps * depth / 1000)
            np.testing.assert_allclose(line.get_ydata(), [50, 10, 1])
    assert axes.get_yscale() == "log"
    assert axes.get_xlabel() == "steps of training (thousands)"
    dotted = "third layer added, not yet measured"
    assert legend_words(axes) == ["one layer", "two layers", "three layers", "TICK", "Conv", dotted]


def test_a_dotted_line_leads_from_two_layers_to_the_first_measurement_of_three():
    two, three = (Trace("Conv", depth, np.arange(3.0) + depth, np.array([0.3, 0.2, depth / 10])) for depth in (2, 3))
    alone = Trace("TICK", 3, np.arange(3.0), np.array([0.3, 0.2, 0.1]))
    (axes,) = drawn(traces_figure([two, three, alone])).axes
    (link,) = axes.collections[0].get_segments()
    np.testing.assert_allclose(link, [[0.004, 20], [0.003, 30]])


def test_a_missing_depth_keeps_the_colours_of_the_others():
    traces = [Trace("TICK", depth, np.arange(3.0), np.array([0.3, 0.2, 0.1])) for depth in (1, 3)]
    (axes,) = drawn(traces_figure(traces)).axes
    assert [len(data_lines(axes, colour)) for colour in (BLUE, ORANGE, GREEN)] == [1, 0, 1]
    assert legend_words(axes) == ["one layer", "three layers", "TICK"]
    assert axes.get_yscale() == "linear"


def switched(kernel: str, samplers: tuple[str, ...] = ("marginal", "full", "correlated")) -> SwitchedRun:
    falling = np.arange(6)
    histories = {
        name: (100 * falling, 0.05 * (1 - 0.01 * (n + 1) * falling), 0.1 * (1 - 0.02 * falling))
        for n, name in enumerate(samplers)
    }
    return SwitchedRun(kernel, (0.06, 0.2), histories, {"marginal": 4.3, "full": 61.0, "correlated": 3.4}, 2000)


def test_what_comes_after_the_switch_is_drawn_over_what_was_before():
    runs = [switched("Conv"), replace(switched("TICK"), before=(0.03, 0.1))]
    figure = drawn(full_covariance_figure(runs))
    grid = np.array(figure.axes, object).reshape(3, 2)
    for column, run in enumerate(runs):
        for row, factor in ((0, 100), (1, 1)):
            axes = grid[row, column]
            (level,) = [line for line in axes.lines if line.get_linestyle() == ":"]
            np.testing.assert_allclose(level.get_ydata(), factor * run.before[row])
            dashes = set()
            for turn, (name, colour) in enumerate((("marginal", BLUE), ("full", ORANGE), ("correlated", GREEN))):
                (line,) = data_lines(axes, colour)
                assert line.get_markevery() == (turn, 3)
                np.testing.assert_array_equal(line.get_xdata(), run.after[name][0])
                np.testing.assert_allclose(line.get_ydata(), factor * run.after[name][row + 1])
                dashes.add(line.get_linestyle())
            assert len(dashes) == 3
            low, high = axes.get_ylim()
            values = factor * np.concatenate([[run.before[row]], *(after[row + 1] for after in run.after.values())])
            assert low < values.min() < values.max() < high
            assert (low, high) != grid[row, 1 - column].get_ylim()
        assert [bar.get_width() for bar in grid[2, column].patches] == [4.3, 61.0, 3.4]
        assert [text.get_text() for text in grid[2, column].texts] == ["4.3 ms", "61 ms", "3.4 ms"]


def test_a_band_shows_the_interval_of_the_error_before():
    """That of Clopper and Pearson: at its ends as many mistakes or more, or as few or fewer, have a chance of 2.5 %."""
    figure = drawn(full_covariance_figure([replace(switched("TICK"), before=(0.0075, 0.1))]))
    (band,) = figure.axes[0].patches
    low, high = band.get_y() / 100, (band.get_y() + band.get_height()) / 100
    assert binom.sf(14, 2000, low) == pytest.approx(0.025)
    assert binom.cdf(15, 2000, high) == pytest.approx(0.025)
    assert not figure.axes[1].patches
    assert "95 % interval of the error before" in legend_words(figure)


def test_a_missing_sampler_and_values_that_are_not_numbers_are_left_out():
    run = replace(switched("TICK", ("full",)), before=(np.nan, 0.1), step_ms={"full": 61.0, "marginal": np.nan})
    figure = drawn(full_covariance_figure([run]))
    assert not data_lines(figure.axes[0], BLUE)
    assert [bar.get_width() for bar in figure.axes[2].patches] == [61.0]
    assert legend_words(figure) == ["before, trained with marginal samples", "then full"]


# Fixed and learned insensitivity


def test_scores_stand_at_their_lengthscales():
    """Two seeds of each fixed lengthscale: a mark for each, a line through their means. Learned ones of two starts."""
    fixed = [Fitted(2.0**n, 0.5 + n + seed / 10, 0.2 + n + seed / 100) for n in range(3) for seed in (0, 2)]
    short, long = [Fitted(3.0, 0.4, 0.1), Fitted(5.0, 0.3, 0.2)], [Fitted(9.0, 0.35, 0.15)]
    learned, conv = {"learned from 3": short, "learned from 16": long}, [Fitted(np.inf, 0.9, 0.8)]
    sweeps = [Sweep("MNIST", fixed, learned, conv), Sweep("grey CIFAR-10", fixed[:2], learned, conv)]
    figure = drawn(insensitivity_figure(sweeps))
    elbo, other, nll, _ = figure.axes
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][1:3] == [*learned]
    assert [elbo.get_title(loc="left"), other.get_title(loc="left")] == ["MNIST", "grey CIFAR-10"]
    for axes, means, marks, stars, other_stars, level in (
        (elbo, [0.6, 1.6, 2.6], [0.5, 0.7, 1.5, 1.7, 2.5, 2.7], [0.4, 0.3], [0.35], 0.9),
        (nll, [0.21, 1.21, 2.21], [0.2, 0.22, 1.2, 1.22, 2.2, 2.22], [0.1, 0.2], [0.15], 0.8),
    ):
        line, points, diamonds, squares, conv_line = axes.lines
        np.testing.assert_allclose(line.get_xydata().T, [[1, 2, 4], means])
        np.testing.assert_allclose(points.get_xydata().T, [[1, 1, 2, 2, 4, 4], marks])
        np.testing.assert_allclose(diamonds.get_xydata().T, [[3, 5], stars])
        np.testing.assert_allclose(squares.get_xydata().T, [[9], other_stars])
        assert diamonds.get_marker() != squares.get_marker()
        np.testing.assert_allclose(conv_line.get_ydata(), level)
    assert elbo.get_ylabel() == "− ELBO\n(nats per training image)"
