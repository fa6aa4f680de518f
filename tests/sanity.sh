#!/usr/bin/env bash
# Run `ansible-test sanity` on the files that git knows or would take, laid out as ansible-test wants them. It takes what is
# in bin/ for Python.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" LC_ALL=C.UTF-8

# ansible-test fetches a script that installs pip into its own environments. Python brings one along.
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
git init --quiet && git add --all  # ansible-test takes the files that git lists
ansible-test sanity --python "$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')" --requirements --color no "$@"
