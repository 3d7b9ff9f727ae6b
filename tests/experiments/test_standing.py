"""Where our numbers stand beside the paper's: what is higher, what lies beyond an interval, and by how much."""

import pytest
from experiments.tiny import write

from tickgp.experiments.standing import Compared, counts_table, standing_table
from tickgp.experiments.tables import Book


@pytest.mark.parametrize(
    ("ours", "interval", "theirs", "side", "is_beyond"),
    [
        (0.84, (0.67, 1.04), "0.67", 1, False),
        (0.84, (0.68, 1.04), "0.67", 1, True),
        (0.84, (0.6749, 1.04), "0.67", 1, False),  # what rounds to 0.67 reaches up to 0.675
        (0.026, (0.024, 0.03), "0.02", 1, False),
        (0.024, (0.021, 0.028), "0.02", 0, False),
        (0.05, (0.04, 0.056), "0.057", -1, True),
        (2.4, (2.1, 2.6), "2", 0, False),
        (6.7, None, "8.29", -1, False),
    ],
)
def test_the_papers_number_is_any_that_rounds_to_it(ours, interval, theirs, side, is_beyond):
    compared = Compared(ours, interval, theirs)
    assert (compared.side, compared.is_beyond) == (side, is_beyond)


def result(error: tuple, nll: tuple, elbo: float) -> dict:
    score = {
        "test": {"top1_error": error[0], "nll": nll[0]},
        "interval": {"top1_error": error[1:], "nll": nll[1:]},
    }
    better = {
        "test": {"top1_error": 0.9 * error[0], "nll": nll[0]},
        "interval": {"top1_error": [0.9 * each for each in error[1:]], "nll": nll[1:]},
    }
    return {"metrics": {"test": {"5": score, "100": better}}, "elbo": elbo}


def test_differences_are_relative_and_bold_beyond_the_interval(tmp_path):
    """Table 2, MNIST, two layers: the paper has 0.96, 0.04, 5.37 with Conv, and 0.67, 0.02, 4.25 with TICK."""
    assert standing_table(Book(tmp_path, "paper")) == counts_table(Book(tmp_path, "paper")) == ""
    write(tmp_path, "mnist/deep-conv-2", result((0.0109, 0.0098, 0.012), (0.06, 0.05, 0.07), -5000.0))
    write(tmp_path, "mnist/deep-tick-2", result((0.0067, 0.0060, 0.008), (0.01, 0.005, 0.0249), -4300.0))
    book = Book(tmp_path, "paper")
    _, _, conv, tick = standing_table(book).splitlines()
    assert conv == "| Table 2, MNIST, two layers: Conv | +2 % | **+14 %** | **+50 %** | **+50 %** |  |  | −7 % |"
    assert tick == "| Table 2, MNIST, two layers: TICK | −10 % | 0 % | −50 % | −50 % |  |  | +1 % |"
    counts = [line.split("|")[2:-1] for line in counts_table(book).splitlines()[2:]]
    many, few, nll, _, misses, _, elbo = [[cell.strip() for cell in row] for row in counts]
    assert few == ["2", "1", "1", "1", "0", "0"]
    assert many == ["2", "1", "0", "0", "1", "0"]
    assert nll == ["2", "1", "1", "0", "1", "0"]
    assert misses == ["0", "0", "", "0", "0", ""], "table 2 does not have it"
    assert elbo == ["2", "1", "", "0", "1", ""]


def test_the_nll_of_misses_is_compared_where_there_are_enough(tmp_path):
    """The paper has 1.97 with Conv on MNIST, and 1.70 with TICK; of fewer than ten misses there is no interval."""
    scores = {"test": {"top1_error": 0.02, "nll": 0.05}, "interval": {"top1_error": (0.01, 0.03), "nll": (0.04, 0.06)}}
    for name, nll, interval in (("conv", 2.364, {"nll_misses": (2.1, 2.5)}), ("tick", 1.87, {}), ("se", None, {})):
        found = {"test": scores["test"] | {"nll_misses": nll}, "interval": scores["interval"] | interval}
        write(tmp_path, f"mnist/{name}", {"metrics": {"test": {"100": found}, "semeion": {}}, "elbo": -1.0})
    table = standing_table(Book(tmp_path, "paper")).splitlines()[2:]
    assert [line.split(" | ")[5:7] for line in table[:3]] == [["", ""], ["**+20 %**", ""], ["+10 %", ""]]
