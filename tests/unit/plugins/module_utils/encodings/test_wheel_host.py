# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import io
import struct

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings import wheel_host
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import (
    ENCODINGS,
    EncodingsError,
    Published,
)
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.wheel_host import from_library, from_wheel

from tests.fakes.harmony import compress, make_wheel, real_wheel

TEXT = b"IQ== 0\nIg== 1\n" * 500
OTHER = b"Iw== 2\n" * 900


@pytest.fixture
def small(monkeypatch):
    """Two files of some kilobytes in the place of the published ones."""
    published = {"a.tiktoken": TEXT, "b.tiktoken": OTHER}
    entries = {name: Published(len(text), hashlib.sha256(text).hexdigest()) for name, text in published.items()}
    monkeypatch.setattr(wheel_host, "ENCODINGS", entries)


def test_both_files_are_found_between_other_things(small):
    magic = b"\x28\xb5\x2f\xfd"
    library = b"\x7fELF" + magic + b"no frame" + compress(TEXT) + compress(b"z" * len(OTHER)) + compress(OTHER) + magic
    assert from_library(library, "a.tiktoken", "x.so") == TEXT
    assert from_library(library, "b.tiktoken", "x.so") == OTHER


@pytest.mark.parametrize("library", [b"", b"\x7fELF", compress(TEXT)[:-9], compress(TEXT + b"x"), compress(TEXT[::-1])])
def test_library_without_the_file_says_so(small, library):
    with pytest.raises(
        EncodingsError, match=r"x.so: a.tiktoken \(sha256 [0-9a-f]{64}\) is not in it; oss-harmony 0.0.11"
    ):
        from_library(library, "a.tiktoken", "x.so")


def test_a_library_of_frames_is_given_up(small, monkeypatch):
    tried, real = [], wheel_host._decompress
    monkeypatch.setattr(wheel_host, "_decompress", lambda *args: tried.append(len(args[1])) or real(*args))
    with pytest.raises(EncodingsError, match=r"a.tiktoken .* is not in it"):
        from_library(b"\x28\xb5\x2f\xfd" * 10_000, "a.tiktoken", "x.so")
    assert len(tried) <= 100 and max(tried) <= len(TEXT)


def test_wheel_for_any_platform_will_do(small):
    wheel = make_wheel(compress(TEXT), "openai_harmony/openai_harmony.pyd")
    assert from_wheel(io.BytesIO(wheel), "a.tiktoken", "x.whl") == TEXT


def test_wheel_without_a_library_is_refused():
    with pytest.raises(EncodingsError, match=r"x.whl: no library openai_harmony/\* in it"):
        from_wheel(io.BytesIO(make_wheel(b"", "numpy/core.so")), "o200k_base.tiktoken", "x.whl")


def test_a_list_of_files_without_end_is_not_read():
    entry = struct.pack("<4s24xH16x", b"PK\1\2", 1) + b"a"
    entries = entry * ((17 << 20) // len(entry))
    wheel = entries + struct.pack("<4s8xLLH", b"PK\5\6", len(entries), 0, 0)
    with pytest.raises(EncodingsError, match="its list of files has more than 16 MiB"):
        from_wheel(io.BytesIO(wheel), "o200k_base.tiktoken", "x.whl")


def test_a_name_that_is_no_utf8_is_refused():
    wheel = make_wheel(b"", "openai_harmony/\u00e9.so").replace("\u00e9".encode(), b"\xff\xff")
    with pytest.raises(EncodingsError, match=r"x.whl: cannot be read as a wheel"):
        from_wheel(io.BytesIO(wheel), "o200k_base.tiktoken", "x.whl")


def test_something_else_is_no_wheel():
    with pytest.raises(EncodingsError, match=r"x.whl: cannot be read as a wheel: File is not a zip file"):
        from_wheel(io.BytesIO(b"<html>"), "o200k_base.tiktoken", "x.whl")


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_real_wheel_holds_the_published_bytes(name):
    content = from_wheel(io.BytesIO(real_wheel().read_bytes()), name, "wheel")
    assert hashlib.sha256(content).hexdigest() == ENCODINGS[name].sha256
