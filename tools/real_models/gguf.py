# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a GGUF file: its metadata, and its tensors as bfloat16.

The kinds of tensors are those of a Q4_1 file: F32, Q4_1 (blocks of 32 weights: scale, minimum, 16 bytes of two
weights each) and Q8_0 (blocks of 32 weights: scale, 32 signed bytes).
"""

from __future__ import annotations

import math
import struct
from array import array
from dataclasses import dataclass
from typing import Any, Callable

VERSION = 3
BLOCK = 32
ALIGNMENT = 32
# How many blocks are converted at a time: it bounds the memory.
CHUNK = 1 << 16
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
# The lower and the upper four bits of each byte.
_LOWER = bytes(byte & 15 for byte in range(256))
_UPPER = bytes(byte >> 4 for byte in range(256))


class GgufError(ValueError):
    """A GGUF file cannot be read; the message is the whole sentence."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor as the file has it; ``shape`` is in the order of PyTorch: rows first."""

    shape: tuple[int, ...]
    kind: int
    data: bytes

    def bfloat16(self) -> bytes:
        """Return the values in row order, each rounded to the nearest bfloat16."""
        step = _KINDS[self.kind].size * CHUNK
        return b"".join(
            round_to_bfloat16(_KINDS[self.kind].values(self.data[at : at + step]))
            for at in range(0, len(self.data), step)
        )


@dataclass(frozen=True)
class Gguf:
    """The metadata and the tensors of a file, by name."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_gguf(data: bytes) -> Gguf:
    """Return the content of a file. Raises GgufError."""
    reader = _Reader(data)
    if data[:4] != b"GGUF":
        raise GgufError(f"GGUF file: found {data[:4]!r} at its start, expected b'GGUF'")
    reader.at = 4
    version = reader.scalar("<I")
    if version != VERSION:
        raise GgufError(f"GGUF file: found version {version}, expected {VERSION}")
    tensors, entries = reader.scalar("<Q"), reader.scalar("<Q")
    metadata = {reader.text(): reader.value(reader.scalar("<I")) for _entry in range(entries)}
    described = [reader.description() for _tensor in range(tensors)]
    alignment = metadata.get("general.alignment", ALIGNMENT)
    start = -(-reader.at // alignment) * alignment
    return Gguf(metadata, {name: _tensor(data, name, shape, kind, start + at) for name, shape, kind, at in described})


def _tensor(data: bytes, name: str, shape: tuple[int, ...], kind: int, start: int) -> GgufTensor:
    if kind not in _KINDS:
        known = ", ".join(f"{number} ({known.name})" for number, known in _KINDS.items())
        raise GgufError(f"GGUF file: tensor {name}: found kind {kind}, expected one of {known}")
    count, weights = math.prod(shape), _KINDS[kind].weights
    if shape[-1] % weights:
        raise GgufError(f"GGUF file: tensor {name}: found rows of {shape[-1]}, expected a multiple of {weights}")
    size = count // weights * _KINDS[kind].size
    if start + size > len(data):
        raise GgufError(f"GGUF file: tensor {name} ends at {start + size}, but the file has {len(data)} bytes")
    return GgufTensor(shape, kind, data[start : start + size])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def scalar(self, form: str) -> Any:
        try:
            (value,) = struct.unpack_from(form, self.data, self.at)
        except struct.error as exc:
            raise GgufError(f"GGUF file: it ends at byte {len(self.data)}, within its header") from exc
        self.at += struct.calcsize(form)
        return value

    def text(self) -> str:
        length = self.scalar("<Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            member, length = self.scalar("<I"), self.scalar("<Q")
            return [self.value(member) for _item in range(length)]
        if kind not in _SCALARS:
            raise GgufError(f"GGUF file: found a value of kind {kind} at byte {self.at}, expected 0 to 12")
        return self.scalar(_SCALARS[kind])

    def description(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return name, shape, kind and offset of a tensor. The file names the length of a row first."""
        name = self.text()
        lengths = [self.scalar("<Q") for _dimension in range(self.scalar("<I"))]
        return name, tuple(reversed(lengths)), self.scalar("<I"), self.scalar("<Q")


def _f32(data: bytes) -> array[float]:
    return array("f", data)


def _q4_1(data: bytes) -> array[float]:
    values = array("f")
    for scale, minimum, packed in struct.iter_unpack("<ee16s", data):
        # The lower halves of the 16 bytes come first.
        weights = packed.translate(_LOWER) + packed.translate(_UPPER)
        values.extend([scale * weight + minimum for weight in weights])
    return values


def _q8_0(data: bytes) -> array[float]:
    values = array("f")
    for scale, *weights in struct.iter_unpack("<e32b", data):
        values.extend([scale * weight for weight in weights])
    return values


@dataclass(frozen=True)
class _Kind:
    """A kind of tensor: how many weights a block has, its bytes, and how they become numbers."""

    name: str
    weights: int
    size: int
    values: Callable[[bytes], array[float]]


_KINDS = {0: _Kind("F32", 1, 4, _f32), 3: _Kind("Q4_1", BLOCK, 20, _q4_1), 8: _Kind("Q8_0", BLOCK, 34, _q8_0)}


def round_to_bfloat16(values: array[float]) -> bytes:
    """Return finite numbers as bfloat16, each rounded to the nearest, at a tie to the even one.

    All numbers are one long integer here, which Python adds as fast as a library of arrays would.
    """
    data = values.tobytes()
    whole = int.from_bytes(data, "little")
    ones = int.from_bytes(b"\1\0\0\0" * len(values), "little")
    rounded = whole + ones * 0x7FFF + ((whole >> 16) & ones)
    data = rounded.to_bytes(len(data), "little")
    halves = bytearray(len(data) // 2)
    halves[0::2], halves[1::2] = data[2::4], data[3::4]
    return bytes(halves)
