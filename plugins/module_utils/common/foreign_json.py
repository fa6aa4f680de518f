# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON from tools, servers and files, where every text that cannot be read is a ValueError."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

# More brackets before a document are not a message.
_MOST_BRACKETS = 100
_MARGIN = 50


def load_json(text: str | bytes) -> Any:
    """Return the data of a JSON text. Raises ValueError, also for lists or objects that are nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump_json(data: Any) -> str:
    """Return the JSON text of data that load_json has read. Raises ValueError.

    It may still be nested too deeply: where this is called, less of Python's stack may be left. A reader may
    have less still, so the text is nested some levels less than this could write.
    """
    for _level in range(_MARGIN):
        data = [data]
    try:
        return json.dumps(data)[_MARGIN:-_MARGIN]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def find_document(text: str) -> Any:
    """Return the first object, or list of objects, in the output of a tool; None where there is none.

    Tools print messages before and behind their JSON, and these may have brackets too.
    """
    decoder = json.JSONDecoder()
    for match in itertools.islice(re.finditer(r"[\[{]", text), _MOST_BRACKETS):
        try:
            found, _end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        entries = found if isinstance(found, list) else [found]
        if entries and all(isinstance(entry, dict) for entry in entries):
            return found
    return None
