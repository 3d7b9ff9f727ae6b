"""The results of `steps` as a person reads them: in the terminal, and as markdown for docs/performance.md."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from benchmarks.floor import count
from benchmarks.rows import Row

OURS, DEFAULT = "tickgp", "tickgp-default"
_HEAD = ("step", "ours", "ours by default", "peers", "ratio", "target", "floor", "share", "peak memory")


def markdown(documents: list[dict[str, Any]]) -> str:
    """A table for each machine, versions and day, below a line that names them."""
    tables: dict[str, list[tuple[str, ...]]] = {}
    for document in documents:
        lines = [_cells(name, row, document["rates"]) for name, row in document["rows"].items()]
        tables.setdefault(_heading(document), [_HEAD, ("---",) * len(_HEAD)]).extend(lines)
    return "\n".join(f"{heading}\n\n{_drawn(lines)}" for heading, lines in tables.items())


def _drawn(lines: list[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _heading(document: dict[str, Any]) -> str:
    """Machine, versions, date; peers by the versions of the first row that they ran in."""
    machine, versions = document["machine"], dict(document["machine"]["versions"])
    for row in document["rows"].values():
        for name, result in row["contenders"].items():
            if name not in (OURS, DEFAULT):
                versions |= {n: v for n, v in result.get("versions", {}).items() if n not in versions}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    where = (
        f"{machine['cores']} cores" if machine["device"] == "cpu" else f"{machine['cores']} cores of {machine['cpu']}"
    )
    return f"{machine['name']}, {where}; {listed}; {document['date'][:10]}."


def _cells(name: str, row: dict[str, Any], rates: dict[str, float]) -> tuple[str, ...]:
    contenders, floor = row["contenders"], floor_of(row, rates)
    ours = contenders[OURS]
    peers = {n: r for n, r in contenders.items() if n not in (OURS, DEFAULT) and "missing" not in r}
    ratios = [_ratio(result, ours) for result in peers.values()]
    return (
        name,
        _speed(ours),
        _speed(contenders.get(DEFAULT, {})),
        "; ".join(f"{n} {_speed(result)}" for n, result in peers.items()),
        "; ".join(ratios),
        row["target"],
        f"{floor['ms']:.3g} ms ({floor['bound']})",
        _share(ours, floor),
        "; ".join([_memory(ours), *(f"{n} {_memory(result)}" for n, result in peers.items() if "error" not in result)]),
    )


def floor_of(row: dict[str, Any], rates: dict[str, float]) -> dict[str, Any]:
    """Counted anew from the sizes, so that a stored row has the floor of today."""
    return count(Row.from_json(row["sizes"])).at(rates)


def terminal(name: str, row: dict[str, Any], rates: dict[str, float]) -> Table:
    """A row's contenders, one a line; below them what there is to say of each."""
    floor, contenders = floor_of(row, rates), row["contenders"]
    words = {n: result.get("note") or result.get("error") for n, result in contenders.items()}
    table = Table(
        *("", "ms a step", "it/s", "peak memory", "of the floor"),
        title=Text(f"{name}: floor {floor['ms']:.3g} ms ({floor['bound']})"),
        caption=Text("\n".join(f"{n}: {said}" for n, said in words.items() if said)),
    )
    for contender, result in contenders.items():
        if "median_ms" not in result:
            table.add_row(contender)
            continue
        low, high = result["quartiles_ms"]
        table.add_row(
            contender,
            f"{result['median_ms']:.3g} ({low:.3g} – {high:.3g})",
            _number(result["per_second"]),
            _memory(result),
            _share(result, floor),
        )
    return table


def _speed(result: dict[str, Any]) -> str:
    if "median_ms" not in result:
        return result.get("error", "")
    return f"{result['median_ms']:.3g} ms ({_number(result['per_second'])} it/s)"


def _ratio(peer: dict[str, Any], ours: dict[str, Any]) -> str:
    """How many times as fast ours is."""
    both = "median_ms" in peer and "median_ms" in ours
    return f"{peer['median_ms'] / ours['median_ms']:.2f} ×" if both else "–"


def _share(result: dict[str, Any], floor: dict[str, Any]) -> str:
    return f"{100 * floor['ms'] / result['median_ms']:.0f} %" if "median_ms" in result else ""


def _memory(result: dict[str, Any]) -> str:
    """Above libraries and data; on a CPU also without compilation, and with libraries and data."""
    if "peak_bytes" not in result:
        return ""
    peak, steady, whole = (result[f"{name}peak_bytes"] for name in ("", "steady_", "process_"))
    more = "" if steady is None else f" (compiled {steady / 1e9:.2f}, process {whole / 1e9:.2f})"
    return f"{peak / 1e9:.2f} GB{more}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
