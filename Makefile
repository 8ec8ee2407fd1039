# A fresh machine needs Python 3.11 or 3.12 and make; the rest is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --constraint constraints.txt
# One stamp file for each set of packages: the demo does not install development tools.
CORE := .venv/.installed-core
DEV := .venv/.installed-dev
DOCS := .venv/.installed-docs

# As the command does: threads that wait for each other sleep early.
export GOMP_SPINCOUNT ?= 10000

.PHONY: demo test test-all check format docs wheel-check clean

demo: $(CORE)  ## the main job on embedded data: train, forget, compare, audit, report
	$(BIN)/duck demo

# One process per core, one thread each. Neighbours stay together, so tests share what they train.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal

test: $(DEV)  ## every method, attack and command, without the slow tests; under 5 minutes
	$(PYTEST) -m "not slow and not gpu"

test-all: $(DEV)  ## all tests; those that need a GPU are skipped where there is none
	$(PYTEST)

check: $(DEV)  ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DOCS)  ## the documentation with the API reference, in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel-check: $(CORE)  ## build a wheel and run the demo from it in an empty environment; minutes
	rm -rf build/wheel
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --constraint constraints.txt build/wheel/*.whl
	cd build/wheel && venv/bin/duck demo --out demo && test -s demo/report.html

clean:
	rm -rf .venv demo runs site build .mypy_cache .ruff_cache .hypothesis

$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable .
	touch $@

$(DEV): $(CORE)
	$(PIP) --no-build-isolation --editable '.[dev]'
	touch $@

$(DOCS): $(CORE)
	$(PIP) --no-build-isolation --editable '.[docs]'
	touch $@
