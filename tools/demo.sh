#!/usr/bin/env bash
# From nothing to a chat answer: `make demo`. `tools/demo.sh down` takes it away again (`make demo-down`).
set -euo pipefail
cd "$(dirname "$0")/.."
export LAB_NAME=${LAB_NAME:-demo} LC_ALL=C.UTF-8

if [[ ${1:-up} == down ]]; then
  [[ -x .venv/bin/python ]] || exit 0
  exec .venv/bin/python tools/lab.py down
fi

declare -a phases=()
# phase TITLE COMMAND...: run a step, show that it lives, keep its time.
phase() {
  local title=$1 start=$SECONDS
  shift
  printf '\n=== %s\n' "$title"
  "$@"
  phases+=("$(printf '%5d s  %s' $((SECONDS - start)) "$title")")
}

phase 'Install what the controller needs' tools/bootstrap.sh
phase 'Fill the disk for the mirror: wheels, model, encodings' tools/lab_content.sh
phase 'Start the lab hosts' .venv/bin/python tools/lab.py up mirror cpu-12
phase 'Run site.yml' tools/progress.sh .venv/bin/ansible-playbook -i inventories/lab site.yml
