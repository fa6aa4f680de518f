#!/usr/bin/env bash
# Runs inside the Debian that run.sh has booted, on a machine with two chips: one instance over both of them, then one on
# each, then playbooks/accept.yml over both, for MINUTES, 2 by default.  two.sh [tp | replicas | accept]...
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh

# serve NAME PORT...: site.yml with hosts-NAME.yml, a chat on each port, how the units run, site.yml again, verify.yml
serve() {
  local name=$1 unit
  shift
  say "$name: site.yml"
  playbook "hosts-$name.yml" site.yml > "$result/$name-1.log" 2>&1 || { tail -60 "$result/$name-1.log"; show; fail "$name: site.yml"; }
  tail -3 "$result/$name-1.log"
  for port in "$@"; do chat "$port"; done
  show | tee "$result/$name-units.txt"
  second_run "$name" "hosts-$name.yml"
  verify "verify-$name" "hosts-$name.yml"
  python3.13 - "$result/verify-$name.json" <<'PYTHON'
import json, sys
for check in json.load(open(sys.argv[1]))["checks"]:
    print(check["instance"], check["name"] + ":", check["detail"])
PYTHON
}

# How the units run: their chips, and what NCCL and vLLM say of the way between the chips.
show() {
  nvidia-smi --query-compute-apps=gpu_bus_id,pid,used_memory --format=csv,noheader
  for unit in $(systemctl list-units 'vllm@*' --plain --no-legend | cut -d' ' -f1); do
    echo "$unit: $(systemctl is-active "$unit"), $(systemd-analyze security "$unit" --no-pager | tail -1)"
    journalctl -u "$unit" --no-pager -o cat |
      grep -E 'NVLS|via P2P|via SHM|all-reduce backend|all_reduce backend|Custom allreduce|NCCL version|using nccl|Warm-up|ermission denied|not permitted|rror:' |
      sort | uniq -c | cut -c1-220 | head -40 || true
  done
}

host() {
  say "the host, before anything"
  nvidia-smi -L
  nvidia-smi topo -m || true
  find /dev/ -path "/dev/nvidia*" -printf "%p %M %u:%g\n" | sort
  install_ansible
}

accept() {
  local status=0
  say "accept.yml"
  playbook hosts-replicas.yml accept.yml -l gpu-test -e accept_minutes="${MINUTES:-2}" -e accept_dir="$result/accept" \
    -e accept_python="$(echo /opt/vllm/*/bin/python)" -e accept_storage_dir=/srv > "$result/accept.log" 2>&1 || status=$?
  tail -40 "$result/accept.log"
  [ "$status" = 0 ] || fail "accept.yml ended with $status"
}

for step in "${@:-all}"; do
  case $step in
    all) host; serve tp 8000; serve replicas 8000 8001; accept ;;
    tp) serve tp 8000 ;;
    replicas) serve replicas 8000 8001 ;;
    accept) accept ;;
    *) fail "$step is no step; one of tp, replicas, accept" ;;
  esac
done
say "PASSED"
