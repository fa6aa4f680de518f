#!/usr/bin/env bash
# Runs inside the Debian of run.sh: vLLM 0.33.0 from bare Debian to a chat, then vLLM 0.25.1 beside it, both measured on each chip
# (site/compare.yml), then starts of the presets.
#   compare.sh                  all of it, in the background, and the log
#   STEPS=kernels compare.sh    only the environments and what explains the difference, without the chat
#   compare.sh follow S         wait S seconds and show the logs
#   compare.sh start CHIP STEP.. one more lane with steps: `starts`, or RELEASE:NAME,NAME, a sweep of these variants, or of all of RELEASE's
# With one chip, lane 0 does what lane 1 would.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# shellcheck source=tests/gpu/measure.sh
. /carried/measure.sh
chips=$(nvidia-smi -L | wc -l)
half=$(($(getconf _NPROCESSORS_ONLN) / chips))
plans=/carried/result/plans
declare -A RELEASE_FILES=([33]=gpu-test [25]=gpu-test-25)

site() {
  local began=$SECONDS
  say "site.yml, $1"
  if ! (cd /carried/site && playbook "compare-$1.yml" site.yml "${@:2}" > "$result/site-$1.log" 2>&1); then
    tail -60 "$result/site-$1.log" | cut -c1-1200; say "FAILED: site.yml, $1"; return 1
  fi
  say "site.yml, $1, took $((SECONDS - began)) s: $(grep -E '^gpu-test +:' "$result/site-$1.log")"
}
# The environment of a release is the one whose directory its plan names.
python_of() { sed -n 's/^PATH="\?\([^:"]*\).*/\1/p' "$plans/$1/plain.env"; }
render() {
  local release=$1 file
  (cd /carried/site && playbook compare-plans.yml render.yml -e "render_dir=$result/rendered-$release" -e "vllm_release=${RELEASE_FILES[$release]}" \
    > "$result/render-$release.log" 2>&1) || { tail -30 "$result/render-$release.log"; return 1; }
  mkdir -p "$plans/$release"
  for file in "$result/rendered-$release"/gpu-test/*/files/etc/vllm/*.{yaml,env}; do cp "$file" "$plans/$release/"; done
  say "plans of ${RELEASE_FILES[$release]}: $(echo "$plans/$release"/*.yaml)"
}
# sweep_of RELEASE CHIP [NAMES]: with the environment of the plan and a cache of its own
sweep_of() {
  local release=$1 chip=$2 cache=/var/cache/vllm/compare-$1-$2 letter=b at
  [ "$release" = 33 ] || letter=a
  at=$(python_of "$release")
  install -d -o vllm -g vllm "$cache" "$result/sweep"
  (
    set -a
    # shellcheck disable=SC1090  # plain assignments
    . <(grep -E '^[A-Z_]+=' "$plans/$release/plain.env" | grep -vE '^(CUDA_VISIBLE_DEVICES|HOME)=' | sed "s#/var/cache/vllm/plain#$cache#g")
    # shellcheck disable=SC2031  # meant for this subshell
    export HOME=$cache VLLM_USE_FLASHINFER_SAMPLER=0 ONLY=${3//,/ }
    [ -n "$ONLY" ] || ONLY=$(sed -n "s/.*name: \($letter-[a-z0-9-]*\).*/\1/p" /carried/site/compare.yml | tr '\n' ' ')
    cd /tmp
    exec taskset -c "$((chip * half))-$((chip * half + half - 1))" setpriv --reuid=vllm --regid=vllm --init-groups \
      "$at/python" /carried/sweep.py /carried/site/compare.yml "$plans/$release/plain.yaml" "$chip" "$((8110 + chip))" "$result/sweep" "$(left)"
  )
}
# phases UNIT: where the seconds of its last start went
phases() { (cd /carried/site && playbook "compare-$1.yml" status.yml -e status_starts=true 2>&1 | grep -F "gpu-test, $1: ") || true; }
# starts UNIT: what systemd sees of the first start, of starts with kept caches, and of one without vLLM's startup plan.
starts() {
  local unit number
  for unit in "$@"; do
    site "$unit" || continue
    say "START $unit, nothing cached: $(started "$unit"); $(warm "$unit")"
    phases "$unit"
    for number in 1 2 3; do again "$unit" "kept caches, $number"; phases "$unit"; done
    mkdir -p "/etc/systemd/system/vllm@$unit.service.d"
    printf '[Service]\nEnvironment=VLLM_ENABLE_STARTUP_PLAN=0\n' > "/etc/systemd/system/vllm@$unit.service.d/plan.conf"
    systemctl daemon-reload
    again "$unit" "kept caches, without the startup plan"; phases "$unit"
    journalctl -u "vllm@$unit" --no-pager -o short-monotonic > "$result/journal-$unit.txt"
    systemctl stop "vllm@$unit"
  done
}
# A model with real weights: by site.yml, asked questions whose answers are known.
real() {
  site real || { journalctl -u vllm@real --no-pager -o cat | grep -v Route | tail -30; return 0; }
  say "START real: $(started real)"
  for number in 1 2; do python3.13 /carried/real.py 8050 /carried/site/basics.jsonl "$result/real-$number.jsonl"; done
  systemctl stop vllm@real
}
lane() {
  local chip=$1 step
  set +e
  for step in "${@:2}"; do
    say "lane $chip: $step"
    case $step in
      starts) starts tuned big ;;
      real) real ;;
      starts-*) starts "${step#starts-}" ;;
      *) sweep_of "${step%%:*}" "$chip" "${step#*:}" ;;
    esac
  done
}
start() { systemd-run --quiet --unit="lane-$1" -E HOME=/root -E LANG=C.UTF-8 bash -c "exec bash /carried/compare.sh lane $* >> $result/lane-$1.log 2>&1"; }
lanes() { [ -n "$(systemctl list-units --no-legend --plain --state=active,activating 'lane-*')" ]; }
follow() {
  local end=$((SECONDS + $1)) each; while lanes && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
  for each in "$result"/lane-*.log; do echo "== ${each##*/}"; grep -vE '^ *$' "$each" | cut -c1-900; done
  if lanes; then say "still running"; else say "all lanes have ended"; fi
}
# The environment of 0.25.1, while the chat's is installed and started.
prepare() { (cd /carried/site && ansible-playbook -i compare-chat.yml prepare.yml -e "vllm_release=${RELEASE_FILES[$1]}" > "$result/prepare-$1.log" 2>&1); }
begin() {
  local model; model=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H100|H200' | tr '[:upper:]' '[:lower:]')
  echo $(($(date +%s) + $(cat /carried/total 2>/dev/null || echo 1400))) > "$result/end"
  install_ansible
  python3.13 /carried/shape.py /carried/weights /carried/site/weights
  python3.13 /carried/site/presets.py "$model"
}
plans_of_both() {
  local release
  # The presets' model, for servers that no site.yml starts.
  install -d /srv/models/openai && cp -a /carried/weights/openai/gpt-oss-20b /srv/models/openai/
  for release in 33 25; do render "$release"; done
  say "environments: $(python_of 33) $(python_of 25)"
}
first() {
  begin
  prepare 25 &
  site chat || true
  (chat 8040) || true
  say "START chat: $(started chat)"
  (cd /carried/site && playbook compare-chat.yml site.yml 2>&1 | grep -E '^gpu-test +:') || true
  verify verify compare-chat.yml; cat "$result/verify.json"
  systemctl stop vllm@chat
  wait $! || prepare 25 || tail -30 "$result/prepare-25.log"
  plans_of_both
}
# What explains the difference: profiles, other kernels and compilers, and other models.
kernels() {
  local release
  begin
  for release in 33 25; do prepare "$release" || tail -30 "$result/prepare-$release.log"; done
  plans_of_both
  # The compiler of 0.25.1, for 0.33.0.
  mkdir -p /carried/triton36 && ln -sfn /opt/torch/.venv/lib/python3.12/site-packages/triton /carried/triton36/triton
  install -d -o vllm -g vllm /var/cache/vllm/triton36
  if ((chips > 1)); then
    start 0 25:a-profile,a-few,a-dense,a-latent 33:
    start 1 33:b-profile,b-few,b-triton-36,b-not-compiled real starts-tuned 33: starts-big
  else
    start 0 25:a-profile,a-few 33: starts
  fi
}
case ${1:-${STEPS:-}} in
  lane) lane "${@:2}" ;;
  start) start "${@:2}" ;;
  follow) follow "$2" ;;
  kernels) kernels; follow "$((${LEFT:-400} - SECONDS))" ;;
  *)
    first
    if ((chips > 1)); then
      start 0 25:a-1 33:b-1 33:
      start 1 33:b-2 25:a-2 starts 25:a-profile 33:
    else
      start 0 25:a-1 33:b-1 25:a-2 33:b-2 25:a-profile 33:
    fi
    follow "$((${LEFT:-400} - SECONDS))"
    ;;
esac
