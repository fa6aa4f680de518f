#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: mirror_bundle
short_description: (internal) Record what a carried directory holds, and check that it has arrived
description:
  - V(planned) lists the files that a directory lacks and fails where there is too little space for them.
  - V(present) writes C(ROOT/bundle.json), which names every file with its size and sha256, by one rename. Every file
    must exist with its size. Items of an earlier fill stay named as long as their files exist. Whatever is in
    C(ROOT/controller/) is named too.
  - Before it, V(present) writes C(ROOT/bundle.cdx.json), the same content as a bill of materials in CycloneDX 1.6, and
    C(ROOT/SHA256SUMS), which people sign. It removes the signature C(ROOT/SHA256SUMS.asc) when these lines change.
  - V(verified) compares a directory with its C(bundle.json), and fails with the files that are missing or damaged. With
    O(keyring) the signature is checked first, and links and files that it does not cover are an error. It changes
    nothing but O(record).
requirements:
  - gpgv or sqv, with O(keyring)
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  root:
    description: The directory, laid out as the role P(baremetal.inference.mirror#role) serves it.
    type: path
    required: true
  state:
    description: What to do.
    type: str
    choices: [planned, present, verified]
    default: present
  holds:
    description: What the directory is to hold, a mapping of V(weights), V(encodings), V(wheels) and V(images) to items,
      of items to files, and of files, by their paths below O(root), to C(size) and C(sha256).
    type: dict
    default: {}
  more:
    description: Bytes that are needed beside O(holds) with O(state=planned), for files that have no names yet.
    type: int
    default: 0
  read:
    description:
      - V(sizes) compares names and sizes, V(all) reads every file and compares its sha256. For O(state=verified).
    type: str
    choices: [sizes, all]
    default: all
  required:
    description: Whether a directory without C(bundle.json) is an error with O(state=verified).
    type: bool
    default: true
  collection_version:
    description: The version of this collection, for the bill of materials with O(state=present).
    type: str
    default: ""
  keyring:
    description: The public keys, encoded with Base64, of which one must have signed the directory with
      O(state=verified). Without them, no signature is required.
    type: str
    default: ""
  record:
    description: The file that notes how new the accepted content is, for O(state=verified) with O(keyring). Older
      content than it notes is refused. Empty for none.
    type: path
    default: ""
"""

EXAMPLES = "\n# roles/mirror/tasks/preflight.yml\n"

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.mirror.record_host import planned, present, verified


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    return {"planned": planned, "present": present, "verified": verified}[module.params["state"]](module)


if __name__ == "__main__":
    main()
