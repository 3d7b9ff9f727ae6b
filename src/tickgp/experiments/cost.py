"""What has been run, what is left, and how long it took."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tickgp.experiments.plan import EXPERIMENTS
from tickgp.experiments.results import is_outdated
from tickgp.experiments.tables import Book, markdown, section
from tickgp.training.config import Config

EARLIER = (
    " Numbers with a † are of GPs that an earlier version of the library made ({} of {}), which learned variances and "
    "lengthscales on another scale ([docs/experiments.md](docs/experiments.md#variances-and-lengthscales))."
)

_COST = """Minutes of training, of GPs also of their start and tests; runs that shared a GPU are counted in full. The
paper trained its models of one layer on a GeForce GTX 1070 "until they converge", and its experiment with joint samples
took roughly 10 days."""


def progress(book: Book) -> str:
    """How many runs are done, the names of those that are not, and how many GPs are of an earlier version."""
    own = _own(book)
    left = [name for name in own if book.run(name) is None]
    shared = "" if len(own) == len(book.cells) else " CNNs are those of the paper's settings."
    missing = f" Still to be made: {_listed(left)}." if left else ""
    gps = {name: run for name in own if (run := book.run(name)) is not None and "model" in run["settings"]}
    earlier = [name for name, run in gps.items() if is_outdated(run)]
    since = EARLIER.format(len(earlier), len(gps)) if earlier else ""
    return f"{len(own) - len(left)} of {len(own)} runs are done.{shared}{missing}{since}"


def cost_table(book: Book) -> str:
    """Minutes of training by experiment and machine, a run that serves several counted once; empty without runs."""
    counted, rows = set[str](), []
    for title, experiment in EXPERIMENTS.items():
        names = [cell.name for cell in experiment.cells(book.scale) if cell.name in _own(book)]
        new = [name for name in names if name not in counted]
        counted |= {*new}
        for is_gp, kind in ((True, "GPs"), (False, "CNNs")):
            some = [name for name in new if isinstance(book.cells[name].settings, Config) == is_gp]
            rows += [[f"{title}: {kind}", *cost] for cost in _costs(book, some)]
    return section("Cost", markdown(["experiment", "runs", "minutes", "machine"], rows), _COST)


def _costs(book: Book, names: list[str]) -> list[list[str]]:
    """Of the runs that are done and were trained, by machine."""
    found = [result for name in names if (result := book.run(name)) is not None and result["seconds"]]
    by_machine = groupby(sorted(found, key=_machine), key=_machine)
    groups = {machine: [result["seconds"] for result in results] for machine, results in by_machine}
    return [[str(len(seconds)), f"{sum(seconds) / 60:.0f}", machine] for machine, seconds in groups.items()]


def _own(book: Book) -> list[str]:
    """Runs that are kept under this scale."""
    return [name for name, cell in book.cells.items() if cell.scale == book.scale]


def _machine(result: dict[str, Any]) -> str:
    machine = result["machine"]
    device = f"{machine['cores']} CPU cores" if machine["device"] == "cpu" else machine["device"]
    return f"{device} (Python {machine['python']}, jax {machine['libraries']['jax']})"


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
