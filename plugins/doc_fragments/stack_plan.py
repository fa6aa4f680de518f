# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that decide what a host needs for a vendor's driver."""

    DOCUMENTATION = r"""
options:
  detected:
    description:
      - The detected hardware, the fact C(accelerator_detected) that M(baremetal.inference.accelerator_info) returns.
    type: dict
    required: true
  release:
    description:
      - Name of a file in C(catalog/releases/) or in O(release_path). What it says of this stack counts.
    type: str
    required: true
  release_path:
    description:
      - Directories on the controller with the site's own releases.
    type: list
    elements: path
    default: []
  catalog_path:
    description:
      - Directories on the controller with the site's own accelerators.
    type: list
    elements: path
    default: []
  policy:
    description:
      - What becomes of a driver that is there. V(retain) leaves one alone that the release works with, V(install)
        brings it to what is wanted, V(halt) fails where anything is to be installed.
    type: str
    choices: [retain, install, halt]
    default: retain
  hold:
    description:
      - Whether packages of the driver are held against upgrades.
    type: bool
    default: true
  reboot_allowed:
    description:
      - Whether the host may be rebooted where that is needed.
    type: bool
    default: false
  keep:
    description:
      - Whether the driver that is there is to stay whatever else is asked for. That is for a host on which another one
        could not be installed.
    type: bool
    default: false
    version_added: 0.4.0
  resolve:
    description:
      - Whether the host's repositories are asked which versions they have, so that every version is exact. They have to
        be there for that.
    type: bool
    default: false
  root:
    description:
      - Where the host's files are. Tests show a tree of their own here.
    type: path
    default: /
"""
