#!/usr/bin/env bash
# Run one part of the tests and say in a line how it ended and how long it took:
#   part.sh NAME COMMAND [ARGUMENT ...]
# What the command prints goes into .cache/test/NAME.log; a failure shows its end. V=1 shows everything at once.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
mkdir -p .cache/test
log=.cache/test/${name//[^A-Za-z0-9_-]/-}.log
begun=$SECONDS
status=0
if [ "${V:-0}" = 1 ]; then
  "$@" 2>&1 | tee "$log" || status=$?
else
  "$@" >"$log" 2>&1 </dev/null || status=$?
fi
took=$((SECONDS - begun))
counted=$(grep -oE '[0-9]+ passed' "$log" | tail -n 1 || true)
mark=✓
[ "$status" = 0 ] || mark=✗
printf '  %s %-32s %4d min %02d s  %s\n' "$mark" "$name" $((took / 60)) $((took % 60)) "$counted"
if [ "$status" != 0 ]; then
  [ "${V:-0}" = 1 ] || tail -n "${GAUDI_TEST_LINES:-200}" "$log"
  # Again what failed and why, as the last thing: of a long output often only the end is kept. Molecule's own words on
  # it ("ERROR    Ansible return code was 2") and what it does afterwards say nothing about the cause.
  sed 's/\x1b\[[0-9;]*m//g' "$log" | awk '
    /^(INFO|WARNING|ERROR|CRITICAL)  ?/ && !/^ERROR [^ ]/ { left = 0; next }
    /✗ |fatal: |^(FAILED|ERROR) |^E  |error:/ { left = 13 }
    left-- > 0' | tail -n 60
  printf '%s failed with status %s. All it printed: %s\n' "$name" "$status" "$log"
fi
exit "$status"
