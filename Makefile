# Two commands, each doing its own set-up: `make demo` measures a checkpoint whose effective length is
# known, `make test` checks this repository. PYTHON is any Python from 3.11 on.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
OUT := out

.PHONY: demo test lint types check

demo: $(READY)
	mkdir -p $(OUT)
	$(VENV)/bin/pytest --model calibration:4k --suite ruler --lengths 1k,2k,4k,8k --samples 6 -n 2 \
		--thresholds ci/demo.toml --report-json $(OUT)/demo.json --junitxml $(OUT)/demo.xml

test: lint types check

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY)
	$(VENV)/bin/mypy

# With Hypothesis' profile "ci" the examples are the same every time and no example has a time limit; plain
# `pytest tests` looks for new ones.
check: $(READY)
	$(VENV)/bin/pytest tests -n 2 --dist worksteal --hypothesis-profile ci

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("PYTHON: %s is %d.%d; give Python 3.11 or newer: make PYTHON=python3.12 ..." % ((sys.executable,) + sys.version_info[:2]) if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
