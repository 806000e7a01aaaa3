PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test check format docs clean

demo: $(READY)            ## train six methods on handwritten digits, 40 % of the labels wrong, and say which won
	$(BIN)/letsam compare --name demo --noise 0.4 --overwrite

test: $(READY)            ## every test, on two processes
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY)           ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)            ## tables, method facts and charts, from the registry and the records
	$(BIN)/letsam figures
	$(BIN)/python docs/generate.py
	$(BIN)/python benchmarks/charts.py results/bench docs/images

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
