# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Where modules that look at a host's hardware find what its kernel shows."""

    DOCUMENTATION = r"""
options:
  sysfs_root:
    description:
      - Where sysfs is mounted on the host. Tests show a tree of their own here.
    type: path
    default: /sys
  proc_root:
    description:
      - Where procfs is mounted on the host. Tests show a tree of their own here.
    type: path
    default: /proc
"""
