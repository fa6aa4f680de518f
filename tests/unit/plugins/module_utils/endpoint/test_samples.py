# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture and the sound are files that others read."""

from __future__ import annotations

import io
import struct
import wave
import zlib

from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.samples import red_png, tone_wav


def test_the_picture_is_a_red_square():
    data, chunks = red_png(), {}
    place = 8
    while place < len(data):
        size, kind = struct.unpack(">I4s", data[place : place + 8])
        content = data[place + 8 : place + 8 + size]
        assert zlib.crc32(kind + content) == int.from_bytes(data[place + 8 + size : place + 12 + size], "big")
        chunks[kind] = content
        place += 12 + size
    width, height, depth, colours = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (width, height, depth, colours) == (224, 224, 8, 2)
    assert zlib.decompress(chunks[b"IDAT"]) == (b"\x00" + b"\xff\x00\x00" * width) * height


def test_the_sound_is_a_second_of_a_tone():
    with wave.open(io.BytesIO(tone_wav())) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 16000)
        frames = sound.readframes(16001)
    values = struct.unpack(f"<{len(frames) // 2}h", frames)
    assert len(values) == 16000 and max(values) > 7900 and min(values) < -7900
    assert sum(a < 0 <= b for a, b in zip(values, values[1:])) in (439, 440)
