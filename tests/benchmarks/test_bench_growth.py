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
    figure = growth_figure("some machine", measured())
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "inducing patches M", "layers"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["milliseconds per step", "", "peak memory (MB)", ""]
    assert [axes.get_title() for axes in figure.axes] == ["exponent 2.00", "", "exponent 1.00", ""]
