#!/usr/bin/env bash
# Run everything that CI runs (make test). Checks and scenarios use two processors. Integration tests mostly wait, so unit and
# parity tests run at the same time with a lower priority. The output of the integration tests is printed last, so that
# pytest's summary is the last line.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"; kill $(jobs -p) 2>/dev/null || true' EXIT
took='' status=0

run() { "${MAKE:-make}" --no-print-directory "$@"; }

# Run a part and note how long it took.
part() {
  local begin=$SECONDS
  printf '=== %(%T)T %s\n' -1 "$1"
  "${@:2}" || status=$?
  took+=" $1 $((SECONDS - begin)) s,"
}

part checks run --jobs 2 --output-sync=target lint types sanity
((status == 0)) || exit "$status"
part molecule run molecule
((status == 0)) || exit "$status"
# Alone, because it measures what attacks cost.
part hostile run hostile
((status == 0)) || exit "$status"

begin=$SECONDS
run integration >"$log" 2>&1 &
part unit nice -n 15 "${MAKE:-make}" --no-print-directory unit
part parity nice -n 15 "${MAKE:-make}" --no-print-directory parity
wait "$!" || status=$?
echo "=== $(date +%T)$took integration, at the same time as the last two: $((SECONDS - begin)) s"
cat "$log"
exit "$status"
