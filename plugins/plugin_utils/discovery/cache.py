# SPDX-License-Identifier: GPL-3.0-or-later
"""The discovery cache: a JSON file on the controller with the last answer of every host, one per line."""

import contextlib
import gc
import hashlib
import json
import os
from collections.abc import Iterator, Mapping

from ...module_utils.common.files_host import publish
from ...module_utils.common.foreign_json import load_json
from ...module_utils.common.own_links_host import follow_links
from ..common.state_dir import DISCOVERY, state_dir
from .observations import DiscoveryError, Entry, from_document, to_document


def users_own(source: str) -> str:
    """Return the file for answers of discovery that belongs to the directory of an inventory source.

    Raises StateDirError for an invalid $BAREMETAL_STATE_DIR.
    """
    directory = os.path.dirname(os.path.realpath(source))
    digest = hashlib.sha256(directory.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{state_dir(DISCOVERY, os.environ)}/{os.path.basename(directory)}-{digest}.json"


def read_discovery(path: str) -> dict[str, Entry]:
    """Return the last answers by host; empty where the file does not exist.

    Raises DiscoveryError, which names the file, where it is truncated, has another schema or is unreadable.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise DiscoveryError(f"discovery cache {path}: cannot be read: {reason}") from exc
    try:
        # The garbage collector would scan the loaded objects repeatedly, though all of them stay.
        with _without_garbage_collector():
            return from_document(load_json(text))
    except ValueError as exc:
        problem = str(exc) if isinstance(exc, DiscoveryError) else f"is damaged or cut short: {exc}"
        raise DiscoveryError(f"discovery cache {path}: {problem}") from exc


def write_discovery(path: str, entries: Mapping[str, Entry]) -> None:
    """Replace the file atomically: a concurrent reader finds the old file or the new one. Raises DiscoveryError."""
    document = to_document(entries)
    lines = [f"{_dump(host)}: {_dump(kept)}" for host, kept in document["hosts"].items()]
    text = f'{{"schema": {_dump(document["schema"])}, "hosts": {{\n' + ",\n".join(lines) + "\n}}\n"
    try:
        target = follow_links(path)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        publish(target, text, 0o600)
    except OSError as exc:
        raise DiscoveryError(f"discovery cache {path}: cannot be written: {exc.strerror}") from exc


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@contextlib.contextmanager
def _without_garbage_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
