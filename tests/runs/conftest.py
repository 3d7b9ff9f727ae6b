"""One finished run that the tests of this folder share."""

from pathlib import Path

import pytest

from tickgp.runs.events import Finished
from tickgp.runs.execute import execute
from tickgp.runs.folder import prepare
from tickgp.training.config import Config, ModelConfig, TrainingConfig

SMALL = Config(
    prediction_samples=5,
    model=ModelConfig(num_inducing=10),
    training=TrainingConfig(max_steps=30, batch_size=16, report_every=5, checkpoint_every=10),
)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    prepare(SMALL, folder)
    *_, event = execute(folder, command="a command")
    assert isinstance(event, Finished)
    return folder
