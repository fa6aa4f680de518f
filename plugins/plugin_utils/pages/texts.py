# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of a page that loads nothing: no host name, error or option can break out of it."""

import base64
import hashlib
import html
from typing import Any, Mapping

# Signs that could end a script element, spelled as JSON escapes.
_ESCAPES = {sign: f"\\u{ord(sign):04x}" for sign in "<>&"}
# The addition to the frame for a page with a script.
_SCRIPT_POLICY = "script-src '@SCRIPT_HASH@'; "
_SCRIPTS = '<script id="data" type="application/json">@DATA@</script>\n<script>@SCRIPT@</script>\n'


def fill_page(parts: Mapping[str, str], title: str, data: str) -> str:
    """Return the page. ``parts`` are as read_parts() returns them; the page's policy allows these and no other.

    ``data`` is JSON as escape_json() returns it, or HTML for a page without a script.
    """
    script = parts.get("js", "")
    marks = {
        "@TITLE@": html.escape(title).encode("ascii", "xmlcharrefreplace").decode(),
        "@STYLE@": parts["css"],
        "@SCRIPT@": script,
        "@STYLE_HASH@": _hash(parts["css"]),
        "@SCRIPT_HASH@": _hash(script),
        "@DATA@": data,
    }
    # Split at the marks once, so that a mark inside an inserted text stays text.
    frame = parts["frame"].replace("@SCRIPT_POLICY@", _SCRIPT_POLICY if script else "")
    text = frame.replace("@BODY@", parts["html"]).replace("@SCRIPTS@", _SCRIPTS if script else "")
    for mark in marks:
        text = text.replace(mark, f"\0{mark}\0")
    return "".join(marks.get(piece, piece) for piece in text.split("\0"))


def escape_json(text: str) -> str:
    """Return JSON without characters that HTML would interpret."""
    for sign, escape in _ESCAPES.items():
        text = text.replace(sign, escape)
    return text


class SharedTexts:
    """Values that many rows share, each stored once; number 0 is the empty value."""

    def __init__(self, empty: Any = "") -> None:
        self.all = [empty]
        self._numbers = {empty: 0}

    def number(self, value: Any) -> int:
        """Return the number of a value, and store it if it is new."""
        if value not in self._numbers:
            self._numbers[value] = len(self.all)
            self.all.append(value)
        return self._numbers[value]


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
