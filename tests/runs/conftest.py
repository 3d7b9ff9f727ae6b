"""One finished run that the tests of this folder share."""

from pathlib import Path

import pytest
from runs.small import SMALL

from tickgp.runs.events import Finished
from tickgp.runs.execute import execute
from tickgp.runs.folder import prepare


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    prepare(SMALL, folder)
    *_, event = execute(folder, command="a command")
    assert isinstance(event, Finished)
    return folder
