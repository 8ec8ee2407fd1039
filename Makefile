# A fresh machine needs Python 3.11 or 3.12 and make; the rest is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# As the command does: threads that wait for each other sleep early.
export GOMP_SPINCOUNT ?= 10000

.PHONY: demo test check format clean

demo: $(INSTALLED)  ## the main job on embedded data: train, forget, compare, report
	$(BIN)/duck demo

test: $(INSTALLED)  ## one process per core, one thread each; a file's tests stay together and share what they train
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv demo runs .mypy_cache .ruff_cache .hypothesis

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $(INSTALLED)
