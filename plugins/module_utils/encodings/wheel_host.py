# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the vocabularies from a wheel of ``oss-harmony``.

Its shared library holds both published files, each as one zstd frame. They are read as data, with the host's libzstd
through ctypes: no code of the wheel runs, so a wheel for any platform works.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import itertools
import re
import zipfile
import zlib

from ..wheels.archive_host import BoundedWheel, read_member
from .files import ENCODINGS, PROJECT, EncodingsError

_ZSTD_FRAME = re.compile(re.escape(b"\x28\xb5\x2f\xfd"))
# Much more than any has; the wheel has WHEEL_LIMIT at most.
_MOST_LIBRARY = 256 << 20
# Version 0.0.11 has the four bytes eleven times: two frames, and zstd's own code.
_MOST_FRAMES = 100
_LIBRARY = re.compile(r"openai_harmony/[^/]+\.(so|pyd|dylib)")


def from_wheel(wheel: io.BytesIO, name: str, origin: str) -> bytes:
    """Return the published file ``name`` out of an ``oss-harmony`` wheel. Raises EncodingsError.

    ``origin`` is the name of the wheel in errors.
    """
    try:
        with BoundedWheel(wheel) as file, zipfile.ZipFile(file) as archive:
            members = [member for member in archive.namelist() if _LIBRARY.fullmatch(member)]
            if not members:
                raise EncodingsError(f"{origin}: no library openai_harmony/* in it; expected a wheel of {PROJECT}")
            return from_library(read_member(archive, members[0], _MOST_LIBRARY), name, f"{origin}: {members[0]}")
    except (OSError, RuntimeError, EOFError, UnicodeError, zlib.error, zipfile.BadZipFile) as exc:
        raise EncodingsError(f"{origin}: cannot be read as a wheel: {exc}") from exc


def from_library(library: bytes, name: str, origin: str) -> bytes:
    """Return the published file ``name`` from the bytes of harmony's shared library. Raises EncodingsError.

    ``origin`` is the name of the library in errors.
    """
    size, sha256 = ENCODINGS[name]
    zstd = _libzstd(origin)
    for frame in itertools.islice(_ZSTD_FRAME.finditer(library), _MOST_FRAMES):
        # Packed, none of them is longer.
        content = _decompress(zstd, library[frame.start() : frame.start() + size], size)
        if content is not None and hashlib.sha256(content).hexdigest() == sha256:
            return content
    raise EncodingsError(
        f"{origin}: {name} (sha256 {sha256}) is not in it; {PROJECT} 0.0.11 holds it, openai-harmony does not"
    )


def _libzstd(origin: str) -> ctypes.CDLL:
    try:
        zstd = ctypes.CDLL("libzstd.so.1")
    except OSError as exc:
        # dpkg and rpm are linked with it, so a managed host has it.
        raise EncodingsError(f"{origin}: libzstd.so.1 is needed to read it (Debian: package libzstd1): {exc}") from exc
    zstd.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    zstd.ZSTD_findFrameCompressedSize.restype = ctypes.c_size_t
    zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    return zstd


def _decompress(zstd: ctypes.CDLL, data: bytes, size: int) -> bytes | None:
    """Return what the zstd frame at the start of ``data`` holds, or None unless it is exactly ``size`` bytes."""
    length = zstd.ZSTD_findFrameCompressedSize(data, len(data))
    # Errors are the last values of size_t.
    if length > len(data):
        return None
    buffer = ctypes.create_string_buffer(size)
    written = zstd.ZSTD_decompress(buffer, size, data, length)
    return buffer.raw if written == size else None
