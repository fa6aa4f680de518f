# SPDX-License-Identifier: GPL-3.0-or-later

from ..plugin_utils.common.action import CheckedModule


class ActionModule(CheckedModule):
    """Check the options of the role mirror, then inspect the host."""

    ROLES = ("mirror",)
