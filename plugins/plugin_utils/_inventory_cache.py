# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory source was made of, kept by Ansible's inventory cache under a key that changes with the inputs."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Callable, Iterable

from ansible.errors import AnsibleError

# Of what is kept; an entry of another schema is made anew.
SCHEMA = 1


class Kept:
    """The cache of one source, or nothing where the user wants none.

    ``read`` is false where Ansible was told to flush. Data is kept as one JSON text, since cache plugins take their
    time over every value of a large structure.
    """

    def __init__(self, plugin: Any, path: str, read: bool, warn: Callable[[str], None]) -> None:
        self._cache = plugin.cache if plugin.get_option("cache") else None
        self._prefix = plugin.get_cache_key(path)
        self._read = read
        self._warn = warn

    @property
    def wanted(self) -> bool:
        """Return whether anything is kept."""
        return self._cache is not None

    def get(self, part: str, inputs: Iterable[str], make: Callable[[], Any]) -> Any:
        """Return what is kept of a part for these inputs; else make it, plain JSON data, and keep it."""
        if self._cache is None:
            return make()
        digest = hashlib.blake2b("\0".join(inputs).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        key = f"{self._prefix}_{part}_{digest}"
        found = self._load(key) if self._read else None
        if found is None:
            found = make()
            self._forget(f"{self._prefix}_{part}_")
            self._cache[key] = {"schema": SCHEMA, "data": json.dumps(found)}
        return found

    def _load(self, key: str) -> Any:
        try:
            entry = self._cache[key]  # type: ignore[index]
            if entry["schema"] != SCHEMA:
                raise ValueError(f"it has the schema {entry['schema']!r}, expected {SCHEMA}")
            return json.loads(entry["data"])
        except KeyError as exc:
            if exc.args in ((), (key,)):
                return None
            self._warn(f"inventory cache {key}: not read, made anew: {exc} is missing")
        except (AnsibleError, TypeError, ValueError) as exc:
            self._warn(f"inventory cache {key}: not read, made anew: {exc}")
        return None

    def _forget(self, prefix: str) -> None:
        """Delete what was kept for other inputs: nobody would ever ask for it."""
        plugin = self._cache._plugin  # type: ignore[union-attr]
        old = [key for key in list(plugin.keys()) if key.startswith(prefix)]
        for key in old:
            plugin.delete(key)
