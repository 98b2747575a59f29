# Two commands matter: make demo, make test. Everything else is a part of them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Cheap ones first: they find most mistakes. What takes long beside its use runs in test-all.
SCENARIOS := refusals topology host_tuning default weights vm
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONDONTWRITEBYTECODE := 1

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
demo: venv ## a bare (simulated) node to an answered chat completion
	@$(BIN)/python -m simulator demo

.PHONY: demo-clean
demo-clean: ## remove every trace of the demo, nothing else
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m simulator clean; else echo "Nothing to clean: .venv is not there, so no demo ran from this checkout."; fi

.PHONY: lint
lint: venv ## yamllint, ansible-lint, ruff, mypy, shellcheck, syntax of every playbook
	@bash tests/part.sh lint bash tests/lint.sh

.PHONY: unit
unit: venv ## parsers, planner, modules, contracts
	@bash tests/part.sh unit $(BIN)/python -m pytest -q -n 2

.PHONY: molecule
molecule: venv ## scenarios on simulated nodes, converted weights against torch
	@bash tests/part.sh engine $(BIN)/python -m simulator engine
	@bash tests/molecule.sh $(SCENARIOS)
	@bash tests/part.sh torch $(BIN)/python -m pytest -q tests/fp8_torch.py

.PHONY: readme
readme: venv ## the commands of README.md, as a reader types them
	@bash tests/part.sh engine $(BIN)/python -m simulator engine
	@bash tests/part.sh readme $(BIN)/python tests/readme.py

.PHONY: check
check: venv ## in under a minute: lint and tests of what was touched
	@$(BIN)/python tests/check.py

.PHONY: test
test: lint unit molecule readme ## what CI runs: a line a part, the rest in .cache/test (V=1 shows it)

.PHONY: test-all
# The long loops of what runs in test as a sample.
test-all: export GAUDI_ENGINE_KILLS := 20
test-all: test ## test, the fanout, calibration and nfs scenarios, and the long fault loops
	@bash tests/molecule.sh fanout calibration nfs
	@GAUDI_FP8_KILLS=50 bash tests/part.sh 'kills fp8' $(BIN)/python -m pytest -q -s tests/unit/fp8 -k killed
	@GAUDI_WEIGHTS_KILLS=20 bash tests/part.sh 'kills weights' $(BIN)/python -m pytest -q -s tests/unit/weights -k killed

.PHONY: bench
bench: venv ## measurements, printed as tables
	$(BIN)/python -m benchmarks
