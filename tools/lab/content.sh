#!/usr/bin/env bash
# Fill the disk for the lab's mirror ($LAB_HOME/mirror; LAB_HOME is .lab by default) with playbooks/mirror.yml, as for a real site: wheels, encodings, and the
# smoke model in two revisions. Existing files stay unchanged. With MOLECULE_LONG=1 also 1.1 GB of wheels for evaluations.
set -euo pipefail
home=${LAB_HOME:+$(realpath -m "$LAB_HOME")}
cd "$(dirname "$0")/../.."
home=${home:-$PWD/.lab}
python=.venv/bin/python
carried=$home/mirror
# The source of the smoke model: the lab builds it.
made=$home/made
model=baremetal/gpt-oss-smoke
evaluation=false
[[ -z ${MOLECULE_LONG:-} ]] || evaluation=true

mkdir -p "$carried"
# The model needs the vocabulary from one of the wheels, so the wheels come first.
$python tools/vllm/fetch_wheels.py catalog/releases/requirements/0.32.0-cpu-cp311-x86_64.txt "$carried"
harmony=("$carried"/wheels/oss_harmony-*.whl)
build=("$python" tools/smoke_model/build.py "$made" --vocabulary "${harmony[-1]}")
"${build[@]}"
"${build[@]}" --subject crew --manifest "$made/manifests/$model.yml"
ANSIBLE_CONFIG=$PWD/ansible.cfg PATH="$PWD/.venv/bin:$PATH" ansible-playbook -i inventories/lab playbooks/mirror.yml \
  --extra-vars "{bundle_dir: '$carried', bundle_weights_sources: ['$made/weights'],
                 bundle_models: [$model], bundle_evaluation: $evaluation, bundle_weights_manifest_path: ['$made/manifests']}"
