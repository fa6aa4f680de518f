# shellcheck shell=bash
# Sourced by the scripts that run inside the Debian that run.sh has booted. Everything is below /carried.
# Of two hosts, each one has a directory of its own.
result=${RESULT:-/carried/result}
place=/opt/collections/ansible_collections/baremetal/inference
mkdir -p "$result"
# NVLink multicast stays off in every process: a program that uses it can take the chips of a shared server out of service.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export ANSIBLE_COLLECTIONS_PATH=/opt/collections ANSIBLE_PIPELINING=1 ANSIBLE_GATHERING=explicit ANSIBLE_NOCOLOR=1 \
  ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_INJECT_FACT_VARS=false
say() { printf '%s [%3ds inside] %s\n' "$(date -u +%H:%M:%S)" "$SECONDS" "$*"; }
fail() { say "FAILED: $*"; exit 1; }

# playbook INVENTORY PLAYBOOK [ARGUMENT...]
playbook() { ansible-playbook -i "/carried/site/$1" "$place/playbooks/$2" "${@:3}"; }

install_ansible() {
  for wheel in /carried/ansible/*.whl; do python3.13 -m zipfile -e "$wheel" /opt/ansible; done
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
  systemd-run --quiet --unit=wheel-index python3.13 -m http.server 8099 --bind 127.0.0.1 --directory /carried/mirror
  touch "$result/started"
}

# chat PORT: ask the smoke model, and require its answer
chat() {
  curl --silent --show-error --fail --max-time 60 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
    -d '{"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": "Is the fleet ready?"}]}' | tee "$result/chat-$1.json"
  echo
  grep -q 'The fleet is ready' "$result/chat-$1.json" || fail "the chat on port $1 does not say that the fleet is ready"
}

# second_run NAME INVENTORY: site.yml again, which must change nothing
second_run() {
  say "site.yml again"
  playbook "$2" site.yml 2>&1 | tee "$result/$1-2.log" | tail -4
  grep -qE 'gpu-test +: .*changed=0 +unreachable=0 +failed=0' "$result/$1-2.log" || fail "the second run was not changed=0"
}

# verify NAME INVENTORY: tools/verify.py
verify() {
  say "verify.yml"
  python3.13 "$place/tools/verify.py" -i "/carried/site/$2" > "$result/$1.json" 2> "$result/$1.err" \
    || { cat "$result/$1.err" "$result/$1.json"; fail "verify.yml"; }
}
