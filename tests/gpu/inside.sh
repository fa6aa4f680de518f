#!/usr/bin/env bash
# Runs inside the Debian that run.sh has booted: site.yml twice, a chat, verify.yml.
set -euo pipefail
# shellcheck source=tests/gpu/setup.sh
. /carried/setup.sh

say "the host, before anything"
nvidia-smi -L
ls /usr/bin/python3.*
install_ansible

say "explain.yml"
model=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H100|H200' | tr '[:upper:]' '[:lower:]')
playbook hosts.yml explain.yml -e "accelerator=$model" > "$result/explain.txt" 2>&1 || true

say "site.yml"
playbook hosts.yml site.yml 2>&1 | tee "$result/site-1.log"
say "a chat"
chat 8000

say "what a driver role would have left behind"
find /etc/modprobe.d /etc/modules-load.d /etc/apt /boot /etc/systemd/system -newer "$result/started" -type f \
  ! -name 'vllm@*' > "$result/driver-files.txt"
cat "$result/driver-files.txt"
[ ! -s "$result/driver-files.txt" ] || fail "the working driver was not left alone"

say "what was compiled, and how the unit is confined"
find /var/cache/vllm -name '*.so' -newer "$result/started" | sort | tee "$result/compiled.txt" | tail -5
grep -q flashinfer "$result/compiled.txt" || say "NOTE: FlashInfer compiled nothing"
grep -E '^(PATH|CUDA_HOME|LIBRARY_PATH|VLLM_USE)' /etc/vllm/chat.env
systemd-analyze security vllm@chat.service --no-pager | tail -1
nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader

second_run site hosts.yml
verify verify hosts.yml
cat "$result/verify.json"
say "PASSED"
