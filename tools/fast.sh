#!/usr/bin/env bash
# Run the quick checks during development (`make fast`): ruff and the language check on changed files, types, imports between
# rooms, and the fast unit tests. CI runs all checks on all files. CONTRIBUTING.md says what to do when a step fails.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
# pytest compiles 400 files of tests, which takes longer than most of them run: keep the result.
export PYTHONPYCACHEPREFIX="$PWD/.cache/pycache" PYTHONDONTWRITEBYTECODE=

step() { echo "== $1"; }

types=$(mktemp)
trap 'rm -f "$types"; kill $(jobs -p) 2>/dev/null || true' EXIT
# The tests spend much of their time waiting.
mypy >"$types" 2>&1 &
mypy=$!

base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base" && git ls-files -o --exclude-standard; } | sort -u)
mapfile -t python < <(printf '%s\n' "${changed[@]}" | grep '\.py$' || true)
if ((${#python[@]})); then
  step "ruff check"
  ruff check "${python[@]}"
  step "ruff format"
  ruff format --check "${python[@]}"
fi
if ((${#changed[@]})); then
  step "language"
  python tools/check_language.py "${changed[@]}"
fi
step "budget"
python -m tools.budget
step "imports"
PYTHONPATH=.collections lint-imports --no-logo | tail -n 1
step "tests"
python -m tools.fast_tests
step "types"
wait "$mypy" || { cat "$types" && exit 1; }
