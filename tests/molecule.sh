#!/usr/bin/env bash
# Run molecule scenarios (all, or those named), each on fresh hosts in a lab of its own that is gone afterwards. Two run at
# a time, since most of their time is waiting; what each says comes in one piece when it has ended.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" LC_ALL=C.UTF-8
export LAB_HOME=$PWD/.lab
export ANSIBLE_FORCE_COLOR=0 PY_COLORS=0
lanes=${MOLECULE_LANES:-2}
subnet=${LAB_SUBNET_PREFIX:-10.87.201}

# Run one scenario, in the lab of its number.
one() {
  local number=$1 scenario=$2 log status=0
  export LAB_NAME=molecule$number LAB_SUBNET_PREFIX=${subnet%.*}.$((${subnet##*.} + number))
  log=$(mktemp)
  # What a run that was killed remembers of hosts that are gone.
  molecule reset --scenario-name "$scenario" >/dev/null 2>&1 || true
  molecule test --scenario-name "$scenario" >"$log" 2>&1 || status=$?
  tools/lab down >>"$log" 2>&1
  # Testinfra counts a run in which every test was skipped as a success.
  if ((status == 0)) && ! grep -Eq '[0-9]+ passed' "$log"; then
    echo "$scenario: no test has passed" >>"$log"
    status=1
  fi
  flock "$LAB_HOME" printf '\n=== molecule: %s\n%s\n=== %s ended with %s after %s s\n' \
    "$scenario" "$(cat "$log")" "$scenario" "$status" "$SECONDS"
  rm -f "$log"
  return "$status"
}

if [[ ${1:-} == --one ]]; then
  one "$2" "$3"
  exit
fi
# The longest first, so that none of them is left alone at the end.
first=(container default fleet airgap role_container_runtime role_cuda)
if (($#)); then
  scenarios=("$@")
else
  mapfile -t scenarios < <({ printf '%s\n' "${first[@]}"; (cd molecule && printf '%s\n' */ | tr -d /); } | awk '!seen[$0]++')
fi
tools/lab_content.sh
for number in "${!scenarios[@]}"; do
  printf '%s\0%s\0' "$number" "${scenarios[number]}"
done | xargs -0 -n 2 -P "$lanes" "$0" --one
