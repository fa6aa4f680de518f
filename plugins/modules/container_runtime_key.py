#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: container_runtime_key
short_description: (internal) Install the key of a package repository
description:
  - Downloads the OpenPGP key of a package repository and installs it as a keyring file, if its fingerprint is among the
    given ones. If the download holds any other key, nothing is written.
  - A keyring file that already holds the key stays unchanged, and nothing is downloaded.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  url:
    description: URL of the key, with or without ASCII armour.
    type: str
    required: true
  path:
    description: The keyring file. Its directory is created if it is missing.
    type: path
    required: true
  fingerprints:
    description: Fingerprints of the primary keys that it must hold, in capitals and without spaces.
    type: list
    elements: str
    required: true
  timeout:
    description: Seconds until the key must have arrived.
    type: int
    default: 20
"""

EXAMPLES = "\n# roles/container_runtime/tasks/repositories.yml\n"

import http.client
import os

from ansible.module_utils.urls import fetch_url

from ..module_utils.common.deadline import finish_within
from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.common.files_host import make_directories, publish
from ..module_utils.common.foreign_text import quote_foreign
from ..module_utils.container_runtime.host import read_fingerprints
from ..module_utils.container_runtime.keys import KeyFileError, armoured, fingerprints

# Far more than any vendor's key; a longer answer is some other page.
LARGEST = 1 << 20


def main() -> None:
    module = start_module(DOCUMENTATION)
    path, wanted = module.params["path"], sorted(module.params["fingerprints"])
    found = read_fingerprints(path)
    if found != wanted:
        data = download_key(module)
        if not module.check_mode:
            make_directories(os.path.dirname(path))
            publish(path, armoured(data))
    lines = ["".join(f"{name}\n" for name in names) for names in (found, wanted)]
    module.exit_json(
        changed=found != wanted,
        fingerprints=wanted,
        diff={"before": lines[0], "after": lines[1], "before_header": path, "after_header": path},
    )


def download_key(module: AnsibleModule) -> bytes:
    """Return the downloaded key. Fails for any other key than the requested one."""
    url, wanted = module.params["url"], sorted(module.params["fingerprints"])

    def fetch() -> bytes:
        response, info = fetch_url(module, url, timeout=module.params["timeout"])
        if response is None or info["status"] != 200:
            module.fail_json(
                msg=f"the key at {url} cannot be downloaded: {quote_foreign(info['msg'])}; check that this host "
                "reaches it, or name a mirror of the site (container_runtime_source: mirror)"
            )
        return bytes(response.read(LARGEST))

    try:
        data = finish_within(module.params["timeout"], fetch)
    except (OSError, http.client.HTTPException) as exc:
        module.fail_json(msg=f"the key at {url} did not arrive whole: {quote_foreign(exc)}; nothing was installed")
    try:
        found = fingerprints(data)
    except KeyFileError as exc:
        module.fail_json(msg=f"{url}: found {exc}, expected the key {', '.join(wanted)}; nothing was installed")
    if found != wanted:
        module.fail_json(
            msg=f"{url}: found the key {', '.join(found)}, expected {', '.join(wanted)}; nothing was installed. Ask "
            "the vendor before you trust a new key"
        )
    return data


if __name__ == "__main__":
    main()
