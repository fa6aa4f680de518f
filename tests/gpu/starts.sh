#!/usr/bin/env bash
# Runs inside the Debian of run.sh on a machine with one chip: where the seconds of vLLM 0.33.0's starts go, and what shortens them.
#   starts.sh             all of it, or the steps in STEPS, in the background, and the log; pair.sh has a lane of this on each of two hosts
#   starts.sh follow S    wait S seconds and show the log
# Each step is an instance of one preset: started with nothing cached, again with kept caches, and as on a host whose twin has served before.
set -euo pipefail
export CHIP=0
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# shellcheck source=tests/gpu/measure.sh
. /carried/measure.sh
# shellcheck source=tests/gpu/containers.sh
. /carried/containers.sh
site() {
  local began=$SECONDS
  say "site.yml, $1"
  if ! (cd /carried/site && playbook "starts-$1.yml" site.yml "${@:2}" > "$result/site-$1.log" 2>&1); then
    tail -40 "$result/site-$1.log" | cut -c1-900; say "FAILED: site.yml, $1"
    journalctl -u "vllm@*" --no-pager -o cat | grep -v Route | tail -25 | cut -c1-400
    return 1
  fi
  say "site.yml, $1, took $((SECONDS - began)) s: $(grep -E '^gpu-test +:' "$result/site-$1.log")"
}
# report UNIT TEXT: the last start as systemd and the project's own page see it
report() {
  say "START $1 $2: $(started "$1"); $(warm "$1")"
  (cd /carried/site && playbook "starts-${3:-$1}.yml" status.yml -e status_starts=true 2>&1 | grep -F "gpu-test, $1: ") || true
  journalctl -u "vllm@$1" -n 400 --no-pager -o cat | grep -E 'startup plan|artifactory|We must use' | tail -2 | cut -c1-220 || true
  journalctl -u "vllm@$1" -u "vllm-preload@$1" --no-pager -o short-monotonic > "$result/journal-$1.txt"
}
restart() { systemctl restart "vllm@$1" || { journalctl -u "vllm@$1" --no-pager -o cat | grep -v Route | tail -25; return 1; }; report "$@"; }
# minute UNIT PORT NAME AT_ONCE REQUESTS: the first load after a start and the same load again
minute() { load "$1" "$2" "$3-first" "$4" "$5"; load "$1" "$2" "$3-second" "$4" "$5"; }
# keep UNIT: its caches, for other instances: the role removes this one with them when it leaves the inventory
keep() { cp -aT "/var/cache/vllm/$1" "/var/cache/kept-$1"; }
# archive UNIT: its caches as a twin gets them; the next visit can begin with them
archive() {
  local began=$SECONDS caches; caches=/carried/caches-$(hostname)
  (cd /carried/site && playbook "starts-$1.yml" caches.yml -l gpu-test -e "caches_dir=$caches" > "$result/caches-$1.log" 2>&1) ||
    { tail -20 "$result/caches-$1.log"; return 1; }
  cp "$caches"/*.tar.gz "$result/"
  say "archive of $1 took $((SECONDS - began)) s: $(du -h "$caches"/*.tar.gz | tr '\n' ' ')"
}
# twin UNIT: its archive, then a start of the same instance that has compiled nothing
twin() {
  local caches; caches=/carried/caches-$(hostname)
  archive "$1" || return 1
  systemctl stop "vllm@$1"
  rm -rf "/var/cache/vllm/$1"
  site "$1" -e "vllm_caches_dir=$caches" -e "vllm_caches_source=$caches" || return 1
  report "$1" "first start of a twin"
}
# spy UNIT: where the processors spend a start
spy() {
  local pid=0
  [ -x /carried/py-spy ] || return 0
  systemctl stop "vllm@$1"
  systemctl start --no-block "vllm@$1"
  until [ "$pid" != 0 ]; do pid=$(systemctl show "vllm@$1" -p MainPID --value); done
  # Until it is Python.
  for _ in $(seq 100); do /carried/py-spy dump --pid "$pid" > /dev/null 2>&1 && break; sleep 0.1; done
  timeout 90 /carried/py-spy record --pid "$pid" --subprocesses --idle --threads --rate 25 --duration "${2:-35}" --format raw \
    --output "$result/spy-$1.txt" > "$result/spy-$1.log" 2>&1 || tail -3 "$result/spy-$1.log"
  until systemctl is-active --quiet "vllm@$1" || systemctl is-failed --quiet "vllm@$1"; do sleep 0.2; done
  say "profile of $1: $(wc -l < "$result/spy-$1.txt") stacks; $(started "$1")"
}
# as_kept TO: another instance starts with the kernels of all that have served
as_kept() {
  local each
  mkdir -p "/var/cache/vllm/$1"
  for each in /var/cache/kept-*; do [ ! -d "$each" ] || cp -an "$each/." "/var/cache/vllm/$1/"; done
}
latency() {
  site latency || return 0
  report latency "nothing cached"
  for number in 1 2 3; do restart latency "kept caches, $number"; done
  minute latency 8010 latency 8 32
  keep latency
  twin latency && minute latency 8010 latency-twin 8 32
  spy latency
  systemctl stop vllm@latency
}
throughput() {
  site throughput || return 0
  report throughput "nothing cached"
  for number in 1 2 3; do restart throughput "kept caches, $number"; done
  minute throughput 8010 throughput 512 512
  keep throughput
  twin throughput && minute throughput 8010 throughput-twin 512 512
  systemctl stop vllm@throughput
}
# once PRESET AT_ONCE REQUESTS: the first start and two more
once() {
  site "$1" || return 0
  report "$1" "nothing cached"
  for number in 1 2; do restart "$1" "kept caches, $number"; done
  minute "$1" 8010 "$1" "$2" "$3"
  archive "$1"
  keep "$1"
}
# other NAME: throughput as another inventory has it: `fewer`, `short` or `cold`
other() {
  site "throughput-$1" || return 0
  for number in 1 2; do restart throughput "$1, kept caches, $number" "throughput-$1"; done
  minute throughput 8010 "throughput-$1" 512 512
}
balanced() {
  local kept; kept=$(echo /var/cache/kept-*)
  as_kept balanced
  site balanced || return 0
  report balanced "kernels of ${kept//*\*/nothing}"
  for number in 1 2 3; do restart balanced "kept caches, $number"; done
  minute balanced 8010 balanced 64 192
  keep balanced
  spy balanced 50
  systemctl stop vllm@balanced
}
# answer PORT MODEL: the text of some tokens at temperature 0
answer() {
  curl --silent --max-time 60 "http://127.0.0.1:$1/v1/completions" -H 'Content-Type: application/json' \
    -d "{\"model\": \"real/$2\", \"prompt\": [2000, 3000, 4000, 5000], \"max_tokens\": 16, \"temperature\": 0, \"ignore_eos\": true}" | sha256sum_of_text
}
sha256sum_of_text() { python3.13 -c 'import hashlib, json, sys; print(hashlib.sha256(json.load(sys.stdin)["choices"][0]["text"].encode()).hexdigest()[:16])'; }
# heavy MODEL: the files of that dense model, in memory, and a file system in memory for the copy that the role makes of them: 66 GB twice are
# more than the disk has
heavy() {
  local each
  for each in /carried/heavy /srv/models; do
    mkdir -p "$each"
    mount -t tmpfs -o size=90g,mode=755 tmpfs "$each"
  done
  python3.13 /carried/shape.py /carried/heavy /carried/site/heavy "$1" > "$result/heavy.log" 2>&1
}
# preload [MODEL]: weights in files, read by the engine, then held by another process.
preload() {
  local model=${1:-dense}
  while systemctl is-active --quiet heavy; do sleep 1; done
  [ -e "$result/heavy.log" ] || heavy "$model"
  cat "$result/heavy.log"
  site "$model-files" || return 0
  ! mountpoint -q /carried/heavy || umount /carried/heavy
  report held "weights from files" "$model-files"
  restart held "weights from files, again" "$model-files"
  say "answer: $(answer 8010 "$model")"
  site "$model-held" || return 0
  report held "weights held, first start" "$model-held"
  say "answer: $(answer 8010 "$model")"
  restart held "weights held, again" "$model-held"
  nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
  site "$model-changed" || return 0
  report held "weights held, other flags" "$model-changed"
  say "answer: $(answer 8010 "$model")"
  restart held "weights held, other flags, again" "$model-changed"
  systemctl stop vllm@held
  nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader
  systemctl stop vllm-preload@held
  journalctl -u vllm-preload@held --no-pager -o cat | cut -c1-200 | tail -12
}
# sweep_presets [NAMES]: the variants of compare.yml with the plans of the presets, and the kernels of all that have served. Two hosts share
# the list, and one takes what the other has not taken.
sweep_presets() {
  local plans=$result/plans sweep=/carried/result/sweep at
  if [ ! -d "$plans" ]; then
    (cd /carried/site && playbook compare-plans.yml render.yml -e "render_dir=$result/rendered" > "$result/render.log" 2>&1) || tail -20 "$result/render.log"
    mkdir -p "$plans" && cp "$result"/rendered/gpu-test/*/files/etc/vllm/*.{yaml,env} "$plans/"
    install -d -o vllm -g vllm /srv/models/openai
    cp -a /carried/weights/openai/gpt-oss-20b /srv/models/openai/ || true
  fi
  mkdir -p "$sweep" && chmod 1777 "$sweep"
  systemctl stop 'vllm@*'
  as_kept sweep; chown -R vllm: /var/cache/vllm/sweep
  at=$(sed -n 's/^PATH="\?\([^:"]*\).*/\1/p' "$plans/plain.env")
  (
    set -a
    # shellcheck disable=SC1090  # plain assignments
    . <(grep -E '^[A-Z_]+=' "$plans/plain.env" | grep -vE '^(CUDA_VISIBLE_DEVICES|HOME)=' | sed "s#/var/cache/vllm/plain#/var/cache/vllm/sweep#g")
    # shellcheck disable=SC2031  # meant for this subshell
    export HOME=/var/cache/vllm/sweep VLLM_USE_FLASHINFER_SAMPLER=0 ONLY=${1//,/ }
    cd /tmp
    exec setpriv --reuid=vllm --regid=vllm --init-groups "$at/python" /carried/sweep.py /carried/site/compare.yml "$plans/plain.yaml" 0 8110 \
      "$sweep" "$(left)"
  )
}
lane() {
  set +e
  run_steps latency throughput preload balanced \
    sweep_presets:b-balanced,b-balanced-sizes-90,b-api-servers-4,b-throughput,b-latency,b-latency-triton,b-balanced-2,b-balanced-sizes-90-2
}
# prepare: what a host has before its lane begins
prepare() {
  [ -x /usr/local/bin/ansible-playbook ] || install_ansible
  (cd /carried/site && ansible-playbook -i starts-latency.yml prepare.yml > "$result/prepare.log" 2>&1) || tail -30 "$result/prepare.log"
  say "environment: $(python)"
}
case ${1:-} in
  lane) lane ;;
  image) image ;;
  prepare) prepare ;;
  follow) follow_lane "$2" ;;
  *)
    echo $(($(date +%s) + $(cat /carried/total 2>/dev/null || echo 1400))) > "$result/end"
    python3.13 /carried/shape.py /carried/weights /carried/site/weights
    python3.13 /carried/site/presets.py
    prepare
    # While the first start compiles.
    systemd-run --quiet --unit=heavy bash -c "exec nice python3.13 /carried/shape.py /carried/heavy /carried/site/heavy dense > $result/heavy.log 2>&1"
    start_lane starts.sh
    follow_lane "$((${LEFT:-400} - SECONDS))"
    ;;
esac
