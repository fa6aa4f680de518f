# SPDX-License-Identifier: GPL-3.0-or-later
"""A picture and a sound to send to a model; both are made here, because hosts have no library for either."""

import math
import struct
import zlib

# Models cut pictures into patches of 14 to 32 pixels and refuse those that are smaller than some patches.
PIXELS = 224
RED = b"\xff\x00\x00"
# The rate that all speech models read.
RATE = 16000
SECONDS = 1
TONE_HZ = 440


def red_png() -> bytes:
    """Return a PNG file with a red square."""
    header = struct.pack(">IIBBBBB", PIXELS, PIXELS, 8, 2, 0, 0, 0)
    rows = (b"\x00" + RED * PIXELS) * PIXELS
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) & 0xFFFFFFFF)


def tone_wav() -> bytes:
    """Return a WAV file with a second of a tone: 16 bits, one channel."""
    angles = (2 * math.pi * TONE_HZ * number / RATE for number in range(RATE * SECONDS))
    data = b"".join(struct.pack("<h", int(8000 * math.sin(angle))) for angle in angles)
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVE" + layout + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI", b"RIFF", len(body)) + body
