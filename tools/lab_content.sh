#!/usr/bin/env bash
# Fill the disk that is carried to the lab's mirror (.lab/mirror): wheels, the smoke model, the encodings.
# What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
carried=.lab/mirror

$python tools/fetch_wheels.py "$carried/wheels"
$python tools/build_smoke_model.py "$carried"
