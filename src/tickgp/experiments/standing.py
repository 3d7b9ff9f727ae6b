"""How far our GPs are from the paper's numbers, counted by a rule: what RESULTS.md begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tickgp.experiments import paper_numbers as paper
from tickgp.experiments.cells import FEW, MANY
from tickgp.experiments.plan import DATASETS, DEEP_DATASETS, KERNELS, SHALLOW
from tickgp.experiments.tables import METRICS, NEGATIVE_ELBO, Book, markdown, paragraphs, section

_LAYERS = {1: "one layer", 2: "two layers", 3: "three layers"}
_STANDING = """By how much our numbers differ from the paper's. Equal: ours is the paper's when rounded as that is
printed. Bold, and beyond our interval: the 95 % interval of ours has no number that would be printed as the paper's.
ELBOs have no interval. How many draws the paper's predictions have: [docs/claims.md](docs/claims.md#draws)."""

_COMPARED = {"top1_error": "top-1 error", "nll": "NLL", "nll_misses": "NLL of misses"}
"""The last is not in table 2."""


@dataclass(frozen=True)
class Compared:
    """A number of ours with its interval, if it has one, and the paper's, as it is printed; in the same units."""

    ours: float
    interval: tuple[float, float] | None
    theirs: str

    @property
    def difference(self) -> float:
        """Of ours, relative to the paper's."""
        return self.ours / float(self.theirs) - 1

    @property
    def side(self) -> int:
        """1 if ours is higher, −1 if it is lower, 0 if it is the paper's when rounded to the paper's digits."""
        low, high = _printed(self.theirs)
        return int(self.ours > high) - int(self.ours < low)

    @property
    def is_beyond(self) -> bool:
        """Whether no number that rounds to the paper's lies in our interval."""
        low, high = _printed(self.theirs)
        return self.interval is not None and not (self.interval[0] <= high and low <= self.interval[1])


def _printed(number: str) -> tuple[float, float]:
    """The range of numbers that round to this one."""
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    return float(number) - half, float(number) + half


@dataclass(frozen=True)
class _Row:
    """A GP of one of the paper's tables."""

    table: int
    title: str
    run: str
    theirs: dict[str, str]
    on: str = "test"


def _rows() -> Iterator[_Row]:
    for dataset, title in DATASETS.items():
        for model, words in SHALLOW.items():
            yield _Row(1, f"Table 1, {title}: {words}", f"{dataset}/{model}", paper.TABLE1[dataset][model])
    for dataset, title in DEEP_DATASETS.items():
        for depth, layers in _LAYERS.items():
            for kernel, words in KERNELS.items():
                row = f"Table 2, {title}, {layers}: {words}"
                yield _Row(2, row, f"{dataset}/deep-{kernel}-{depth}", paper.TABLE2[dataset][kernel][depth])
    for kernel, words in KERNELS.items():
        yield _Row(3, f"Table 3, Semeion: {words}", f"mnist/{kernel}", paper.TABLE3[kernel], on="semeion")


def standing(book: Book) -> str:
    """What the page begins with; empty without runs."""
    tables = paragraphs(counts_table(book), standing_table(book))
    return section("Beside the paper's numbers", tables, _STANDING)


def _compared(book: Book, row: _Row, metric: str, way: str) -> Compared | None:
    scores = book.scores(row.run, way, on=row.on)
    if scores is None or metric not in row.theirs or scores["test"][metric] is None:
        return None
    factor = 100 if metric.endswith("error") else 1
    between = [factor * bound for bound in scores["interval"].get(metric, ())]
    return Compared(factor * scores["test"][metric], (between[0], between[1]) if between else None, row.theirs[metric])


def _compared_elbo(book: Book, row: _Row) -> Compared | None:
    result = book.run(row.run)
    if result is None or "negative_elbo" not in row.theirs:
        return None
    return Compared(-result["elbo"] / 1000, None, row.theirs["negative_elbo"])


def standing_table(book: Book) -> str:
    """By how many per cent each GP differs from the paper's; bold beyond our interval. Empty without runs."""
    rows = []
    for row in _rows():
        found = [_compared(book, row, metric, way) for metric in _COMPARED for way in (MANY, FEW)]
        if any(found):
            rows.append([f"{row.title}{book.mark(row.run)}", *map(_per_cent, [*found, _compared_elbo(book, row)])])
    scores = (f"{words}, S = {S}" for words in _COMPARED.values() for S in (MANY, FEW))
    return markdown(["ours against the paper's", *scores, "− ELBO"], rows)


def _per_cent(compared: Compared | None) -> str:
    if compared is None:
        return ""
    rounded = round(100 * compared.difference)
    shown = f"{rounded:+} %".replace("-", "−") if rounded else "0 %"
    return f"**{shown}**" if compared.is_beyond else shown


def counts_table(book: Book) -> str:
    """How many of tables 1 and 2 are higher or lower than the paper's; empty without runs."""
    rows, parts = [], [row for row in _rows() if row.table < 3]
    for metric in _COMPARED:
        for S in (MANY, FEW):
            rows.append([f"{METRICS[metric]}, S = {S}", *_counts([_compared(book, row, metric, S) for row in parts])])
    rows.append([NEGATIVE_ELBO, *_counts([_compared_elbo(book, row) for row in parts])])
    heads = ["GPs of tables 1 and 2", "numbers", "higher (worse)", "beyond our interval", "equal", "lower (better)"]
    return markdown([*heads, "beyond our interval"], rows) if any(row[1] != "0" for row in rows) else ""


def _counts(compared: list[Compared | None]) -> list[str]:
    found = [each for each in compared if each is not None]
    sides = {side: [each for each in found if each.side == side] for side in (1, 0, -1)}
    judged = any(each.interval for each in found)
    beyond = {side: str(sum(each.is_beyond for each in some)) if judged else "" for side, some in sides.items()}
    numbers = {side: str(len(some)) for side, some in sides.items()}
    return [str(len(found)), numbers[1], beyond[1], numbers[0], numbers[-1], beyond[-1]]
