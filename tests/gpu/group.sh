#!/usr/bin/env bash
# Runs inside the first of the two Debian hosts that run.sh has booted, each with one chip: one instance over both of them.
#   group.sh             the steps below, or those in STEPS, in the background, in this order, and the log
#   group.sh follow S    wait S seconds and show the log
# tp: the smoke model, its layers split, and every fault (faults.py). dep, tp_dp: other strategies, with a chat and one fault.
# loads: gpt-oss-20b's shape with its layers split, under load. Then tp_pp and tep, as far as the time goes.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh
# shellcheck source=tests/gpu/measure.sh
. /carried/measure.sh
far() { ssh -o BatchMode=yes 10.20.0.2 "$@"; }

# serve NAME [KEY=VALUE...]: site.yml with these variables, and how long it took
serve() {
  local name=$1 began=$SECONDS given=() each
  shift
  for each in "$@"; do given+=(-e "$each"); done
  say "$name: site.yml"
  if ! playbook hosts-group.yml site.yml "${firewall[@]}" "${given[@]}" > "$result/group-$name.log" 2>&1; then
    tail -60 "$result/group-$name.log"
    journalctl -u vllm@big --no-pager -o cat | grep -v Route | tail -40
    far journalctl -u vllm@big --no-pager -o cat | grep -v Route | tail -20
    say "FAILED: $name: site.yml"
    return 1
  fi
  tail -4 "$result/group-$name.log"
  grep -hE 'all-reduce over|GB/s' "$result/group-$name.log" | sed 's/^ *//' | sort -u | head -4 || true
  say "$name: site.yml took $((SECONDS - began)) s"
  say "gpu-a: $(started big); gpu-b: $(started big far)"
  cp /etc/vllm/big.yaml "$result/group-$name-a.yaml"
  far cat /etc/vllm/big.yaml > "$result/group-$name-b.yaml"
  journalctl -u vllm@big --no-pager -o cat | grep -hoE 'via NET[^ ]*|via P2P[^ ]*|NCCL version [0-9.+a-z]*|NET/[A-Za-z]* : Using.*' | sort | uniq -c | head
}

# Nothing changes when everything is as it is said to be.
unchanged() {
  playbook hosts-group.yml site.yml "${firewall[@]}" > "$result/group-again.log" 2>&1 || { tail -30 "$result/group-again.log"; return 1; }
  grep -E '^gpu-. +:' "$result/group-again.log"
}

check_ports() {
  echo "gpu-a listens on $(ss -Hltn | awk '{ sub(/.*:/, "", $4); print $4 }' | sort -nu | paste -sd' ')"
  nft list tables || true
}

# tp FAULT...
tp() {
  serve tp || return 0
  (chat 8000) || true
  check_ports
  say "site.yml again"; unchanged || true
  python3.13 "$place/tools/verify.py" -i /carried/site/hosts-group.yml > "$result/verify-group.json" 2> "$result/verify-group.err" ||
    { cat "$result/verify-group.err"; head -c 3000 "$result/verify-group.json"; say "FAILED: verify"; }
  python3.13 /carried/faults.py 10.20.0.2 "$@" "$result/faults-tp.json" || say "FAILED: faults"
}

# other NAME FAULT...
other() {
  serve "$1" "group_strategy=multi_node_$1" || return 0
  (chat 8000) || true
  python3.13 /carried/faults.py 10.20.0.2 "${@:2}" "$result/faults-$1.json" || say "FAILED: faults of $1"
}

loads() {
  local python each
  # Fewer graphs than the preset has, for a start of a minute.
  serve 20b-tp group_recipe=openai/gpt-oss-20b \
    '{"group_args": {"load-format": "dummy", "cudagraph-capture-sizes": [1, 2, 4, 8, 16, 32, 64, 128]}, "vllm_verify_expect": ""}' || return 0
  python=(/opt/vllm/*/bin/python)
  for each in "1 3" "8 48" "64 192"; do
    # shellcheck disable=SC2086  # words
    say "20b, tp, ${each% *} at a time: $("${python[0]}" /carried/load.py 8000 $each $RANDOM "$result/group-20b-tp-${each% *}.json" 2>&1 | tail -1)"
  done
}

lane() {
  set +e
  run_steps tp:worker-killed:head-stopped:short-cut:power-loss:stall other:dep:worker-killed other:tp_dp:head-stopped loads \
    other:tp_pp:worker-killed other:tep:worker-killed
  say "done"
}

prepare() {
  nvidia-smi -L; far nvidia-smi -L
  install_ansible
  systemctl stop wheel-index
  systemd-run --quiet --unit=wheels python3.13 -m http.server 8099 --bind 10.20.0.1 --directory /carried/mirror
  python3.13 /carried/shape.py /carried/weights /carried/site/weights
  python3.13 /carried/site/groups.py "$place/catalog"
}
# A kernel without nftables cannot have the table that keeps other hosts out.
firewall=()
if ! nft list tables > /dev/null 2>&1; then firewall=(-e vllm_group_firewall=none); fi
case ${1:-} in
  lane) lane ;;
  follow) follow_lane "$2" ;;
  *)
    prepare
    start_lane group.sh
    follow_lane "$((${LEFT:-400} - SECONDS))"
    ;;
esac
