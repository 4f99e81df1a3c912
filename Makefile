# `make demo` measures a checkpoint whose effective length is known; `make check` and `make test` check this repository.
# Each sets up .venv first. PYTHON is any Python from 3.11 on.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
OUT := out
# With Hypothesis' profile "ci" the examples are the same every time and have no time limit; plain `pytest tests` looks
# for new ones.
# A worker takes whole files, so that the tests of a file share its fixtures and samples, in the order of
# tests/conftest.py: the slowest files first, so that all workers end together.
PYTEST := $(VENV)/bin/pytest --dist loadfile --no-loadscope-reorder --hypothesis-profile ci

# The tests start hundreds of Python processes; without bytecode every one of them compiles all sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check fast test whole goldens nightly loops pages lint types examples site wheel

demo: $(READY)
	mkdir -p $(OUT)
	$(VENV)/bin/pytest --model calibration:4k --suite ruler --lengths 1k,2k,4k,8k --samples 6 -n 2 \
		--thresholds ci/demo.toml --report-json $(OUT)/demo.json --junitxml $(OUT)/demo.xml

# The fast half, side by side: lint, types, and the unit and golden tests that take no model and no whole run.
check: $(READY)
	@$(MAKE) --no-print-directory --jobs 3 --output-sync lint types fast

fast: $(READY)
	$(PYTEST) -n 2 tests/unit tests/golden -m "not slow"

test: lint
	@$(MAKE) --no-print-directory --jobs 2 types whole

# Three workers keep two cores busy while some tests wait, for example for the second attempt at a request.
whole: $(READY)
	$(PYTEST) -n 3 tests -m "not whole_loop and not recording"

# What users see of commands, errors, reports and exit codes, against the recordings; part of every push.
goldens: $(READY)
	$(PYTEST) -n 2 --dist load tests/golden/test_golden_commands.py

# What takes too long for every push.
nightly: loops pages

# Loops of several programs, half a minute each: watches and their searches, recipes, schedulers, kills, job arrays.
loops: $(READY)
	$(PYTEST) -n 3 tests -m whole_loop

# Every command that the pages show, on small models, with few samples.
pages: $(READY)
	LONGCTX_MEASURE_DOCS=1 $(PYTEST) -n 2 tests/docs/test_docs_ci.py tests/docs/test_docs_listed.py tests/docs/test_docs_run.py \
		-k "measures or comes or show_the_real_output or add_a_task"

# The pages of docs/examples, by real runs on CKPT, a copy of SmolLM2-135M-Instruct, and on calibration checkpoints.
examples: $(READY)
	$(VENV)/bin/python -m benchmarks.example_pages $(CKPT)

# The pages as a site in build/site, offline with search, and in the package; every link is checked.
site: $(READY)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[site]'
	$(VENV)/bin/python -m tests.docs.site

# The wheel with the pages. `pip wheel` alone makes one without them.
wheel: site
	$(VENV)/bin/pip wheel --quiet --no-deps --wheel-dir dist .

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(READY)
	$(VENV)/bin/mypy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("PYTHON: %s is %d.%d; give Python 3.11 or newer: make PYTHON=python3.12 ..." % ((sys.executable,) + sys.version_info[:2]) if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
