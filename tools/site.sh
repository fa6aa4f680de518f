#!/usr/bin/env bash
# Build the documentation site (make site) into .cache/site/html. The environment .cache/site/venv is made from
# requirements/site.txt at the first run; later runs need no network. Arguments go to tools/site/build.py.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly REQUIREMENTS=requirements/site.txt VENV=.cache/site/venv
stamp=$(sha256sum <"$REQUIREMENTS")
if [[ ! -e $VENV/.complete || $(<"$VENV/.complete") != "$stamp" ]]; then
  rm -rf "$VENV"
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install --quiet --disable-pip-version-check --no-input -r "$REQUIREMENTS"
  # This file is written last: an environment without it is incomplete and is built again.
  echo "$stamp" >"$VENV/.complete"
fi
exec "$VENV/bin/python" tools/site/build.py "$@"
