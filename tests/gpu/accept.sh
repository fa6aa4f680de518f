#!/usr/bin/env bash
# Prove a GPU machine without a network with playbooks/accept.yml, on the machine itself:  accept.sh ANSIBLE OUT
# ANSIBLE is a tar.xz of what `pip install --target site -r requirements.txt` makes for Python 3.12; OUT gets accept.log, the
# result and its page. Needs root, Python 3.12, and PyTorch at /opt/torch/.venv. MINUTES of load, 1 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$2 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
exec > >(tee "$out/accept.log") 2>&1
tar -xJf "$1" -C "$work"
mkdir -p "$work/collections/ansible_collections/baremetal"
ln -s "$PWD" "$work/collections/ansible_collections/baremetal/inference"
cat > "$work/hosts.yml" <<'HOSTS'
inference:
  hosts:
    gpu-test: {ansible_connection: local, ansible_python_interpreter: /usr/bin/python3.12}
HOSTS
export PYTHONPATH=$work/site ANSIBLE_COLLECTIONS_PATH=$work/collections ANSIBLE_INJECT_FACT_VARS=false LC_ALL=C.UTF-8
export PATH=$PATH:/usr/local/nvidia/bin
nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader || true
status=0
/usr/bin/python3.12 -m ansible playbook -i "$work/hosts.yml" playbooks/accept.yml -l gpu-test \
  -e accept_minutes="${MINUTES:-1}" -e accept_dir="$out" -e accept_python=/opt/torch/.venv/bin/python \
  -e accept_storage_dir=/srv || status=$?
echo "accept.yml ended with $status after $SECONDS s"
