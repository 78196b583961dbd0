# Everything runs from one virtual environment in .venv, installed from the pinned files in requirements/.
# `make demo` and `make test` need only Python 3.11 or newer and make.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HOST ?= 127.0.0.1
PORT ?= 8000
WORKERS ?= 2
# What the environment of the CPU engine gets in the build for the machine, or goes without.
UNPINNED := $(foreach name,torch torchvision torchaudio torchcodec triton,--no-emit-package $(name))

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-worker check format lint types browser sandbox lock wheel clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/server.stamp ## Install, start everything and serve the board with synthetic data on it
	exec $(BIN)/otboard serve --demo --host $(HOST) --port $(PORT)

serve: $(VENV)/server.stamp ## Install, start everything and serve the board
	exec $(BIN)/otboard serve --host $(HOST) --port $(PORT)

test: check ## Install what the suite needs and run all of it, pages in a real browser included

test-worker: ## Measure a tiny model with real vLLM on the CPU, in an environment kept in the user's cache
	python=$$($(PYTHON) tests/vllm_environment.py) && PYTHONPATH=. "$$python" -m pytest tests/vllm -n $(WORKERS) --dist loadfile

check: lint types browser sandbox ## Format, lint, import contracts, types, migrations and every test
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

format: $(VENV)/dev.stamp ## Rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/dev.stamp ## Format, lint and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/dev.stamp ## mypy --strict
	$(BIN)/mypy

browser: $(VENV)/dev.stamp ## Make sure that there is a browser for the tests of the pages
	$(BIN)/python -m tests.browser

sandbox: $(VENV)/dev.stamp ## Make sure that there is a sandbox for the tests of the graders
	$(BIN)/python -m tests.sandbox_setup

lock: $(VENV)/dev.stamp ## Pin the requirement files anew after a change of the dependencies
	$(PIP) uv
	for kind in "offline:" "server:--extra server" "dev:--extra server --extra worker --group dev" \
		"worker-cpu:--extra server --extra worker --group worker-cpu"; do \
		$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --no-emit-find-links $(UNPINNED) --custom-compile-command 'make lock' --quiet \
			$${kind#*:} --group build --output-file requirements/$${kind%%:*}.txt; \
	done

wheel: $(VENV)/dev.stamp ## Build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## Remove the virtual environment and everything built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis tests/artefacts

$(VENV)/pyvenv.cfg:
	@test -n "$(PYTHON)" || { echo "OTBoard needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

# The development file holds the server's pins too, so a folder set up for the tests serves without another install.
$(VENV)/server.stamp: $(VENV)/pyvenv.cfg requirements/server.txt pyproject.toml
	@test $(VENV)/dev.stamp -nt requirements/server.txt || { echo "Installing the pinned packages (about two minutes the first time) ..."; \
		$(PIP) --require-hashes -r requirements/server.txt; }
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/pyvenv.cfg requirements/dev.txt pyproject.toml
	@echo "Installing the pinned packages (about two minutes the first time) ..."
	@$(PIP) --require-hashes -r requirements/dev.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/server.stamp
