# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the modules that inspect a vendor's driver."""

    DOCUMENTATION = r"""
options:
  minimum_driver:
    description: The oldest driver that the release of vLLM works with. Any version if empty.
    type: str
    default: ""
  hold:
    description: Whether packages of the driver that an upgrade may replace are a finding.
    type: bool
    default: true
  offered_of:
    description: Names of packages whose versions in the host's repositories are returned.
    type: list
    elements: str
    default: []
  contents_of:
    description: Paths of text files on the host whose contents are returned.
    type: list
    elements: path
    default: []
  root:
    description: Root of the host's files. Tests use another tree.
    type: path
    default: /
"""
