#!/usr/bin/env bash
# Run molecule scenarios (all, or those named), each on fresh hosts in a lab of its own that is gone afterwards. Two run at
# a time, since most of their time is waiting. What each says is kept under .lab/molecule/; a scenario that fails is shown
# whole when it has ended, and what it failed of once more at the very end.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" LC_ALL=C.UTF-8
export LAB_HOME=$PWD/.lab
export ANSIBLE_FORCE_COLOR=0 PY_COLORS=0
lanes=${MOLECULE_LANES:-2}
# Tests that take minutes, and that CI has no time for: MOLECULE_LONG=1, which `make long` sets.
[[ -n ${MOLECULE_LONG:-} ]] || export PYTEST_ADDOPTS='-m "not long"'
# Three hosts with a vLLM each take twenty minutes; the scenario default rolls out over one. In fleet a host of each vendor meets
# site.yml in one run; each of them meets it alone in a scenario of its role. group starts a vLLM over two hosts six times.
long=(rollout fleet group)
subnet=${LAB_SUBNET_PREFIX:-10.87.201}
logs=$LAB_HOME/molecule

# Put the time before the line with which a step begins, so that a log says where the minutes went.
stamped() {
  local line
  while IFS= read -r line; do
    [[ $line != INFO*Executing ]] || printf '%(%T)T ' -1
    printf '%s\n' "$line"
  done
}

# Run one scenario, in the lab of its number.
one() {
  local number=$1 scenario=$2 log=$logs/$2.log status=0
  export LAB_NAME=molecule$number LAB_SUBNET_PREFIX=${subnet%.*}.$((${subnet##*.} + number))
  # What a run that was killed remembers of hosts that are gone.
  molecule reset --scenario-name "$scenario" >/dev/null 2>&1 || true
  molecule test --scenario-name "$scenario" 2>&1 | stamped >"$log" || status=$?
  bin/lab down >>"$log" 2>&1
  # Testinfra counts a run in which every test was skipped as a success.
  if ((status == 0)) && ! grep -Eq '[0-9]+ passed' "$log"; then
    echo "ERROR: $scenario: no test has passed" >>"$log"
    status=1
  fi
  {
    flock 9
    ((status == 0)) || cat "$log"
    printf '=== molecule %-22s ended with %s after %4s s: %s\n' "$scenario" "$status" "$SECONDS" \
      "$(grep -Eo '[0-9]+ (passed|failed)[^=]* in [0-9][^=]*' "$log" | tail -n 1)" | tee -a "$logs/recap"
  } 9>"$logs/lock"
  return "$status"
}

# The scenarios in the order of their ends and, of those that failed, the lines that say why: the last lines of a long
# output are often all that there is to read.
recap() {
  local scenario
  cat "$logs/recap"
  # What takes long, for whoever looks for what to leave to `make long`.
  # (awk reads to the end: where head closes the pipe early, sort dies of it, and with it the whole run.)
  sed -nE 's/^([0-9.]+s (call|setup|teardown) .*)/\1/p' "$logs"/*.log | sort -rn | awk 'NR <= 20' | cut -c 1-160
  awk '$6 != 0 { print $3 }' "$logs/recap" | while read -r scenario; do
    sed -nE '/^(fatal|failed):|\[ERROR\]|^ERROR|CRITICAL|^E  |^FAILED /p' "$logs/$scenario.log" | tail -n 8 | cut -c 1-600 |
      sed "s/^/$scenario: /"
  done
}

if [[ ${1:-} == --one ]]; then
  mkdir -p "$logs"
  one "$2" "$3"
  exit
fi
# The longest first, so that none of them is left alone at the end.
first=(rollout default container fleet role_container_runtime role_cuda role_gateway)
if (($#)); then
  scenarios=("$@")
else
  left=$([[ -n ${MOLECULE_LONG:-} ]] || printf '%s\n' "${long[@]}")
  mapfile -t scenarios < <({ printf '%s\n' "${first[@]}"; (cd molecule && printf '%s\n' */ | tr -d /); } |
    awk '!seen[$0]++' | grep -vxF "$left")
fi
tools/lab/content.sh
rm -rf "$logs"
mkdir -p "$logs"
status=0
for number in "${!scenarios[@]}"; do
  printf '%s\0%s\0' "$number" "${scenarios[number]}"
done | xargs -0 -n 2 -P "$lanes" "$0" --one || status=$?
recap
exit "$status"
