#!/usr/bin/env bash
# The named Molecule scenarios, one after the other: two cores hold one serving node at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in "$@"; do
  printf '\n== molecule test --scenario-name %s\n' "$name"
  molecule test --scenario-name "$name"
done
