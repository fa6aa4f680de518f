# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of an inventory source in Ansible's inventory cache, under a key that changes with its inputs."""

import hashlib
import json
from typing import Any, Callable, Iterable, TypeVar

from ansible.errors import AnsibleError

from ...module_utils.common.foreign_json import load_json

# Schema of stored entries; an entry of another schema is rebuilt.
SCHEMA = 2

T = TypeVar("T")


class SourceCache:
    """The cache of one inventory source; it stores nothing where the user has not enabled it.

    ``read`` is False where Ansible flushes its caches. Data is stored as one JSON text, because cache plugins are slow
    with large structures.
    """

    def __init__(self, plugin: Any, path: str, read: bool, warn: Callable[[str], None]) -> None:
        self._cache = plugin.cache if plugin.get_option("cache") else None
        self._prefix = plugin.get_cache_key(path)
        self._read = read
        self._warn = warn

    @property
    def is_enabled(self) -> bool:
        """Return whether anything is stored."""
        return self._cache is not None

    def key(self, part: str, inputs: Iterable[str]) -> str:
        """Return the key of a part of the source for these inputs."""
        digest = hashlib.blake2b("\0".join(inputs).encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
        return f"{self._prefix}_{part}_{digest}"

    def load(self, key: str, read: Callable[[Any], T]) -> T | None:
        """Return the stored data, converted by ``read``; None if there is none or it cannot be used."""
        if self._cache is None or not self._read:
            return None
        try:
            entry = self._cache[key]
        except KeyError:
            return None
        except (AnsibleError, TypeError, ValueError) as exc:
            self._warn(f"inventory cache {key}: not read, rebuilt: {exc}")
            return None
        try:
            if entry["schema"] != SCHEMA:
                raise ValueError(f"it has the schema {entry['schema']!r}, expected {SCHEMA}")
            return read(load_json(entry["data"]))
        except (KeyError, TypeError, AttributeError, ValueError) as exc:
            self._warn(f"inventory cache {key}: not read, rebuilt: {exc}")
            return None

    def save(self, key: str, data: Any) -> None:
        """Store plain data, and delete the data stored for the same part with other inputs."""
        if self._cache is not None:
            self._forget(key.rpartition("_")[0] + "_")
            self._cache[key] = {"schema": SCHEMA, "data": json.dumps(data)}

    def _forget(self, prefix: str) -> None:
        """Delete the data stored for other inputs, because nothing would ever load it."""
        plugin = self._cache._plugin  # type: ignore[union-attr]
        old = [key for key in list(plugin.keys()) if key.startswith(prefix)]
        for key in old:
            plugin.delete(key)
