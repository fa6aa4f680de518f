#!/usr/bin/env bash
# Run everything that CI runs (make test) on two processors. Scenarios use less than half of them, hostile and integration tests
# mostly wait, so these run one after the other, and what only computes (sanity, parity, unit) runs beside all of them
# with a lower priority. The lab's images and its mirror are made while lint and types are checked.
# The output of the integration tests is printed last, so that pytest's summary is the last line.
set -euo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
jobs=()
make=("${MAKE:-make}" --no-print-directory)
took='' status=0

# Start a job in the background, in a group of processes that ends with this script.
beside() {
  set -m
  "$@" &
  jobs+=("$!")
  set +m
}

finish() {
  local job
  for job in "${jobs[@]}"; do kill -- "-$job" 2>/dev/null || true; done
  rm -rf "$logs"
}
trap finish EXIT

# Run a part, note how long it took, and end where it or a part beside it has failed.
part() {
  local begin=$SECONDS
  printf '=== %(%T)T %s\n' -1 "$1"
  "${@:2}" || status=$?
  took+=" $1 $((SECONDS - begin)) s,"
  [[ $status == 0 && -e $logs/failed ]] && status=1
  ((status == 0)) && return
  echo "=== $(date +%T)$took failed"
  show_logs
  exit "$status"
}

# Print what ran in the background, what failed last.
show_logs() {
  local name order='lab compute integration'
  [[ ${LAB_FILLED-} ]] && order='compute integration'
  [[ -e $logs/failed ]] && order='integration compute'
  for name in $order; do cat "$logs/$name.log" 2>/dev/null || true; done
}

# Make what scenarios and attacks need: the lab's images and mirror, and the HAProxy of Debian 13, in two tries.
lab() {
  { tools/lab/content.sh && LAB_HOME=$PWD/.lab bin/lab images && { tests/haproxy13.sh true || tests/haproxy13.sh true; }; } >"$logs/lab.log" 2>&1
}

integration() { "${make[@]}" integration >"$logs/integration.log" 2>&1; }

# Run what computes. Its log has the times.
compute() {
  local name
  for name in sanity parity unit; do
    SECONDS=0
    echo "=== $name"
    nice -n 15 "${make[@]}" "$name" || { touch "$logs/failed" && return 1; }
    echo "=== $name took $SECONDS s"
  done >"$logs/compute.log" 2>&1
}

beside lab
part checks "${make[@]}" --jobs=2 --output-sync=target lint types
part 'then the lab' wait "${jobs[0]}"
export LAB_FILLED=1

beside compute
part molecule "${make[@]}" molecule
part hostile "${make[@]}" hostile
part integration integration
part 'then sanity, parity and unit' wait "${jobs[1]}"
cat "$logs/compute.log"
echo "=== $(date +%T)$took"
cat "$logs/integration.log"
