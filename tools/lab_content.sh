#!/usr/bin/env bash
# Fill the disk that is carried to the lab's mirror (.lab/mirror): wheels, the smoke model, the encodings.
# What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
carried=.lab/mirror

mkdir -p "$carried"
$python tools/fetch_wheels.py catalog/releases/requirements/0.32.0-cpu-cp311-x86_64.txt "$carried"
$python tools/fetch_encodings.py "$carried"
$python tools/build_smoke_model.py "$carried"
