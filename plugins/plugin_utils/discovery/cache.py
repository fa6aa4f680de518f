# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The discovery cache: a JSON file on the controller that holds the last answer of every host, a line each."""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Iterator, Mapping

from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import (
    DiscoveryError,
    Entry,
    from_document,
    to_document,
)


def read_discovery(path: str) -> dict[str, Entry]:
    """Return the last answers by host; none where the file is not there.

    Raises DiscoveryError, which names the file, where it is cut, of another schema or cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise DiscoveryError(f"discovery cache {path}: cannot be read: {reason}") from exc
    try:
        # The collector would look again and again through objects that all stay.
        with _without_collector():
            return from_document(json.loads(text))
    except (ValueError, RecursionError) as exc:
        problem = str(exc) if isinstance(exc, DiscoveryError) else f"is damaged or cut short: {exc}"
        raise DiscoveryError(f"discovery cache {path}: {problem}") from exc


def write_discovery(path: str, entries: Mapping[str, Entry]) -> None:
    """Write the answers by rename: whoever reads meanwhile sees the old file or the new one. Raises DiscoveryError."""
    target = os.path.realpath(path)
    beside = f"{target}.{os.getpid()}.partial"
    document = to_document(entries)
    lines = [f"{_dump(host)}: {_dump(kept)}" for host, kept in document["hosts"].items()]
    text = f'{{"schema": {_dump(document["schema"])}, "hosts": {{\n' + ",\n".join(lines) + "\n}}\n"
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, target)
        _sync_directory(os.path.dirname(target))
    except OSError as exc:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise DiscoveryError(f"discovery cache {path}: cannot be written: {exc.strerror}") from exc


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _sync_directory(path: str) -> None:
    """Have the rename on the disk too, where the file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
