# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON from tools, servers and files, where every text that cannot be read is a ValueError."""

from __future__ import annotations

import json
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Return the data of a JSON text. Raises ValueError, also for lists or objects that are nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
