# SPDX-License-Identifier: GPL-3.0-or-later
"""What a BMC has logged (SEL and others), read before the power of its server is cut, and kept on the controller."""

import json
import os
from pathlib import Path
from typing import Any, Mapping, Sequence

from ...module_utils.common.files_host import publish
from ...module_utils.common.foreign_text import quote_foreign
from ..redfish.documents import MAX_MEMBERS, Document, is_there, link_to, links_to, path_of, text_of
from ..redfish.reader import Reader, Steps

# A BMC has one to six logs; Dell's alone may have thousands of entries, over pages.
MOST_LOGS = 12
MOST_PAGES = 20
MOST_TEXT = 400
FIELDS = ("Created", "Severity", "MessageId", "Message", "SensorType")
_KEYS = ("@odata.id", "Members", "Members@odata.nextLink", "LogServices", "Entries", "Links", "ManagedBy", *FIELDS)


def read_logs(system: str) -> Steps[dict[str, list[dict[str, str]]]]:
    """Return the entries of all logs of a system and its managers, by the path of the log."""
    reader = Reader(_KEYS)
    (document,) = yield from reader.get([system])
    links = document.get("Links")
    managers = links_to(links, "ManagedBy", system) if isinstance(links, dict) else []
    owners = [document, *(yield from reader.get(managers[:MOST_LOGS]))]
    found: dict[str, list[dict[str, str]]] = {}
    for services in dict.fromkeys(link_to(owner, "LogServices") for owner in owners):
        if services:
            (listed,) = yield from reader.get([services])
            paths = links_to(listed, "Members", services)[:MOST_LOGS]
            for path, service in zip(paths, (yield from reader.get(paths))):
                entries = link_to(service, "Entries")
                if entries:
                    found[path] = yield from _entries(reader, entries)
    return found


def _entries(reader: Reader, page: str) -> Steps[list[dict[str, str]]]:
    """Return the entries of a log that its pages embed, as the standard asks for; at most MAX_MEMBERS."""
    entries: list[dict[str, str]] = []
    for _page in range(MOST_PAGES):
        (document,) = yield from reader.get([page])
        members = document.get("Members")
        found = [each for each in members if isinstance(each, dict)] if isinstance(members, list) else []
        entries += [_entry(each) for each in found if is_there(each)]
        more = document.get("Members@odata.nextLink")
        if not more or len(entries) >= MAX_MEMBERS:
            break
        page = path_of(more, page)
    return entries[:MAX_MEMBERS]


def _entry(document: Document) -> dict[str, str]:
    texts = {key: text_of(document, key) for key in FIELDS}
    return {key: quote_foreign(text, MOST_TEXT) for key, text in texts.items() if text}


def keep_logs(directory: Path, host: str, date: str, logs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    """Write the logs of a host into a file that its user alone reads, and return the file."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    file = directory / f"{host}-{date.replace(':', '')}.json"
    publish(str(file), json.dumps(logs, indent=1) + "\n", 0o600)
    return file
