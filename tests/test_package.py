"""What a stranger meets first: the import, the names, the command."""

import ast
import inspect
import subprocess
import sys

import pytest

import tickgp


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=False)


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
        (["train", "--model", "nothing"], 2, "tick"),
        (["nothing"], 2, "train"),
        (["train", "--patch-size", "9"], 1, "patch 9x9 does not fit in image 8x8"),
        (["train", "--max-steps", "0"], 1, "0 steps"),
        (["train", "--num-inducing", "100000"], 1, "use at most"),
    ],
)
def test_wrong_use_is_said_in_a_line(arguments, code, words):
    result = run("-m", "tickgp", *arguments)
    assert result.returncode == code
    assert words in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_data_lists_the_digits():
    assert "digits" in run("-m", "tickgp", "data").stdout
