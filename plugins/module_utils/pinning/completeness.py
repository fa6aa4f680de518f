# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide from a file's bytes whether it is the complete file of a model, or what a broken download leaves.

A manifest vouches for the bytes that it was made of, so damage must be found before it is pinned.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any, Collection, Iterable

from ..common.foreign_json import load_json
from ..common.foreign_text import quote_foreign
from ..weights.manifest import WeightsError
from .gguf import last_tensor

# What programs leave beside or in place of a file that they have not finished.
UNFINISHED = (".aria2", ".incomplete", ".partial", ".part", ".crdownload", ".download", ".tmp")
AGAIN = "download it again"

_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST_POINTER = 1024
_PAGE = re.compile(rb"\s*<(!doctype html|html|\?xml|head)\b", re.IGNORECASE)
_SHARD = re.compile(r"(?P<base>.*)-(?P<number>\d{5})-of-(?P<total>\d{5})\.safetensors")
# The library refuses a longer header.
_LONGEST_HEADER = 100_000_000
# JSON that engines read. A longer text is not parsed.
_JSON = (
    "config.json", "*_config.json", "tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "*.index.json", "params.json", "tekken.json", "chat_template.json",
)  # fmt: skip
_LONGEST_JSON = 128 << 20
# The vocabulary is in it.
_LONGEST_GGUF = 64 << 20
# Fewer bytes of tensors may all be zero.
_SMALL = 4096
_TAIL = 65_558
_WEIGHTS = ("*.safetensors", "*.gguf", "pytorch_model*.bin", "adapter_model*.bin", "*.pt", "*.pth")
# Other files that engines read. None is empty or a web page, whatever its format.
_TEXTS = (*_JSON, "*.model", "*.tiktoken", "*.bin", "*.jinja", "merges.txt", "vocab.txt")


