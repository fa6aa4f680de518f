# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of playbooks that a user sets with -e: Ansible ignores a misspelt one, and the default takes effect.

Only extra variables are judged: in an inventory a site may have variables of its own with the same beginning.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Iterable

from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars
from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import misspelt
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.places import COLLECTION

PLAYBOOKS = COLLECTION / "playbooks"
# What the names of their options begin with.
PREFIXES = (
    "accept", "bench", "bundle", "discover", "drain", "drift", "evaluate", "explain", "fleet", "lock", "pin", "remove",
    "render", "site", "tune", "undrain", "verify",
)  # fmt: skip
_NAME = re.compile(rf"\b(?:{'|'.join(PREFIXES)})_[a-z0-9_]+\b")


class PlaybookOptionError(ValueError):
    """An extra variable is a misspelt option of a playbook; the message names both."""


def check_playbook_options(task_path: str | None) -> list[str]:
    """Return warnings of extra variables that look like options of a playbook and are none.

    ``task_path`` is Ansible's ``FILE:LINE`` of the task; nothing is checked in playbooks of others. Raises
    PlaybookOptionError for a misspelt option.
    """
    if not task_path or PLAYBOOKS not in Path(task_path.rpartition(":")[0]).resolve().parents:
        return []
    return unknown_options(frozenset(str(name) for name in load_extra_vars(DataLoader())))


@functools.lru_cache(maxsize=16)
def unknown_options(names: Iterable[str]) -> list[str]:
    """Return a warning for each name that begins as options do and is none. Raises PlaybookOptionError."""
    unknown = [name for name in sorted(names) if _NAME.fullmatch(name)]
    unknown = [name for name in unknown if name not in known_options()] if unknown else []
    for name in unknown:
        nearest = misspelt(name, known_options())
        if nearest:
            raise PlaybookOptionError(f"-e {name}: no playbook has this option; nearest: {nearest!r}")
    return [f"-e {name}: no playbook has this option; nothing reads it" for name in unknown]


@functools.lru_cache(maxsize=1)
def known_options() -> frozenset[str]:
    """Return the names with these beginnings in the playbooks, their task files and variables."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(PLAYBOOKS.rglob("*.yml")))
    return frozenset(name for text in texts for name in _NAME.findall(text))
