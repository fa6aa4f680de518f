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
    description: Name of a file in C(catalog/releases/) or in O(release_path). What it says of this stack counts.
    type: str
    required: true
  release_path:
    description: Directories on the controller with the site's own releases.
    type: list
    elements: path
    default: []
  catalog_path:
    description: Directories on the controller with the site's own accelerators.
    type: list
    elements: path
    default: []
  policy:
    description: What happens to an installed driver. V(retain) keeps it if the release works with it, V(install)
      installs the requested version, V(halt) fails if anything would be installed.
    type: str
    choices: [retain, install, halt]
    default: retain
  hold:
    description: Whether to hold the driver's packages against upgrades.
    type: bool
    default: true
  reboot_allowed:
    description: Whether the host may be rebooted if that is needed.
    type: bool
    default: false
  keep:
    description: Whether to keep the installed driver whatever else is requested. The role sets it for a host on which
      another driver could not be installed.
    type: bool
    default: false
    version_added: 0.4.0
  resolve:
    description: Whether to resolve exact versions from the host's repositories, which must already be configured.
    type: bool
    default: false
  root:
    description: Root of the host's files. Tests use another tree.
    type: path
    default: /
"""
