#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: weights
short_description: Bring the weights of models to a host, as their manifests pin them
version_added: 0.1.0
description:
  - Fetches the files of each model from the first source that has them all, checks their sha256 while they are written,
    and publishes each model's directory C(ROOT/ORGANISATION/NAME/REVISION) with one rename. What a service sees is
    complete.
  - A directory whose files are as they were when they were verified is not read again.
  - Before the first byte is written it looks whether there is space, and whether a source has every missing file with
    its size. In check mode that is all it does.
  - A fetch that broke off is continued by the next run.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  models:
    description:
      - The models, each by the name of its manifest, such as V(openai/gpt-oss-20b), or as a manifest with the keys
        C(repository), C(revision) (40 hexadecimal digits) and C(files) (C(size) and C(sha256) of each by its name).
    type: list
    elements: raw
    required: true
  manifest_path:
    description:
      - Directories on the controller that are searched for C(NAME.yml) before the collection's own C(catalog/weights).
    type: list
    elements: path
    default: []
  sources:
    description:
      - URLs (C(http), C(https), C(file)) or absolute paths on the host, tried in order. Below them lie the files at
        C(ORGANISATION/NAME/REVISION/FILE).
      - Proxies are taken from the environment.
    type: list
    elements: str
    default: []
  root:
    description:
      - Directory on the host below which the models lie.
    type: path
    default: /srv/models
  ca_file:
    description:
      - PEM file on the host with certificate authorities that are trusted beside the system's.
    type: path
  connections:
    description:
      - How many parts of files are fetched at once. Each takes 16 MiB of memory.
    type: int
    default: 8
    version_added: 0.4.0
  bandwidth:
    description:
      - Megabits per second that the fetch may take on this host, V(0) for all that it gets.
    type: int
    default: 0
    version_added: 0.4.0
  verify:
    description:
      - V(stamp) reads only the files that differ in size, time or inode from when they were verified.
      - V(full) reads all.
    type: str
    choices: [stamp, full]
    default: stamp
  check_sources:
    description:
      - Whether check mode asks the sources for what is missing. Switch it off where the mirror does not exist yet.
    type: bool
    default: true
  state_dir:
    description:
      - Directory in which each vLLM instance has a symlink C(NAME/model) to its weights. A directory that a running
        instance uses is not replaced.
    type: path
    default: /var/lib/vllm
seealso:
  - module: baremetal.inference.encodings
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Bring gpt-oss-20b from the site's mirror, or from a disk that somebody carried in
  baremetal.inference.weights:
    models:
      - openai/gpt-oss-20b
    sources:
      - https://mirror.example.com/weights
      - /media/disk/weights
    ca_file: /etc/ssl/certs/example-ca.pem

- name: Bring a model of the site
  baremetal.inference.weights:
    models:
      - repository: example/tuned
        revision: 0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de
        files:
          config.json:
            size: 2
            sha256: 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a
    sources:
      - http://mirror/weights
"""

RETURN = r"""
asked:
  description: The value of O(models), as it was given.
  type: list
  elements: raw
  returned: success
models:
  description: What was done for each model, or would be, in the order of O(models).
  type: list
  elements: dict
  returned: success
  contains:
    repository:
      description: Organisation and name.
      type: str
      sample: openai/gpt-oss-20b
    revision:
      description: The revision of the manifest.
      type: str
    path:
      description: The model's directory on the host.
      type: str
      sample: /srv/models/openai/gpt-oss-20b/6cee5e81ee83917806bbde320786a8fb61efebee
    changed:
      description: Whether anything was missing, wrong or not yet verified.
      type: bool
    files_fetched:
      description: The files that were missing or wrong.
      type: list
      elements: str
    bytes:
      description: Bytes that were transferred.
      type: int
    seconds:
      description: How long it took.
      type: float
    source:
      description: The source of the files; empty when none was needed.
      type: str
    skipped_sources:
      description: Why each source before it was passed over.
      type: list
      elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils._fetch import Settings
from ansible_collections.baremetal.inference.plugins.module_utils._manifest import WeightsError, check_unique, parse
from ansible_collections.baremetal.inference.plugins.module_utils._weights_host import (
    Outcome,
    Site,
    bring,
    check,
    check_sources,
    choose,
    look,
)

BYTES_OF_MEGABIT = 125_000


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "models": {"type": "list", "elements": "raw", "required": True},
            "manifest_path": {"type": "list", "elements": "path", "default": []},
            "sources": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/srv/models"},
            "ca_file": {"type": "path"},
            "connections": {"type": "int", "default": 8},
            "bandwidth": {"type": "int", "default": 0},
            "verify": {"type": "str", "choices": ["stamp", "full"], "default": "stamp"},
            "check_sources": {"type": "bool", "default": True},
            "state_dir": {"type": "path", "default": "/var/lib/vllm"},
        },
        supports_check_mode=True,
    )
    for name in ("connections", "bandwidth"):
        least = 1 if name == "connections" else 0
        if module.params[name] < least:
            module.fail_json(msg=f"weights_{name}: found {module.params[name]}, expected {least} or more")
    try:
        outcomes = run(module)
    except (WeightsError, OSError) as exc:
        module.fail_json(msg=str(exc))
    for outcome in outcomes:
        for reason in outcome.skipped:
            module.warn(f"source passed over for {outcome.state.manifest.repository}: {reason}")
    module.exit_json(
        changed=any(outcome.state.changed for outcome in outcomes),
        models=[outcome.as_dict() for outcome in outcomes],
        diff=[outcome.diff() for outcome in outcomes if outcome.state.changed],
    )


def run(module: AnsibleModule) -> list[Outcome]:
    """Look at all models before the first one is fetched. Raises WeightsError."""
    params = module.params
    manifests = [parse(model) for model in params["models"]]
    check_unique(manifests)
    check_sources(params["sources"])
    site = Site(
        root=params["root"],
        sources=tuple(params["sources"]),
        state_dir=params["state_dir"],
        is_active=lambda unit: is_active(module, unit),
        settings=Settings(
            ca_file=params["ca_file"], connections=params["connections"], limit=params["bandwidth"] * BYTES_OF_MEGABIT
        ),
    )
    states = [look(site.root, manifest, params["verify"] == "full") for manifest in manifests]
    check(states, site)
    if module.check_mode and not params["check_sources"]:
        return [Outcome(state) for state in states]
    chosen = [choose(state, site) for state in states]
    if module.check_mode:
        return chosen
    # Whatever the connection's umask is: every instance's user reads the weights.
    os.umask(0o022)
    return [bring(outcome, site, module.log) if outcome.state.changed else outcome for outcome in chosen]


def is_active(module: AnsibleModule, unit: str) -> bool:
    """Whether systemd runs the unit or is about to."""
    systemctl = module.get_bin_path("systemctl")
    if systemctl is None:
        return False
    _rc, out, _err = module.run_command([systemctl, "is-active", unit])
    return out.strip() in ("active", "activating", "reloading", "deactivating")


if __name__ == "__main__":
    main()
