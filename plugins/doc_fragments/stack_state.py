# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that see whether a vendor's driver is whole."""

    DOCUMENTATION = r"""
options:
  minimum_driver:
    description:
      - The oldest driver that the release of vLLM works with. Any will do when empty.
    type: str
    default: ""
  hold:
    description:
      - Whether packages of the driver that an upgrade may replace are a finding.
    type: bool
    default: true
  offered_of:
    description:
      - Names of packages; which versions of them the host's repositories have is returned.
    type: list
    elements: str
    default: []
  contents_of:
    description:
      - Paths of text files on the host whose contents are returned.
    type: list
    elements: path
    default: []
  root:
    description:
      - Where the host's files are. Tests show a tree of their own here.
    type: path
    default: /
"""
