"""`python -m benchmarks`: options and printing only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from benchmarks.growth import Quantity, exponents, measure_points, memory, quantities
from benchmarks.processes import ChildError, ask_once
from benchmarks.rows import Device, choose_rows
from benchmarks.start import DEFAULT, measure_start
from benchmarks.steps import contenders, measure_rows
from benchmarks.table import markdown, terminal

_CONSOLE, _STATE = Console(), Console(stderr=True)
Where = Annotated[Device | None, arg(help="Where to compute; by default a GPU if there is one.")]
Out = Annotated[Path | None, arg(metavar="FILE", help="The JSON to write; by default in runs/benchmarks.")]
Only = Annotated[tuple[str, ...], arg(metavar="NAME", help="Only these rows.")]


def steps(
    only: Only = (),
    peers: Annotated[bool, arg(help="Measure the peers too.")] = True,
    repeats: Annotated[int, arg(help="Blocks of steps that each contender is timed for.")] = 7,
    gpflow_python: Annotated[str, arg(metavar="PATH", help="The Python that has GPflow.")] = sys.executable,
    torch_python: Annotated[str, arg(metavar="PATH", help="The Python that has PyTorch.")] = sys.executable,
    out: Out = None,
    device: Where = None,
) -> None:
    """Time the training step, ours and the peers' side by side."""
    with _STATE.status("measuring the machine") as status:
        document, place = _new_document("steps", device, rates=True)
        rows = choose_rows(place, only)
        pythons = {"gpflow": gpflow_python, "torch": torch_python, "torch-tf32": torch_python}
        missing: set[str] = set()
        document["rows"] = {}
        wanted = {row: contenders(row, place, peers) for row in rows}
        measured = measure_rows(
            wanted, place, repeats=repeats, pythons=pythons, rates=document["rates"], say=status.update
        )
        for row, result in measured:
            document["rows"][row.name] = result
            for name, times in result["contenders"].items():
                if "missing" in times and name not in missing:
                    missing.add(name)
                    _STATE.print(f"{name} is left out: {times['missing']}", markup=False, highlight=False)
            _CONSOLE.print(terminal(row.name, result, document["rates"]))
            _write(document, out)


def growth(
    only: Annotated[tuple[Quantity, ...], arg(help="Only these quantities.")] = (),
    out: Out = None,
    device: Where = None,
) -> None:
    """Measure how time and memory grow with each size."""
    with _STATE.status("measuring the machine") as status:
        document, place = _new_document("growth", device)
        document["points"] = []
        for quantity, rows in quantities(place, only):
            status.update(f"{quantity} = {', '.join(map(str, rows))}")
            found = measure_points(rows, place)
            document["points"] += [{"quantity": quantity, "value": value, **point} for value, point in found.items()]
            document["exponents"] = exponents(document["points"])
            _write(document, out)
    table = Table("", "value", "ms a step", "peak MB")
    for point in document["points"]:
        if "error" in point:
            table.add_row(point["quantity"], str(point["value"]), Text(point["error"]), "")
        else:
            numbers = f"{point['median_ms']:.3g}", f"{memory(point) / 1e6:.0f}"
            table.add_row(point["quantity"], str(point["value"]), *numbers)
    _CONSOLE.print(table)
    for quantity, found in document["exponents"].items():
        _CONSOLE.print(f"{quantity}: time grows with exponent {found['time']:.2f}, memory with {found['memory']:.2f}")


def plot(
    files: Positional[Annotated[tuple[Path, ...], arg(metavar="FILE", help="What `growth` wrote, in parts or whole.")]],
    /,
    out: Annotated[Path | None, arg(metavar="FILE", help="A .png or .svg; by default beside the first FILE.")] = None,
) -> None:
    """Draw the growth of time and memory."""
    from benchmarks.plot import growth_figure

    if not files:
        raise ValueError("no file was given to plot; give one or more that growth wrote")
    documents, picture = [_read(file) for file in files], out or files[0].with_suffix(".png")
    all_points = [point for document in documents for point in document["points"]]
    growth_figure(documents[0]["machine"]["name"], all_points).savefig(picture, dpi=130)
    _CONSOLE.print(f"drew {picture}", markup=False, highlight=False, soft_wrap=True)


def predict(out: Out = None, device: Where = None) -> None:
    """Time the prediction of 10,000 images with M = 1000."""
    with _STATE.status("predicting"):
        document, place = _new_document("predict", device)
        document["predict"] = found = ask_once("predict", {"num_inducing": 1000, "num_images": 10_000}, place)
    _CONSOLE.print(f"{found['median_s']:.2f} s for {found['num_images']} images; first {found['first_s']:.1f} s")
    _write(document, out)


def precision(out: Out = None, device: Where = None) -> None:
    """Measure what float32 loses, in values and in gradients."""
    with _STATE.status("measuring"):
        document, place = _new_document("precision", device)
        document["sizes"] = {"M": 384, "N": 32}
        document["errors"] = ask_once("precision", document["sizes"], place)
    table = Table("", "", "relative error")
    for function, errors in document["errors"].items():
        for name, error in errors.items():
            table.add_row(function, name, f"{error:.1e}")
    _CONSOLE.print(table)
    _write(document, out)


