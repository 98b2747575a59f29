#!/usr/bin/env bash
# Layer 0: everything that can be said about the code without running it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Files git tracks or would track, so that a half-written file is seen before it is committed.
files() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do [ -f "$file" ] && printf '%s\n' "$file"; done; }

run() { printf '\n== %s\n' "$*"; "$@"; }

run ruff check .
run ruff format --check .
run mypy
run yamllint --strict .
mapfile -t scripts < <(files '*.sh' '.ci/run' 'tests/integration/*/bin/*')
run shellcheck "${scripts[@]}"
# It has Ansible check the syntax of every playbook, too: 2 to 3 s for each that serves a model. Those have one text but
# for the model (tests/unit/catalogue/test_contracts.py), so that one of them speaks for all.
mapfile -t serve < <(files 'playbooks/serve_*.yml')
run ansible-lint --strict --exclude "${serve[@]:1}"
