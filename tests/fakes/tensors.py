# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of weights as safetensors writes them."""

from __future__ import annotations

import json


def safetensors(data: bytes, name: str = "t") -> bytes:
    """Return a file of safetensors with one tensor of these bytes."""
    header = {"__metadata__": {"format": "pt"}, name: {"dtype": "U8", "shape": [len(data)]}}
    header[name]["data_offsets"] = [0, len(data)]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data
