# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON from tools, servers and files, where every text that cannot be read is a ValueError.

Half a character (a lone surrogate), which JSON can name and no file can hold, is read as a question mark.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

# More brackets before a document are not a message.
_MOST_BRACKETS = 100
_MARGIN = 50
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def load_json(text: str | bytes) -> Any:
    """Return the data of a JSON text. Raises ValueError, also for lists or objects that are nested too deeply."""
    try:
        if not isinstance(text, str):
            # As json does, so that a server that reads the same bytes finds the same document.
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        return _writable(json.loads(text), text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _writable(data: Any, text: str) -> Any:
    """Return the data of a text without halves of characters. Raises RecursionError."""
    if (text.isascii() and "\\u" not in text) or not _HALF.search(text):
        return data
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


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
            found = _writable(found, text)
        except (ValueError, RecursionError):
            continue
        entries = found if isinstance(found, list) else [found]
        if entries and all(isinstance(entry, dict) for entry in entries):
            return found
    return None
