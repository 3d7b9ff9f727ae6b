"""A small run, and what equal runs have in common."""

import json
from pathlib import Path

from tickgp.training.config import Config, ModelConfig, TrainingConfig

SMALL = Config(
    prediction_samples=5,
    model=ModelConfig(num_inducing=10),
    training=TrainingConfig(max_steps=30, batch_size=16, report_every=5, checkpoint_every=10),
)


def untimed(folder: Path) -> list[dict]:
    """The lines of metrics.jsonl without their seconds: the only thing in which equal runs differ."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(line.pop("seconds") > 0 for line in lines)
    return lines
