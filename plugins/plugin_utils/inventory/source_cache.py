# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory source was made of, kept by Ansible's inventory cache under a key that changes with the inputs."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Callable, Iterable, TypeVar

from ansible.errors import AnsibleError

# Of what is kept; an entry of another schema is made anew.
SCHEMA = 1

T = TypeVar("T")


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

    def key(self, part: str, inputs: Iterable[str]) -> str:
        """Return the key of a part of the source that was made of these inputs."""
        digest = hashlib.blake2b("\0".join(inputs).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        return f"{self._prefix}_{part}_{digest}"

    def load(self, key: str, read: Callable[[Any], T]) -> T | None:
        """Return what ``read`` makes of the data that is kept, None where there is none or it cannot be used."""
        if self._cache is None or not self._read:
            return None
        try:
            entry = self._cache[key]
        except KeyError:
            return None
        except AnsibleError as exc:
            self._warn(f"inventory cache {key}: not read, made anew: {exc}")
            return None
        try:
            if entry["schema"] != SCHEMA:
                raise ValueError(f"it has the schema {entry['schema']!r}, expected {SCHEMA}")
            return read(json.loads(entry["data"]))
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            self._warn(f"inventory cache {key}: not read, made anew: {exc}")
            return None

    def save(self, key: str, data: Any) -> None:
        """Keep plain data, in place of what was kept of the same part for other inputs."""
        if self._cache is not None:
            self._forget(key.rpartition("_")[0] + "_")
            self._cache[key] = {"schema": SCHEMA, "data": json.dumps(data)}

    def _forget(self, prefix: str) -> None:
        """Delete what was kept for other inputs: nobody would ever ask for it."""
        plugin = self._cache._plugin  # type: ignore[union-attr]
        old = [key for key in list(plugin.keys()) if key.startswith(prefix)]
        for key in old:
            plugin.delete(key)
