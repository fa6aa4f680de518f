# SPDX-License-Identifier: GPL-3.0-or-later
"""Write GGUF files, by the specification of the format; shares nothing with the reader of tools/real_models."""

from __future__ import annotations

import struct
from typing import Any, Sequence

F32, Q4_1, Q8_0 = 0, 3, 8


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """Return the kind of a value and the value."""
    if isinstance(item, list):
        members = [value(member) for member in item]
        return struct.pack("<I", 9) + members[0][:4] + struct.pack("<Q", len(item)) + b"".join(m[4:] for m in members)
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + string(item)
    return struct.pack("<If", 6, item) if isinstance(item, float) else struct.pack("<II", 4, item)


def f32(numbers: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def q4_1(scale: float, minimum: float, weights: Sequence[int]) -> bytes:
    """Return a block of 32 weights of four bits: weight n and weight n + 16 share byte n."""
    return struct.pack("<ee", scale, minimum) + bytes(weights[at] | weights[at + 16] << 4 for at in range(16))


def q8_0(scale: float, weights: Sequence[int]) -> bytes:
    return struct.pack("<e32b", scale, *weights)


def gguf(metadata: dict[str, Any], tensors: dict[str, tuple[tuple[int, ...], int, bytes]]) -> bytes:
    """Return a file; a tensor is its shape (rows first), its kind, and its data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(string(key) + value(item) for key, item in metadata.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        lengths = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        head += string(name) + struct.pack("<I", len(shape)) + lengths + struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + body
