# SPDX-License-Identifier: GPL-3.0-or-later
"""The person who runs a playbook, for the records of drains and rollouts."""

import os
import pwd
import re
from typing import Mapping

# The first that is set: under sudo the others name root. cron and CI set none of them.
VARIABLES = ("SUDO_USER", "USER", "LOGNAME")
_FOREIGN = re.compile(r"[^A-Za-z0-9_.@+-]")


def controller_user(environment: Mapping[str, str]) -> str:
    """Return the user's name in the characters that an owner may have; in a container without names, his number."""
    name = next((environment[variable] for variable in VARIABLES if environment.get(variable)), "")
    return _FOREIGN.sub("_", name or _name_of(os.getuid()))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"
