#!/usr/bin/env bash
# The named Molecule scenarios, one after the other: two cores hold one serving node at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
for name in "$@"; do
  bash tests/part.sh "molecule $name" molecule test --scenario-name "$name"
done
