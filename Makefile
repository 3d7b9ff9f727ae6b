# Needs python3 (3.11 or newer), pip and make; everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test test-all bench pretrained lint clean

train: .venv/installed
	$(BIN)/tickgp train --overwrite

test: lint
	$(BIN)/pytest -q -rs -n 2 --dist loadfile -m "not slow"

test-all: lint
	$(BIN)/pytest -q -rs -n 2 --dist loadfile

# Ours against GPflow or PyTorch, where these are installed; see docs/performance.md.
bench: .venv/installed
	$(BIN)/python -m benchmarks steps

# The TICK-GP for MNIST that comes with the library.
pretrained: .venv/installed
	$(BIN)/tickgp reproduce pretrained --scale fast
	mkdir -p src/tickgp/pretrained/mnist-tick
	cp runs/reproduce/fast/mnist/pretrained/model.safetensors src/tickgp/pretrained/mnist-tick/
	mkdir -p results/included
	for name in mnist semeion fashion-mnist; do \
		$(BIN)/tickgp evaluate mnist-tick --dataset $$name --json > results/included/new && \
		mv results/included/new results/included/$$name.json || exit 1; \
	done
	$(BIN)/tickgp reproduce pretrained --scale fast

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/installed-test: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch .venv/installed $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
