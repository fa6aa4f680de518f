# SPDX-License-Identifier: GPL-3.0-or-later


class ModuleDocFragment:
    """Options of the modules that read a host's hardware from its kernel."""

    DOCUMENTATION = r"""
options:
  sysfs_root:
    description: Where sysfs is mounted on the host. Tests use another tree.
    type: path
    default: /sys
  proc_root:
    description: Where procfs is mounted on the host. Tests use another tree.
    type: path
    default: /proc
"""
