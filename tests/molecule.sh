#!/usr/bin/env bash
# Every Molecule scenario, one after the other: two cores hold one serving node at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
for scenario in molecule/*/molecule.yml; do
  name=$(basename "$(dirname "$scenario")")
  printf '\n== molecule test --scenario-name %s\n' "$name"
  molecule test --scenario-name "$name"
done
