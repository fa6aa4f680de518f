#!/usr/bin/env bash
# Fill the disk that is carried to the lab's mirror (.lab/mirror) with playbooks/mirror.yml, as one does for a site: wheels,
# the encodings, the smoke model in three revisions. What is there already is left alone. With MOLECULE_LONG=1 also 1.1 GB of
# wheels for evaluations.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python
carried=$PWD/.lab/mirror
# Where the smoke model comes from: the lab is its publisher.
made=$PWD/.lab/made
model=baremetal/gpt-oss-smoke
evaluation=false
[[ -z ${MOLECULE_LONG:-} ]] || evaluation=true

mkdir -p "$carried"
# The model is made of the vocabulary in one of the wheels, so these come first.
$python tools/vllm/fetch_wheels.py catalog/releases/requirements/0.32.0-cpu-cp311-x86_64.txt "$carried"
harmony=("$carried"/wheels/oss_harmony-*.whl)
build=("$python" tools/smoke_model/build.py "$made" --vocabulary "${harmony[-1]}")
"${build[@]}"
"${build[@]}" --subject crew --manifest "$made/manifests/$model.yml"
# A third of the speed, with the same answers.
"${build[@]}" --layers 26 --manifest "$made/slow/$model.yml"
for manifests in manifests slow; do
  ANSIBLE_CONFIG=$PWD/ansible.cfg PATH="$PWD/.venv/bin:$PATH" ansible-playbook -i inventories/lab playbooks/mirror.yml \
    --extra-vars "{bundle_dir: '$carried', bundle_weights_sources: ['$made/weights'],
                   bundle_models: [$model], bundle_evaluation: $evaluation, bundle_weights_manifest_path: ['$made/$manifests']}"
done
