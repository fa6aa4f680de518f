#!/usr/bin/env bash
# Run `ansible-test sanity` on the files that git tracks or would add, in the directory layout that ansible-test expects.
# Without bin/, because ansible-test would read the scripts there as Python.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" LC_ALL=C.UTF-8

# ansible-test would download a script that installs pip into its environments. Use the pip that Python contains.
bootstrap="$HOME/.ansible/test/cache/get_pip_24_2.py"
if [[ ! -e $bootstrap ]]; then
  mkdir -p "$(dirname "$bootstrap")"
  cp tests/sanity_pip.py "$bootstrap"
fi

tree=.cache/sanity/ansible_collections/baremetal/inference
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -co --exclude-standard -- . ':!.collections' ':!.config' ':!bin' | rsync -a --ignore-missing-args --files-from=- ./ "$tree/"
cd "$tree"
git init --quiet && git add --all  # ansible-test checks the files that git lists
ansible-test sanity --python "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" --requirements --color no "$@"
