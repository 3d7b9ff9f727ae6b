"""How a run was made: its command and its data, the software and the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tickgp
from tickgp.data.dataset import Dataset
from tickgp.runs.folder import read_json, write_json
from tickgp.training.config import Config

MACHINE = ("tickgp", "git", "python", "libraries", "device", "cpu", "cores")
"""What a manifest says of the machine and the software that a run was made with."""

_LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")


def write_manifest(folder: Path, config: Config, data: Dataset, command: str, device: str, seconds: float) -> None:
    """How a run was made. The command is the one that began it, and, if that is another, the one that finished it."""
    path = folder / "manifest.json"
    before = read_json(path)["command"] if path.is_file() else ""
    content = {
        "command": command if not before else before if before.endswith(command) else f"{before} && {command}",
        "seed": config.seed,
        "dataset": {
            "name": data.name,
            "sha256": data.sha256(),
            "labels_sha256": data.labels_sha256(),
            "images": sum(map(len, data.parts)),
        },
        "notes": list(data.notes),
        "seconds": round(seconds, 1),
        **machine(device),
    }
    write_json(path, content)


def machine(device: str) -> dict[str, Any]:
    """What a run is made with here: see `MACHINE`."""
    return {
        "tickgp": tickgp.__version__,
        "git": _git_hash(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in _LIBRARIES},
        "device": device,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _cpu() -> str:
    """The name of the processor, as far as the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git_hash() -> str | None:
    """The commit of the source this runs from, with a + if files differ from it; None if it is no git checkout."""
    source = Path(__file__).parent
    git = lambda *words: (
        subprocess.run(("git", "-C", source, *words), capture_output=True, text=True, check=True).stdout
    )
    try:
        if not git("ls-files", "--", Path(__file__).name):
            return None
        return git("rev-parse", "HEAD").strip() + ("+" if git("status", "--porcelain", "--", source.parent) else "")
    except (OSError, subprocess.CalledProcessError):
        return None
