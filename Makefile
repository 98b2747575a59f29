# Two commands matter: make demo, make test. Everything else is a part of them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Programs that run hundreds of times are compiled once, into a folder that git does not see.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/compiled
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.complete: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Python 3.11 or newer is needed, $(PYTHON) is {v.major}.{v.minor}. Install it, or name another: make PYTHON=/path/to/python3.11 ...")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing the pinned tools into $(VENV), a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --constraint constraints.txt '.[dev]'
	@printf '  ✓ %-58s %6d s\n' 'Tools in $(VENV)' $$(($$(date +%s) - $$(stat -c %Y $(VENV)/pyvenv.cfg)))
	@touch $@

.PHONY: venv
venv: $(VENV)/.complete ## install the pinned tools into .venv

.PHONY: constraints
constraints: venv ## write what is installed to constraints.txt
	{ sed -n '/^#/p' constraints.txt; $(BIN)/pip freeze --exclude gaudi-serving; } > constraints.new
	mv constraints.new constraints.txt

.PHONY: demo
demo: venv ## a bare (simulated) node to an answered chat completion; RELEASE=1.24.1 NODE=gaudi3-oam8
	@$(BIN)/python -m simulator demo $(if $(RELEASE),--release $(RELEASE)) $(if $(NODE),--describe $(NODE))

.PHONY: demo-clean
demo-clean: ## remove every trace of the demo, nothing else
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m simulator clean; else echo "Nothing to clean: .venv is not there, so no demo ran from this checkout."; fi

.PHONY: lint
lint: venv ## yamllint, ansible-lint, ruff, mypy, shellcheck, syntax of every playbook
	@$(BIN)/python -m tests.parts lint

.PHONY: unit
unit: venv ## parsers, planner, modules, contracts
	@$(BIN)/python -m tests.parts unit

.PHONY: integration
integration: venv ## programs, services and playbooks as processes of this machine
	@$(BIN)/python -m tests.parts integration

.PHONY: molecule
molecule: venv ## scenarios on simulated nodes, converted weights against torch
	@$(BIN)/python -m tests.parts --molecule torch

.PHONY: readme
readme: venv ## the commands of README.md, as a reader types them
	@$(BIN)/python -m tests.parts readme

.PHONY: check
check: venv ## in under a minute: lint and tests of what was touched
	@$(BIN)/python tests/check.py

.PHONY: test
test: venv ## what CI runs: a line a part, the rest in .cache/test (V=1 shows it)
	@$(BIN)/python -m tests.parts

.PHONY: test-all
# The long loops of what runs in test as a sample.
test-all: export GAUDI_ENGINE_KILLS := 20
test-all: export GAUDI_DAMAGES := every
test-all: export GAUDI_CASES := every
test-all: venv ## test, all other scenarios, and the long fault loops; hours
	@$(BIN)/python -m tests.parts --all

.PHONY: bench
bench: venv ## measurements, printed as tables
	$(BIN)/python -m benchmarks
