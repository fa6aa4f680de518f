# SPDX-License-Identifier: GPL-3.0-or-later
"""A result as one page: no host, message or answer can inject HTML, and the page loads nothing."""

import json
from pathlib import Path
from typing import Any, Mapping

from ..pages.file import read_parts
from ..pages.texts import escape_json, fill_page
from .judge import FIGURES

PARTS = Path(__file__).resolve().parent / "acceptance_page"


def page(document: Mapping[str, Any]) -> str:
    """Return the page of a document of report.result_of."""
    data = {**document, "titles": {name: f"{title}, {unit}" for name, (title, unit, _action) in FIGURES.items()}}
    text = escape_json(json.dumps(data, separators=(",", ":"), default=str))
    return fill_page(read_parts(PARTS), f"Acceptance of {document['host']}", text)
