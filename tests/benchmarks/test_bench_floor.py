"""The floor's counts against loops that do one thing after the other and count what they do."""

import pytest

from benchmarks.floor import Floor, count
from benchmarks.rows import Row

ROW = Row("one", (7, 6, 2), M=3, B=2)
DEEP = Row("two", (11, 10, 1), M=3, B=2, depth=2, channels=2)
P, E = 6, 50  # of ROW: 3×2 corners, 5·5·2 numbers
DEEP_1 = (7 * 6, 25)
DEEP_2 = (3 * 2, 50)


def test_sums_over_patches() -> None:
    cross = self = gradients = 0
    for _ in range(2):  # images
        for p in range(P):
            for _ in range(3):  # inducing patches
                product = sum(2 for _ in range(E))
                cross += product + 4  # forward
                cross += product + 4  # backward: the value again
                gradients += product  # and what it adds to the gradient by its inducing patch
            for _ in range(p + 1):  # pairs of patches of one image
                product = sum(2 for _ in range(E))
                self += 2 * (product + 4)
    flops = count(ROW).flops
    for _ in range(6):  # pairs of inducing patches, p ≤ q: both are moved
        gradients += 2 * sum(2 for _ in range(E))
    assert flops["Kuf"] == cross
    assert flops["Kff"] == self
    assert flops["gradients of k"] == gradients


def test_deeper_layers_have_gradients_by_their_images() -> None:
    (P1, E1), (P2, E2) = DEEP_1, DEEP_2
    flops = count(DEEP).flops
    assert flops["Kuf"] == 3 * 2 * P1 * (2 * E1 + 4) + 3 * 2 * P2 * 2 * (2 * E2 + 4)
    assert flops["Kff"] == 2 * 21 * 2 * (2 * E2 + 4)
    hidden = 3 * 2 * P1 * 2 * E1 + 6 * 2 * 2 * E1
    last = 3 * 2 * P2 * (2 * E2 + 2 * E2) + 2 * 21 * 2 * 2 * E2 + 6 * 2 * 2 * E2
    assert flops["gradients of k"] == hidden + last


def test_factor_and_inverse_of_a_matrix() -> None:
    """Loops over entries: multiply-adds count two. The floor leaves out what grows with M² only."""
    M = 40
    cholesky = sum(2 * j for i in range(M) for j in range(i + 1))
    inverse = sum(2 * (i - j) for i in range(M) for j in range(i))
    lower_lower = sum(2 * (i - j + 1) for i in range(M) for j in range(i + 1))
    upper_lower = sum(2 * (M - max(i, j)) for i in range(M) for j in range(M))
    flops = count(Row("", ROW.image, M=M, B=1)).flops
    assert flops["Cholesky"] == pytest.approx(cholesky, rel=0.05)
    assert flops["inverse"] == pytest.approx(inverse, rel=0.05)
    assert flops["Cholesky gradient"] == pytest.approx(lower_lower + upper_lower, rel=0.1)


def test_products_with_q_sqrt_and_the_projection() -> None:
    marginal, correlated = (count(Row("", DEEP.image, 3, 2, 2, 2, how)).flops for how in ("marginal", "correlated"))
    columns = 2 * DEEP_1[0]
    assert marginal["projection"] == 9 * columns + 9 * 2
    assert marginal["projection gradient"] == 2 * marginal["projection"]
    assert marginal["mean"] == correlated["mean"] == 6 * 3 * (2 * columns + 10 * 2)
    assert marginal["q_sqrt"] == 3 * 9 * (2 * columns + 10 * 2)
    assert correlated["q_sqrt"] == 2 * 9 * 2 * 2 + 3 * 9 * 10 * 2


def test_bytes_are_those_of_adam_and_the_batch() -> None:
    numbers = 10 * (1 + 2 + 3) + 10 * 3 + 3 * E + 3 * 2 + P
    assert count(ROW).bytes == {"Adam": 7 * 4 * numbers, "batch": 2 * 7 * 6 * 2}


@pytest.mark.parametrize(("copy", "ms", "bound"), [(1e9, 3.5, "compute"), (1e6, 5.0, "memory")])
def test_the_slower_of_the_two_bounds(copy: float, ms: float, bound: str) -> None:
    floor = Floor({"a": 1e6, "b": 2e6, "q_sqrt": 3e6}, {"c": 5e3})
    times = floor.at({"exact": 1e9, "default": 6e9, "copy": copy})
    assert (times["ms"], times["bound"]) == (pytest.approx(ms), bound)
