#!/usr/bin/env bash
# Runs inside the Debian of run.sh, after big.sh: waits at most SECONDS for its two units and shows their logs.  follow.sh SECONDS
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
running() { systemctl is-active --quiet series || systemctl is-active --quiet tune; }
while running && [ "$SECONDS" -lt "$1" ]; do sleep 1; done
cat "$result/series.log" || true
cat "$result/tune.log" || true
if running; then say "still running"; else say "both have ended"; fi
