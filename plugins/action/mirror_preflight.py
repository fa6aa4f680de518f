# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ..plugin_utils.common.action import CheckedModule


class ActionModule(CheckedModule):
    """Check the options of the role mirror, then inspect the host."""

    ROLES = ("mirror",)
