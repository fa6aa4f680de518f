#!/usr/bin/env bash
# Run everything that CI runs (make test) on two processors. Scenarios use less than half of them and integration tests mostly
# wait, so what only computes runs beside them with a lower priority: sanity and parity beside the scenarios, unit beside
# the integration tests. The output of the integration tests is printed last, so that pytest's summary is the last line.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"; kill $(jobs -p) 2>/dev/null || true' EXIT
make=("${MAKE:-make}" --no-print-directory)
took='' status=0

# Run a part and note how long it took.
part() {
  local begin=$SECONDS
  printf '=== %(%T)T %s\n' -1 "$1"
  "${@:2}" || status=$?
  took+=" $1 $((SECONDS - begin)) s,"
}

part checks "${make[@]}" --jobs 2 --output-sync=target lint types
((status == 0)) || exit "$status"

nice -n 15 "${make[@]}" sanity parity >"$log" 2>&1 &
part molecule "${make[@]}" molecule
part 'then sanity and parity' wait "$!"
cat "$log"
((status == 0)) || exit "$status"

# Alone, because it measures what attacks cost.
part hostile "${make[@]}" hostile
((status == 0)) || exit "$status"

"${make[@]}" integration >"$log" 2>&1 &
part unit nice -n 15 "${make[@]}" unit
part 'then integration' wait "$!"
echo "=== $(date +%T)$took"
cat "$log"
exit "$status"
