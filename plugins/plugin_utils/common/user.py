# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The person who runs a playbook, for records."""

from __future__ import annotations

import os
import pwd
import re
from typing import Mapping

# Those of the environment in which a person works; cron, CI and containers often set none of them.
VARIABLES = ("SUDO_USER", "USER", "LOGNAME")


def controller_user(environment: Mapping[str, str] = os.environ, uid: int | None = None) -> str:
    """Return the user of the controller, also under sudo: a name, or ``uid-1000`` for a user without one."""
    uid = os.getuid() if uid is None else uid
    names = [environment.get(name, "") for name in VARIABLES]
    try:
        names.append(pwd.getpwuid(uid).pw_name)
    except KeyError:
        names.append(f"uid-{uid}")
    return re.sub(r"[^A-Za-z0-9_.@+-]", "_", next(name for name in names if name))
