"""Fitted exponents, and their picture."""

from typing import Any

import pytest

from benchmarks.growth import VALUES, exponents, power_law, quantities
from benchmarks.plot import growth_figure


def measured() -> list[dict[str, Any]]:
    """Time 3 M² with a constant 50 ms below it at the smallest, memory 7 M; a point that failed; one of depth."""
    good = [
        {"quantity": "M", "value": M, "median_ms": 3.0 * M**2 + (50 if M == 1 else 0), "peak_bytes": 7 * M}
        for M in (1, 10, 20, 40)
    ]
    failed = {"quantity": "M", "value": 80, "error": "out of memory"}
    return [*good, failed, {"quantity": "depth", "value": 1, "median_ms": 1.0, "peak_bytes": 5}]


def test_power_law() -> None:
    x = [2.0, 3.0, 7.0, 20.0]
    assert power_law(x, [0.4 * v**2.5 for v in x]) == pytest.approx((2.5, 0.4))


def test_exponents_of_the_last_points() -> None:
    assert exponents(measured()) == {"M": {"time": pytest.approx(2), "memory": pytest.approx(1)}}


def test_on_a_cpu_memory_is_that_after_compilation() -> None:
    steady = [{**point, "steady_peak_bytes": 2 * point["value"] ** 3} for point in measured() if "median_ms" in point]
    assert exponents(steady)["M"]["memory"] == pytest.approx(3)


def test_points_change_one_size_at_a_time() -> None:
    assert [list(rows) for _, rows in quantities("cpu", ("depth",))] == [[1, 2, 3]]
    found = dict(quantities("gpu"))
    assert {quantity: tuple(rows) for quantity, rows in found.items()} == VALUES["gpu"]
    rows = {(quantity, value): row for quantity, several in found.items() for value, row in several.items()}
    assert rows["side", 96].image == (96, 96, 1)
    assert rows["M", 384 // 3].B == rows["channels", 8].B == 32
    assert (rows["B", 64].depth, rows["channels", 8].depth, rows["depth", 3].depth) == (1, 2, 3)


def test_picture_has_a_column_for_each_quantity() -> None:
    """In the same order whichever was measured first."""
    for points in (measured(), measured()[-1:] + measured()[:-1]):
        figure = growth_figure("some machine", points)
        assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "inducing patches M", "layers"]
        assert [axes.get_ylabel() for axes in figure.axes] == ["milliseconds per step", "", "peak memory (MB)", ""]
        assert [axes.get_title() for axes in figure.axes] == ["exponent 2.00", "", "exponent 1.00", ""]


def times(quantity: str, values: dict[int, float]) -> list[dict[str, Any]]:
    return [{"quantity": quantity, "value": x, "median_ms": ms, "peak_bytes": 1} for x, ms in values.items()]


@pytest.mark.parametrize(("last", "exponent"), [(16.0, "exponent 2.00"), (18.0, "exponent 2.08"), (21.0, "")])
def test_only_points_on_a_power_law_have_an_exponent(last: float, exponent: str) -> None:
    """From 4 to 18 the exponent is 2.17, 0.08 above the fitted one; from 4 to 21 it is 2.39, and 2.20."""
    axes = growth_figure("some machine", times("B", {1: 9.0, 2: 1.0, 4: 4.0, 8: last})).axes[0]
    assert axes.get_title() == exponent
    assert [len(line.get_xdata()) for line in axes.lines] == [4] + [3] * bool(exponent)


def test_layers_have_no_exponent() -> None:
    axes = growth_figure("some machine", times("depth", {1: 1.0, 2: 2.0, 3: 3.0})).axes[0]
    assert axes.get_title() == ""
    assert len(axes.lines) == 1


def test_picture_says_what_its_lines_and_axes_are() -> None:
    figure = growth_figure("some machine", measured())
    measurements, law = (text.get_text() for text in figure.legends[0].get_texts())
    assert (measurements, law.startswith("power law of the last 3 points")) == ("measured", True)
    assert figure.get_suptitle() == "some machine: a training step, all axes logarithmic"
    assert {axes.get_xscale() for axes in figure.axes} | {axes.get_yscale() for axes in figure.axes} == {"log"}
