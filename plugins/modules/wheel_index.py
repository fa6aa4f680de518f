#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: wheel_index
short_description: (internal) Make a directory of wheels an index that pip and uv read
description:
  - Writes the pages of a simple index (PEP 503) into C(simple/) for the wheels that lie flat in C(wheels/) of the same
    directory, so that any web server that serves that directory is a package index.
  - Puts C(FILE.whl.metadata) beside each wheel (PEP 658), so that a client resolves without fetching wheels.
  - Reads a wheel only if its size, time or inode has changed since the last run.
  - Every page is published by rename; nothing is changed if any wheel is unreadable.
  - Wheels themselves are never changed or removed. Source archives are not listed, hidden files are ignored.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  root:
    description:
      - Directory that holds C(wheels/) and gets C(simple/).
      - An absent C(wheels/) counts as an empty one.
    type: path
    required: true
  trust_stamps:
    description: Whether a wheel is read only if its size, time or inode has changed since the last run. Anyone who
      could write into O(root) could write what the last run noted too.
    type: bool
    default: true
"""

EXAMPLES = "\n# roles/mirror/tasks/configure.yml\n"

import os

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.wheels.make_index_host import make_index


@door(DOCUMENTATION, OSError)
def main(module: AnsibleModule) -> Result:
    # The web server's user must read these files, whatever root's umask is.
    os.umask(0o022)
    found = make_index(module.params["root"], module.params["trust_stamps"], module.check_mode)
    unreadable = [entry.wheel.filename for entry in found.entries if not entry.world_readable]
    if unreadable:
        where = os.path.join(module.params["root"], "wheels")
        module.warn(f"files in {where} that a web server may not be able to read (chmod o+r): {', '.join(unreadable)}")
    return {
        "changed": found.changed,
        "projects": found.projects,
        "wheels": len(found.entries),
        "bytes": sum(entry.stamp[0] for entry in found.entries),
        "diff": found.diff,
    }


if __name__ == "__main__":
    main()
