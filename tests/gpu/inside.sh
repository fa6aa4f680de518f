#!/usr/bin/env bash
# Runs inside the Debian that run.sh has booted: site.yml twice, a chat, verify.yml. Everything is below /carried.
set -euo pipefail
result=/carried/result
mkdir -p "$result"
say() { printf '%s [%3ds inside] %s\n' "$(date -u +%H:%M:%S)" "$SECONDS" "$*"; }
fail() { say "FAILED: $*"; exit 1; }

say "the host, before anything"
nvidia-smi -L
ls /usr/bin/python3.*
for wheel in /carried/ansible/*.whl; do python3.13 -m zipfile -e "$wheel" /opt/ansible; done
place=/opt/collections/ansible_collections/baremetal/inference
mkdir -p "$place"
tar -xzf /carried/collection/*.tar.gz -C "$place"
# Not by PYTHONPATH, which the programs that Ansible runs would inherit.
cat > /usr/local/bin/ansible-playbook <<'PROGRAM'
#!/usr/bin/python3.13
import sys
sys.path.insert(0, "/opt/ansible")
from ansible.cli.playbook import main
main()
PROGRAM
chmod 755 /usr/local/bin/ansible-playbook
export ANSIBLE_COLLECTIONS_PATH=/opt/collections ANSIBLE_PIPELINING=1 ANSIBLE_GATHERING=explicit ANSIBLE_NOCOLOR=1 \
  ANSIBLE_LOCALHOST_WARNING=false
playbook() { ansible-playbook -i /carried/site/hosts.yml "$@"; }
systemd-run --quiet --unit=wheel-index python3.13 -m http.server 8099 --bind 127.0.0.1 --directory /carried/mirror
touch "$result/started"

say "explain.yml"
model=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | grep -oE 'H100|H200' | tr '[:upper:]' '[:lower:]')
playbook "$place/playbooks/explain.yml" -e "accelerator=$model" > "$result/explain.txt" 2>&1 || true

say "site.yml"
playbook "$place/playbooks/site.yml" 2>&1 | tee "$result/site-1.log"
say "a chat"
curl --silent --show-error --fail --max-time 60 http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": "Is the fleet ready?"}]}' | tee "$result/chat.json"
echo
grep -q 'The fleet is ready' "$result/chat.json" || fail "the chat does not say that the fleet is ready"

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

say "site.yml again"
playbook "$place/playbooks/site.yml" 2>&1 | tee "$result/site-2.log" | tail -12
grep -qE 'gpu-test +: .*changed=0 +unreachable=0 +failed=0' "$result/site-2.log" || fail "the second run was not changed=0"

say "verify.yml"
python3.13 "$place/tools/verify.py" -i /carried/site/hosts.yml > "$result/verify.json" 2> "$result/verify.err" \
  || { cat "$result/verify.err" "$result/verify.json"; fail "verify.yml"; }
cat "$result/verify.json"
say "PASSED"
