#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: weights
short_description: Download the weights of models to a host, as their manifests pin them
version_added: 0.1.0
description:
  - Fetches the files of each model from the first source that has them all, checks their sha256 while they are written,
    and publishes each model's directory C(ROOT/ORGANISATION/NAME/REVISION) with one rename. A service
    never sees an incomplete model.
  - A directory whose files have not changed since they were verified is not read again.
  - Before the first byte is written, the module checks the free space, and that a source has every missing file with
    its size. In check mode it does only that.
  - The next run continues an interrupted download.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  models:
    description: The models, each by the name of its manifest, such as V(openai/gpt-oss-20b), or as a manifest with the
      keys C(repository), C(revision) (40 hexadecimal digits) and C(files) (C(size) and C(sha256) of each by its name).
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
      - Where the files come from, tried in order. Each is a text, or a mapping with the key C(source) and its
        options.
      - An absolute path on the host, or a URL (C(http), C(https), C(file)), below which the files lie at
        C(ORGANISATION/NAME/REVISION/FILE).
      - V(hub) for the Hugging Face hub, V(hub:URL) for another one with the same API; V(modelscope),
        V(modelscope:URL).
      - V(s3://BUCKET/PREFIX) with the same files below the prefix; C(endpoint) and C(region) name the service. The
        addresses are signed on the controller, with the keys in E(AWS_ACCESS_KEY_ID) and E(AWS_SECRET_ACCESS_KEY), or
        those of C(profile) in C(credentials_file); without any the bucket must be public. No host gets the keys.
      - V(controller:/PATH) for a directory on the controller with the same files, pushed with rsync over SSH.
      - C(token_file) or C(token_env) name the file or the environment variable on the controller with the token of a
        URL, a hub or ModelScope. The latter two use E(HF_TOKEN) and E(MODELSCOPE_API_TOKEN) when these are set there.
      - Proxies are taken from the environment of the host.
    type: list
    elements: raw
    default: []
  root:
    description: Directory on the host below which the models lie.
    type: path
    default: /srv/models
  ca_file:
    description: PEM file on the host with certificate authorities that are trusted beside the system's.
    type: path
  connections:
    description:
      - The maximum number of parts of files that are downloaded at once. Each takes 16 MiB of memory.
      - The download starts with one for each 64 MiB (at least two, at most one per processor), and adds more while the
        processors have time.
    type: int
    default: 8
    version_added: 0.4.0
  bandwidth:
    description: The maximum megabits per second of this host's downloads, V(0) for no limit.
    type: int
    default: 0
    version_added: 0.4.0
  stall_timeout:
    description:
      - Seconds without a byte after which a connection is closed. Where all connections stall, the next source is used;
        the last one is tried four times.
      - The head of an answer must be complete within this time.
    type: int
    default: 30
    version_added: 0.7.0
  lowest_rate:
    description: The minimum kilobytes per second of a source, all connections together, measured over each minute of
      waiting for it; V(0) for none. A slower source is left for the next one; with the last one the download ends, and
      what has arrived is kept.
    type: int
    default: 10
    version_added: 0.7.0
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
  lock_timeout:
    description: Seconds to wait for another run that downloads the same model, on this host or on one that shares its
      file system.
    type: int
    default: 86400
    version_added: 0.5.0
  keep:
    description: How many other revisions of each model to keep for a rollback; V(-1) for all. A revision that an
      instance's symlink points to is never removed, and nothing is removed from a file system that other hosts may use,
      from a directory in which something is mounted, or from one that another user can exchange.
    type: int
    default: 1
    version_added: 0.5.0
  shared:
    description:
      - Whether O(root) is on a file system that other hosts use too. V(auto) decides by the type of the file system.
    type: str
    choices: [auto, "yes", "no"]
    default: auto
    version_added: 0.5.0
  progress:
    description:
      - Seconds between two lines of progress, V(0) for none.
      - The download runs in the background of the host. It continues when the controller's connection is lost, and the
        next run waits for it.
    type: int
    default: 15
    version_added: 0.5.0
  progress_file:
    description: File on the host into which the module writes its progress. The action plugin sets it.
    type: path
    version_added: 0.5.0
  access_file:
    description: JSON file on the host with the token, or the signed addresses, of each source by its place in
      O(sources). The action plugin writes it; the module removes it when it starts.
    type: path
    version_added: 0.5.0
  pushed:
    description:
      - The source from which files were pushed into the partial directories of the models. The action plugin sets it.
    type: str
    default: ""
    version_added: 0.5.0
  state_dir:
    description: Directory in which each vLLM instance has a symlink C(NAME/model) to its weights. A directory that a
      running instance uses is not replaced.
    type: path
    default: /var/lib/vllm
  serving:
    description:
      - What happens when an instance runs from a model whose files are missing or damaged.
      - V(refuse) fails before anything changes. V(report) is for check mode; it warns, so that everything else is
        reported too. V(repair) fetches the files, stops the instance, which lets its requests finish, replaces the
        files and starts it again.
    type: str
    choices: [refuse, report, repair]
    default: refuse
    version_added: 0.7.0
seealso:
  - module: baremetal.inference.encodings
"""

EXAMPLES = r"""
- name: Download gpt-oss-20b from the site's mirror, or from a carried disk
  baremetal.inference.weights:
    models:
      - openai/gpt-oss-20b
    sources:
      - https://mirror.example.com/weights
      - /media/disk/weights
    ca_file: /etc/ssl/certs/example-ca.pem

- name: Download it from the site's object store, else from the hub with a token that only the controller has
  baremetal.inference.weights:
    models:
      - openai/gpt-oss-120b
    sources:
      - source: s3://models/weights
        endpoint: https://s3.example.com
        credentials_file: /etc/ansible/s3-credentials
      - source: hub
        token_file: /etc/ansible/hub-token

- name: Download the site's own model
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
      description: Why each source before it was skipped.
      type: list
      elements: str
removed:
  description: Revisions and partial downloads that were removed, or would be.
  type: list
  elements: dict
  returned: success
  contains:
    path:
      description: The directory.
      type: str
    kind:
      description: Whether it is an old V(revision) or an V(abandoned) partial download.
      type: str
    bytes:
      description: Bytes that its removal frees.
      type: int
scrub_installed:
  description: Whether the scrub of the role P(baremetal.inference.weights#role) is installed on the host.
  type: bool
  returned: success
  version_added: 0.7.0
unsourced:
  description: The models that no source has, with their partial directory and their missing files.
  type: list
  elements: dict
  returned: failure for this reason
"""

import platform

from ..module_utils.common.door import start_module
from ..module_utils.weights.manifest import WeightsError
from ..module_utils.weights.models_host import (
    NoSourcesError,
    damaged_in_service,
    describe_foreign,
    read_access,
    removal_diff,
    run,
)
from ..module_utils.weights.scrub_host import describe_damage, has_scrub
from ..module_utils.weights.serving_host import REPORT

# The minimum of each number.
MINIMUMS = {
    "connections": 1,
    "bandwidth": 0,
    "stall_timeout": 1,
    "lowest_rate": 0,
    "lock_timeout": 0,
    "keep": -1,
    "progress": 0,
}


def main() -> None:
    module = start_module(DOCUMENTATION)
    # Before everything else, so that the file is always removed.
    try:
        access = read_access(module.params["access_file"])
    except (WeightsError, OSError, ValueError) as exc:
        module.fail_json(msg=str(exc))
    for name, least in MINIMUMS.items():
        if module.params[name] < least:
            module.fail_json(msg=f"weights_{name}: found {module.params[name]}, expected {least} or more")
    try:
        outcomes, removed = run(module, access)
    except NoSourcesError as exc:
        module.fail_json(msg=str(exc), unsourced=exc.models)
    except (WeightsError, OSError) as exc:
        module.fail_json(msg=str(exc))
    for outcome in outcomes:
        for reason in outcome.skipped:
            module.warn(f"source skipped for {outcome.state.manifest.repository}: {reason}")
        if outcome.state.foreign and not outcome.state.missing:
            module.warn(f"{platform.node()}: {describe_foreign(outcome.state)}")
    for sentence in describe_damage(module.params["root"]):
        module.warn(f"{platform.node()}: {sentence}")
    if module.check_mode and module.params["serving"] == REPORT:
        for sentence in damaged_in_service(module, outcomes):
            module.warn(f"{platform.node()}: {sentence}")
    module.exit_json(
        changed=any(outcome.state.changed for outcome in outcomes) or bool(removed),
        models=[outcome.as_dict() for outcome in outcomes],
        removed=[old.as_dict() for old in removed],
        scrub_installed=has_scrub(),
        diff=[outcome.diff() for outcome in outcomes if outcome.state.changed] + [removal_diff(old) for old in removed],
    )


if __name__ == "__main__":
    main()
