"""What a stranger meets first: the import, the names, the command."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tickgp


def run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    full = [sys.executable, *command]
    return subprocess.run(full, capture_output=True, text=True, timeout=300, check=False, cwd=cwd)


@pytest.mark.parametrize("statement", ["import tickgp", "import tickgp.cli"])
def test_import_loads_nothing_heavy(statement):
    check = (
        f"import sys; {statement}; print([m for m in ('jax', 'matplotlib', 'sklearn', 'numpy') if m in sys.modules])"
    )
    assert run("-c", check).stdout.strip() == "[]"


def test_the_names_type_checkers_see_are_those_that_load():
    block = next(node for node in ast.parse(inspect.getsource(tickgp)).body if isinstance(node, ast.If))
    seen = {
        (node.module, alias.name) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == {(home, name) for name, home in tickgp._HOME.items()}
    for home, name in seen:
        assert getattr(tickgp, name).__module__.startswith(home)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tickgp.nothing  # noqa: B018


def test_help_names_the_commands():
    result = run("-m", "tickgp", "--help")
    assert result.returncode == 0
    assert "train" in result.stdout
    assert "data" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "--patch-size", "9"], 2, "patch 9x9 does not fit in image 8x8"),
        (["train", "--num-inducing", "100000"], 2, "use at most"),
        (["reproduce", "table1", "--only", "mnist/nothing"], 2, "there is no run mnist/nothing here"),
    ],
)
def test_wrong_use_is_said_in_a_line(arguments, code, words, tmp_path):
    result = run("-m", "tickgp", *arguments, cwd=tmp_path)
    assert result.returncode == code
    assert words in result.stderr.splitlines()[-1]
    assert result.stderr.count("tickgp: ") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--model", "nothing"], "tick"),
        (["nothing"], "train"),
        (["reproduce", "nothing"], "full-covariance"),
        (["train", "--max-steps", "0"], "max-steps 0 was given"),
    ],
)
def test_options_that_are_wrong_are_said_in_a_box(arguments, words, tmp_path):
    """Of the library that reads them, which folds its lines."""
    result = run("-m", "tickgp", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert words in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_data_lists_the_digits():
    assert "digits" in run("-m", "tickgp", "data").stdout


@pytest.mark.slow
def test_what_make_train_runs_is_below_two_percent(tmp_path):
    result = run("-m", "tickgp", "train", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["test"]["top1_error"] < 0.02