def rounding(
    data_dir: Annotated[Path | None, arg(metavar="DIR", help="Where MNIST is, or is put.")] = None,
    steps: Annotated[int, arg(help="Steps of training.")] = 3000,
    M: Annotated[int, arg(help="Inducing patches.")] = 384,
    B: Annotated[int, arg(help="Images in a batch.")] = 32,
    out: Out = None,
    device: Where = None,
) -> None:
    """Train with rounded and with exact matrix products, and compare the ELBO."""
    with _STATE.status("training"):
        document, place = _new_document("rounding", device)
        document["settings"] = {"steps": steps, "M": M, "B": B}
        spec = {**document["settings"], "data_dir": None if data_dir is None else str(data_dir)}
        document["elbo"] = ask_once("rounding", spec, place)
    table = Table("", "rounded", "exact")
    for model, found in document["elbo"].items():
        table.add_row(model, *(f"{found[kind][-1]:.0f}" for kind in ("rounded", "exact")))
    _CONSOLE.print(table)
    _write(document, out)


def start(only: Only = (), out: Out = None, device: Where = None) -> None:
    """Time the first step of a fresh process, with a cold and with a warm compilation cache."""
    with _STATE.status("measuring the machine") as status:
        document, place = _new_document("start", device)
        document["rows"] = {}
        table = Table("", "cache", "first step", "whole process")
        for row in choose_rows(place, only or DEFAULT[place]):
            status.update(row.name)
            document["rows"][row.name] = found = measure_start(row, place)
            for state, seconds in found.items():
                table.add_row(row.name, state, f"{seconds['first_step_s']:.1f} s", f"{seconds['process_s']:.1f} s")
            _write(document, out)
    _CONSOLE.print(table)


def unusual(
    runs: Positional[
        Annotated[
            tuple[Path, ...],
            arg(metavar="RUN", help="Folders of finished runs on MNIST, or mnist-tick, which is included."),
        ]
    ],
    /,
    images: Annotated[int, arg(help="Images of each kind, at most.")] = 2000,
    seed: Annotated[int, arg(help="Of the noise, and of where images are shifted to.")] = 0,
    data_dir: Annotated[Path | None, arg(metavar="DIR", help="Where the data are, or are put.")] = None,
    out: Out = None,
    device: Where = None,
) -> None:
    """Count what models of MNIST's digits hand over to a person of images of other kinds."""
    from benchmarks.unusual import make_kinds, measure, terminal, versions
    from tickgp.cli.device import set_up
    from tickgp.runs.model_file import load_config

    if not runs or images < 1:
        raise ValueError("give a run, such as mnist-tick, and --images of at least 1")
    with _STATE.status("reading the images") as status:
        document, place = _new_document("unusual", device)
        document["machine"]["versions"] |= versions()
        document |= {"settings": {"images": images, "seed": seed}, "runs": {}}
        kinds = make_kinds(data_dir, images, seed)
        for run in runs:
            set_up(place, float64=load_config(run).model.float64)
            document["runs"][str(run)] = found = measure(run, kinds, data_dir, status.update)
            _CONSOLE.print(terminal(str(run), found))
            _write(document, out)


def table(
    files: Positional[Annotated[tuple[Path, ...], arg(metavar="FILE", help="What `steps` or `unusual` wrote.")]],
    /,
) -> None:
    """Print the results of `steps` or of `unusual` as markdown."""
    from benchmarks.unusual import markdown as unusual_table

    documents = [_read(file) for file in files]
    if steps := [document for document in documents if document["kind"] != "unusual"]:
        print(markdown(steps), end="")
    for document in documents:
        for found in document["runs"].values() if document["kind"] == "unusual" else ():
            print(unusual_table(found))


def _new_document(kind: str, device: Device | None, *, rates: bool = False) -> tuple[dict[str, Any], Device]:
    """What every JSON begins with, and the device that is measured."""
    try:
        found = ask_once("machine", {"rates": rates}, device)
    except ChildError as error:
        raise ValueError(
            f"no {device or 'device'} can be used ({error}); install jax for it, or give another --device"
        ) from None
    document = {"kind": kind, "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": found["machine"]}
    return document | ({"rates": found["rates"]} if rates else {}), cast(Device, found["machine"]["device"])


def _write(document: dict[str, Any], out: Path | None) -> None:
    path = out or Path("runs/benchmarks") / f"{document['kind']}-{document['machine']['device']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def main() -> None:
    """Exit 0, or 1 with one line that says what went wrong."""
    app = tyro.extras.SubcommandApp()
    commands: tuple[Callable[..., None], ...] = (
        *(steps, growth, plot, predict, precision, rounding, start),
        *(unusual, table),
    )
    for command in commands:
        app.command(name=command.__name__)(command)
    try:
        app.cli(prog="python -m benchmarks", description="Speed and memory, side by side with peers.")
    except KeyboardInterrupt:
        sys.exit(130)
    except (ChildError, ValueError, OSError) as error:
        _STATE.print(f"benchmarks: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
