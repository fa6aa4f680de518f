#!/usr/bin/env bash
# Run the unit tests that load Ansible on each ansible-core from 2.18 to the newest (`make matrix`):
#   tests/matrix.sh              all rows
#   tests/matrix.sh 2.18 newest  these rows
#   tests/matrix.sh --lab 2.18   a lab instead of the unit tests: site.yml on two hosts, from a bare system to a chat; needs root
# A row is skipped and named if its Python is not on PATH and uv and pyenv have not installed it. The environments are in
# .lab/matrix. MATRIX_TESTS="FILE ..." runs these tests only.
set -euo pipefail
cd "$(dirname "$0")/.."

# ansible-core -> the oldest Python that it runs on
declare -rA PYTHONS=([2.18]=3.11 [2.19]=3.11 [2.20]=3.12 [2.21]=3.12 [newest]=3.13)
readonly ROWS=(2.18 2.19 2.20 2.21 newest)
readonly NEEDED=(pip pytest pytest-xdist pytest-timeout hypothesis jsonschema "redfish[aiohttp]" botocore uvicorn selenium sushy-tools)
# What loads or runs Ansible. The command runs it too, and with it the callbacks.
readonly TESTS=(
  tests/unit/plugins/{action,filter,inventory,lookup,modules,plugin_utils,vars} tests/unit/{playbooks,inventories,roles} tests/unit/tools/command
  tests/hostile/test_host_answers.py
)
export UV_PYTHON_DOWNLOADS=never
for found in ~/.pyenv/versions/*/bin; do PATH=$PATH:$found; done
failed=() skipped=() tests=() work=run_tests

main() {
  local row
  if [[ ${1:-} == --lab ]]; then
    work=run_lab
    shift
  fi
  read -ra tests <<<"${MATRIX_TESTS:-${TESTS[*]}}"
  for row in "${@:-${ROWS[@]}}"; do
    [[ -v "PYTHONS[$row]" ]] || { echo "matrix: there is no row $row; known: ${ROWS[*]}" >&2; exit 2; }
    run_row "$row"
  done
  ((${#skipped[@]} == 0)) || echo "Skipped, because their Python is missing here: ${skipped[*]}"
  ((${#failed[@]} == 0)) || { echo "Failed with ansible-core: ${failed[*]}"; exit 1; }
}

run_row() {
  local row=$1 python=${PYTHONS[$1]} environment=.lab/matrix/$1 core=ansible-core
  [[ $row == newest ]] || core="ansible-core~=$row.0"
  if ! .venv/bin/uv python find --quiet "$python" >/dev/null 2>&1; then
    skipped+=("$row (Python $python)")
    return
  fi
  .venv/bin/uv venv --quiet --clear --python "$python" "$environment"
  .venv/bin/uv pip install --quiet --python "$environment/bin/python" "$core" "${NEEDED[@]}"
  echo "== ansible-core $("$environment/bin/python" -c 'import ansible.release as found; print(found.__version__)'), Python $python"
  PATH="$PWD/$environment/bin:$PATH" "$work" "$environment/bin" || failed+=("$row")
}

run_tests() {
  "$1/pytest" -q "${tests[@]}" -m "not long" --tb=short -n 2 --dist loadfile -p no:cacheprovider
}

# The second run of site.yml changes nothing; each run has had an answer to a chat.
run_lab() {
  local status=0
  export LAB_NAME=${LAB_NAME:-matrix} LAB_SUBNET_PREFIX=${LAB_SUBNET_PREFIX:-10.87.246} ANSIBLE_FORCE_COLOR=0
  {
    tools/lab/content.sh && bin/lab up mirror cpu-12 && "$1/ansible-playbook" -i inventories/lab site.yml &&
      "$1/ansible-playbook" -i inventories/lab site.yml | tee .lab/matrix/lab.log &&
      ! grep -E '(changed|failed|unreachable)=[1-9]' .lab/matrix/lab.log
  } || status=1
  bin/lab down
  return "$status"
}

main "$@"
