"""docs/paper.md is a map: every home exists and carries its tag, and no tag of the code is missing from the map."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tickgp

ROOT = Path(__file__).parents[1]


def tags(docstring: str | None) -> set[str]:
    found = re.findall(r"^\s*Paper: (.+)$", docstring or "", flags=re.MULTILINE)
    return {tag.strip() for line in found for tag in line.split(";")}


def mapped() -> set[tuple[str, str]]:
    """(tag, name) for every home in the tables that have tags."""
    rows = [
        line.strip("|").split("|") for line in (ROOT / "docs/paper.md").read_text().splitlines() if "`tickgp." in line
    ]
    return {(row[0].strip(), name) for row in rows if len(row) == 3 for name in re.findall(r"`(tickgp[\w.]+)`", row[2])}


def tagged() -> set[tuple[str, str]]:
    """(tag, name) for every docstring of the package that carries a tag."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found |= {(tag, f"{module}.{node.name}") for tag in tags(ast.get_docstring(node))}
    return found


def test_the_map_and_the_code_agree():
    assert mapped() == tagged()


def test_the_map_is_not_empty():
    assert ("eq. tick", "tickgp.gp.convolution.PatchResponse") in mapped()


def test_every_name_in_the_docs_exists():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    names = {name for page in pages for name in re.findall(r"`(tickgp(?:\.\w+)+)`", page.read_text())}
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def code(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def run(page: str) -> dict[str, Any]:
    """All names after the code of a page, whose results have the shapes that stand beside them."""
    names: dict[str, Any] = {}
    for block in code(page):
        exec(block, names)
        for line, shape in re.findall(r"^(\w.*\S)  # (\([\d, ]+\))", block, flags=re.MULTILINE):
            assert eval(line, names).shape == ast.literal_eval(shape), line
    return names


@pytest.mark.slow
def test_the_page_on_several_outputs():
    """Its model is close to sin(3x) and to its derivative: within their noise, whose deviation is 0.1."""
    names = run("docs/multioutput.md")
    mean = names["model"].propagate(names["x"], key=jax.random.key(2)).mean
    assert np.abs(mean - names["y"]).max() < 0.1


def test_the_page_on_changing_it(tmp_path, monkeypatch, capsys):
    """Its kernel is 1/(1 + r²), so −c''(0) = 2; its polynomial has a bound; its model comes back from the file."""
    monkeypatch.chdir(tmp_path)
    names = run("docs/extending.md")
    np.testing.assert_allclose(names["Cauchy"](1.3, 0.5).at_zero(), (1.3, 2 * 1.3 / 0.5**2), rtol=1e-6)
    assert -np.inf < float(capsys.readouterr().out) < 0
    empty = jax.tree.map(jnp.zeros_like, names["model"])
    assert not eqx.tree_equal(empty, names["model"])
    assert eqx.tree_equal(tickgp.load_tree("own.safetensors", like=empty), names["model"])


def test_three_lines_fit_predict_and_save(tmp_path):
    """With fewer steps than on the page."""
    lines, *_ = code("README.md")
    short = lines.replace("random_state=0", "random_state=0, max_steps=100")
    assert short != lines
    assert len([line for line in lines.splitlines() if "model" in line]) == 3
    result = subprocess.run([sys.executable, "-c", short], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert float(re.search(r"accuracy ([\d.]+)%", result.stdout).group(1)) > 90
    assert {path.name for path in (tmp_path / "digits-model").iterdir()} == {"model.safetensors", "estimator.json"}


@pytest.mark.slow
def test_the_code_of_the_readme_reaches_three_percent():
    """Ten lines train a two-layer deep TICK-GP; the line after them freezes a parameter of it."""
    _, lines, freeze = code("README.md")
    assert len([line for line in lines.splitlines() if line and not line.startswith((")", "    "))]) <= 10
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    result = subprocess.run([sys.executable, "-c", lines], env=environment, capture_output=True, text=True, check=True)
    assert float(re.search(r"error ([\d.]+)%", result.stdout).group(1)) < 3
    images = np.random.default_rng(0).random((4, 6, 6, 1))
    model = tickgp.tick(images, tickgp.Softmax(2), num_inducing=4, key=jax.random.key(0))
    names = {"tickgp": tickgp, "model": model}
    exec(freeze, names)
    assert not names["model"].layers[-1].gp.kernel.covariance.response.location.lengthscale.trainable
