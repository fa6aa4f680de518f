# SPDX-License-Identifier: GPL-3.0-or-later
"""The real vocabularies, where this machine has them, and wheels shaped like oss-harmony's."""

from __future__ import annotations

import ctypes
import io
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def real_wheel() -> Path:
    """Return the wheel of oss-harmony that the lab's mirror carries."""
    wheels = sorted(ROOT.glob(".lab/mirror/wheels/oss_harmony-*.whl"))
    if not wheels:
        pytest.skip("needs .lab/mirror/wheels/oss_harmony-*.whl (tools/lab/content.sh brings it)")
    return wheels[-1]


def compress(content: bytes) -> bytes:
    """Return a zstd frame."""
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_compress.restype = ctypes.c_size_t
    zstd.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    buffer = ctypes.create_string_buffer(len(content) + 1024)
    length = zstd.ZSTD_compress(buffer, len(buffer), content, len(content), 3)
    return buffer.raw[:length]


def make_wheel(library: bytes, member: str = "openai_harmony/openai_harmony.abi3.so") -> bytes:
    """Return a wheel whose shared library has these bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("openai_harmony/__init__.py", "raise SystemExit('code of the wheel was run')")
        wheel.writestr(member, library)
    return buffer.getvalue()
