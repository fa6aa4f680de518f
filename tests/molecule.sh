#!/usr/bin/env bash
# Run molecule scenarios (all, or the named ones). Each gets its own lab with fresh hosts, which is removed afterwards.
# Two run at the same time, because they mostly wait. The log of each scenario is in .lab/molecule/. If a scenario fails,
# its whole log is printed when it ends, and its error lines are printed again at the end of the run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" LC_ALL=C.UTF-8
export LAB_HOME=$PWD/.lab
export ANSIBLE_FORCE_COLOR=0 PY_COLORS=0
lanes=${MOLECULE_LANES:-2}
# Tests that take minutes are too long for CI. They run with MOLECULE_LONG=1, which `make long` sets.
[[ -n ${MOLECULE_LONG:-} ]] || export PYTEST_ADDOPTS='-m "not long"'
# Scenarios that are too long for CI. rollout takes twenty minutes for three hosts with vLLM; the scenario default rolls out on
# one host. fleet runs site.yml on a host of each vendor at once; the scenarios of the roles do that for one host each.
# pd starts a vLLM on each of two hosts. role_health waits four minutes for servers to leave and come back.
# role_host_tuning and role_mirror seldom fail, and the scenario default needs a mirror too.
# role_provisioner installs 112 wheels. group starts a vLLM over two hosts, which takes seven minutes and seldom fails.
long=(rollout fleet pd group role_health role_host_tuning role_mirror role_provisioner)
subnet=${LAB_SUBNET_PREFIX:-10.87.201}
logs=$LAB_HOME/molecule

# Put the time before the first line of each step, so that the log shows how long each step took.
stamped() {
  local line
  while IFS= read -r line; do
    [[ $line != INFO*Executing ]] || printf '%(%T)T ' -1
    printf '%s\n' "$line"
  done
}

# Print the first three numbers of a subnet for a lab: its usual one, or a second one where a route or a network of podman has
# that, as after a killed run.
free_subnet() {
  local prefix=${subnet%.*}.$((${subnet##*.} + $1))
  if { ip -4 route show; cat /etc/containers/networks/*.json; } 2>/dev/null | grep -Eq "(^|\")${prefix//./\\.}\\."; then
    prefix=${subnet%.*}.$((${subnet##*.} + $1 - 40))
  fi
  echo "$prefix"
}

# Run one scenario in the lab with its number. Labs of other checkouts have other names.
one() {
  local number=$1 scenario=$2 log=$logs/$2.log status=0
  LAB_NAME=molecule$number-$(cksum <<<"$PWD" | cut -c 1-4) LAB_SUBNET_PREFIX=$(free_subnet "$number")
  export LAB_NAME LAB_SUBNET_PREFIX
  # Remove the state of a killed run, which refers to hosts that no longer exist.
  molecule reset --scenario-name "$scenario" >/dev/null 2>&1 || true
  molecule test --scenario-name "$scenario" 2>&1 | stamped >"$log" || status=$?
  bin/lab down >>"$log" 2>&1
  # Testinfra counts a run in which every test was skipped as a success.
  if ((status == 0)) && ! grep -Eq '[0-9]+ passed' "$log"; then
    echo "ERROR: $scenario: no test passed" >>"$log"
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

# Print the scenarios in the order in which they ended, and the error lines of those that failed: of a long output, often
# only the last lines are shown.
recap() {
  local scenario
  cat "$logs/recap"
  # The slowest tests: candidates for `make long`.
  # awk reads all of its input. head would close the pipe early, which kills sort and fails the run.
  sed -nE 's/^([0-9.]+s (call|setup|teardown) .*)/\1/p' "$logs"/*.log | sort -rn | awk 'NR <= 20' | cut -c 1-160
  awk '$6 != 0 { print $3 }' "$logs/recap" | while read -r scenario; do
    awk "$errors" "$logs/$scenario.log" | tail -n 25 | cut -c 1-600 | sed "s/^/$scenario: /"
  done
}

# The error lines of a log: also the message and the error output of the tasks that failed, which are over several lines.
errors='
  /^(fatal|failed):/ { task = 1; print; next }
  /^[^ ]|^$/ { task = 0 }
  task && /^    [a-z_]+:/ { shown = /^    (msg|stderr|reason):/ }
  task { if (shown) print; next }
  /\[ERROR\]|^ERROR|CRITICAL|^E  |^FAILED / { print }'

if [[ ${1:-} == --one ]]; then
  mkdir -p "$logs"
  one "$2" "$3"
  exit
fi
# The longest first, so that none of them runs alone at the end.
first=(rollout default container group fleet role_gateway role_container_runtime role_cuda)
if (($#)); then
  scenarios=("$@")
else
  left=$([[ -n ${MOLECULE_LONG:-} ]] || printf '%s\n' "${long[@]}")
  mapfile -t scenarios < <({ printf '%s\n' "${first[@]}"; (cd molecule && printf '%s\n' */ | tr -d /); } |
    awk '!seen[$0]++' | grep -vxF "$left")
fi
[[ -n ${LAB_FILLED:-} ]] || tools/lab/content.sh
rm -rf "$logs"
mkdir -p "$logs"
status=0
for number in "${!scenarios[@]}"; do
  printf '%s\0%s\0' "$number" "${scenarios[number]}"
done | xargs -0 -n 2 -P "$lanes" "$0" --one || status=$?
recap
exit "$status"
