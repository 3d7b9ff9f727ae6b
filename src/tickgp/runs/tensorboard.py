"""Training curves for TensorBoard, an extra."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tickgp.runs.events import Report


def tensorboard_writer(folder: Path) -> Callable[[Report], None]:
    """Writes each report it is given as curves into `folder`/tensorboard."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ValueError(
            "--tensorboard needs tensorboardX; install it with: pip install 'tickgp[tensorboard]'"
        ) from None
    writer: Any = None

    def write(report: Report) -> None:
        nonlocal writer
        # Not before there is something to write: until then the folder may be another run's.
        writer = writer or SummaryWriter(str(folder / "tensorboard"))
        curves = {
            "elbo": report.elbo,
            "held_out/nll": report.nll,
            "held_out/error": report.top1_error,
            "train/nll": report.train_nll,
            "jitter": report.jitter,
            "skipped": report.skipped,
        }
        for name, value in curves.items():
            writer.add_scalar(name, value, report.step)
        writer.flush()

    return write
