# Everything starts here: `make demo` and `make test` set up what they need by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

MINUTES ?= 30

.PHONY: demo test test-all torture audit package docs lint tables clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed, this is " + sys.version'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.installed  ## ER, ER + S6MOD and ER + confidence penalty on digits, side by side
	$(BIN)/s6mod demo

test: $(VENV)/.installed  ## the test suite
	$(BIN)/python -m pytest

$(VENV)/.extras: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,all]'
	touch $@

test-all: $(VENV)/.extras  ## the heavier tests, with every extra there is (and Chromium, if it is installed)
	$(BIN)/python -m pytest -n 0 -m extras -rs

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

docs: $(VENV)/.docs  ## the documentation as a site, build/site/index.html, and the notebooks of its tutorials
	$(BIN)/python docs/make_notebooks.py
	$(BIN)/python docs/make_site.py

package:  ## wheel and source archive: built, looked into, installed into an empty environment and used
	PYTHON=$(PYTHON) .ci/package

torture: $(VENV)/.extras  ## kills, bad inputs, small disks, little memory, for MINUTES=30 (docs/explanation/reliability.md)
	PYTHONPATH=tests $(BIN)/python -m torture $(if $(AGAIN),--again $(AGAIN),--minutes $(MINUTES))

audit: $(VENV)/.installed  ## known advisories of our dependencies; asks the public database, or SNAPSHOT=FILE.json
ifdef SNAPSHOT
	$(BIN)/python .ci/advisories.py $(SNAPSHOT)
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip
endif

lint: $(VENV)/.installed  ## style, layers and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

tables: $(VENV)/.installed  ## what is written from the records in results/
	$(BIN)/s6mod runs adopt results
	$(BIN)/s6mod table --write docs/reference/reproduction.md
	$(BIN)/s6mod study plug-in --write docs/explanation/plug-in.md
	$(BIN)/python benchmarks/readme.py
	$(BIN)/python benchmarks/commits.py

clean:
	rm -rf $(VENV) .venv-interfaces-* build demo runs
