# The two commands of the README are `make demo` and `make test`; both set up what they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test unit integration e2e simulate fuzz mutations bench lint generate check-generated clean

demo: $(READY)
	@$(BIN)/elasticjob dev demo $(if $(KEEP),--keep)

test: $(READY)
	$(BIN)/python -m pytest tests

unit integration e2e: $(READY)
	$(BIN)/python -m pytest tests/$@

# The nightly mode: random histories of a job under every fault.
simulate: $(READY)
	$(BIN)/python -m pytest tests/unit -k simulator --histories=$(or $(HISTORIES),20000)

# Random bytes and messages at every port; INPUTS together.
fuzz: $(READY)
	$(BIN)/python -m pytest tests/fuzz --inputs=$(or $(INPUTS),100000) $(if $(SEED),--fuzz-seed=$(SEED)) -rA

# Broken cores, each of which a test must catch.
mutations: $(READY)
	$(BIN)/python -m tests.mutations $(MUTATION)

# FIGURE=name measures one only; bench/__main__.py lists them.
bench: $(READY)
	$(BIN)/python -m bench $(FIGURE)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

generate: $(READY)
	$(BIN)/python -m elasticjob_api.generate

check-generated: $(READY)
	$(BIN)/python -m elasticjob_api.generate --check

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ElasticJob needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=python3.x")'
	@echo "Making the virtual environment in $(VENV) (once; about a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
