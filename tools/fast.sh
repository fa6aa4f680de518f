#!/usr/bin/env bash
# What a contributor runs while writing (`make fast`): ruff and the language check on the files that changed, types, imports
# between rooms, and the unit tests that are not slow. CI runs these on everything, and the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base" && git ls-files -o --exclude-standard; } | sort -u)
mapfile -t python < <(printf '%s\n' "${changed[@]}" | grep '\.py$' || true)
if ((${#python[@]})); then
  ruff check "${python[@]}"
  ruff format --check "${python[@]}"
fi
if ((${#changed[@]})); then python tools/check_language.py "${changed[@]}"; fi
PYTHONPATH=.collections lint-imports --no-logo | tail -n 1
mypy
# Half of the time of these tests is waiting: two for each processor.
pytest -q tests/unit -m "not slow and not long" -n "$((2 * $(getconf _NPROCESSORS_ONLN)))" --dist loadfile