class CompletenessCheck:
    """Takes the bytes of one file in their order, in pieces of any length, and says what is wrong with it."""

    def __init__(self, name: str) -> None:
        self._last = name.rpartition("/")[2]
        self._is_safetensors = self._last.endswith(".safetensors")
        self._head, self._tail = bytearray(), b""
        self._keep = _LONGEST_JSON if _matches(self._last, _JSON) else _LONGEST_POINTER
        if self._last.endswith(".gguf"):
            self._keep = _LONGEST_GGUF
        self._size, self._zero = 0, True

    def feed(self, piece: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        data = memoryview(piece)
        self._keep_head(data)
        if self._is_safetensors and len(self._head) >= 8:
            self._keep = max(_LONGEST_POINTER, min(_header_length(self._head), _LONGEST_HEADER) + 8)
            self._keep_head(data)
            if self._zero:
                begin = max(0, _header_length(self._head) + 8 - self._size)
                self._zero = not bytes(data[begin:]).strip(b"\0")
        elif not self._is_safetensors:
            self._tail = (self._tail + bytes(data[-_TAIL:]))[-_TAIL:]
        self._size += len(data)

    def _keep_head(self, data: memoryview) -> None:
        """Keep the part of a piece, which begins at ``_size``, that belongs to the bytes to keep."""
        self._head += data[len(self._head) - self._size : max(0, self._keep - self._size)]

    def problem(self) -> str:
        """Return what is wrong, as the end of a sentence that begins with the file; empty for nothing."""
        if self._size <= _LONGEST_POINTER and self._head.startswith(_POINTER):
            return f"is a pointer of Git LFS ({self._size} bytes) in place of the file; run git lfs pull, or {AGAIN}"
        if not _matches(self._last, (*_WEIGHTS, *_TEXTS)):
            return ""
        if not self._size:
            return f"is empty; {AGAIN}"
        if _PAGE.match(self._head):
            return f"is a web page in place of the file, as a proxy or a login sends it; {AGAIN}"
        if self._is_safetensors:
            return self._safetensors()
        if self._last.endswith(".gguf"):
            return self._gguf()
        if _matches(self._last, _WEIGHTS):
            return self._torch()
        return self._json() if _matches(self._last, _JSON) and self._size <= _LONGEST_JSON else ""

    def _safetensors(self) -> str:
        length = _header_length(self._head)
        if self._size < 8 or not 0 < length <= _LONGEST_HEADER or len(self._head) < length + 8:
            return f"has no header of safetensors: it is cut, or was never written; {AGAIN}"
        try:
            expected = 8 + length + _data_length(load_json(bytes(self._head[8 : 8 + length])))
        except ValueError:
            return f"has a header of safetensors that cannot be read; {AGAIN}"
        if self._size != expected:
            return f"has {self._size} bytes, and its header describes {expected}; {AGAIN}"
        if self._zero and expected - 8 - length >= _SMALL:
            return f"has only zeros in place of its tensors: space was reserved for it and never filled; {AGAIN}"
        return ""

    def _gguf(self) -> str:
        if not self._head.startswith((b"GGUF", b"FUGG")):
            return f"does not begin as a file of GGUF; {AGAIN}"
        try:
            begin = last_tensor(self._head) if self._head.startswith(b"GGUF") else 0
        except (EOFError, ValueError) as exc:
            # A header that is longer than what is kept says nothing.
            whole = isinstance(exc, ValueError) or len(self._head) == self._size
            return f"has a header of GGUF that is cut or damaged; {AGAIN}" if whole else ""
        if self._size <= begin:
            return f"has {self._size} bytes, and by its header the last tensor begins at {begin}; {AGAIN}"
        return ""

    def _torch(self) -> str:
        if self._head.startswith(b"PK\x03\x04"):
            return "" if b"PK\x05\x06" in self._tail else f"is a cut archive of PyTorch; {AGAIN}"
        return "" if self._head.startswith(b"\x80") else f"does not begin as a file of PyTorch; {AGAIN}"

    def _json(self) -> str:
        try:
            load_json(bytes(self._head).decode("utf-8-sig"))
        except ValueError:
            return f"is not JSON: it is cut or damaged; {AGAIN}"
        return ""


def content_problem(name: str, content: bytes) -> str:
    """Return what is wrong with the content of a file; empty for nothing."""
    check = CompletenessCheck(name)
    check.feed(content)
    return check.problem()


def check_unfinished(label: str, names: Iterable[str], chosen: Collection[str]) -> None:
    """Raise WeightsError if a program has not finished the download of a chosen file."""
    left = [name for name in sorted(names) if name.endswith(UNFINISHED)]
    left = [name for name in left if name in chosen or name.rpartition(".")[0] in chosen]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        raise WeightsError(
            f"{label}: found {quote_foreign(left[0])}{more}, so a download has not ended; finish it, or remove the "
            "file if it is left over"
        )


def check_numbers(label: str, names: Collection[str]) -> None:
    """Raise WeightsError if shards are missing by the numbers in their names; they begin at 0 or at 1."""
    found: dict[tuple[str, int], set[int]] = {}
    for name in names:
        match = _SHARD.fullmatch(name)
        if match:
            found.setdefault((match["base"], int(match["total"])), set()).add(int(match["number"]))
    for (base, total), numbers in sorted(found.items()):
        if numbers not in (set(range(total)), set(range(1, total + 1)), set(range(total + 1))):
            missing = sorted(set(range(1, total + 1)) - numbers)
            which = f"{quote_foreign(base)}-{missing[0] if missing else 0:05d}-of-{total:05d}.safetensors"
            raise WeightsError(f"{label}: {which} is missing; the source is incomplete, or exclude leaves it out")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _header_length(head: bytes | bytearray) -> int:
    return int.from_bytes(head[:8], "little")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _data_length(header: Any) -> int:
    """Return the bytes behind the header. Raises ValueError for another header than safetensors writes."""
    if not isinstance(header, dict):
        raise ValueError("not an object")
    ends = [0]
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_number, offsets)):
            raise ValueError(f"{name}: no data_offsets")
        if not 0 <= offsets[0] <= offsets[1]:
            raise ValueError(f"{name}: wrong data_offsets")
        ends.append(offsets[1])
    return max(ends)
