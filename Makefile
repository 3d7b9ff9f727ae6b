# Needs python3 (3.11 or newer), pip and make; everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test test-all bench lint clean

train: .venv/installed
	$(BIN)/tickgp train --overwrite

test: lint
	$(BIN)/pytest -q -rs -n 2 -m "not slow"

test-all: lint
	$(BIN)/pytest -q -rs -n 2

# Ours against GPflow or PyTorch, where these are installed; see docs/performance.md.
bench: .venv/installed
	$(BIN)/python -m benchmarks steps

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
