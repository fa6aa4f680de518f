# SPDX-License-Identifier: GPL-3.0-or-later
"""Read from the header of a GGUF file how long the file is at least."""

from __future__ import annotations

import struct

# Bytes of a value by its type; 8 is a text, 9 a list.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _LIST = 8, 9
_ALIGNMENT, _DIMENSIONS = "general.alignment", 8


class _Reader:
    """Reads the fields of a header one after the other."""

    def __init__(self, head: bytes | bytearray) -> None:
        self.head, self.place = head, 0

    def skip(self, count: int) -> int:
        """Go on by so many bytes and return where they begin. Raises EOFError behind the end."""
        begin = self.place
        self.place += count
        if self.place > len(self.head):
            raise EOFError
        return begin

    def number(self, count: int) -> int:
        """Return an unsigned number of so many bytes."""
        begin = self.skip(count)
        return int.from_bytes(self.head[begin : self.place], "little")

    def text(self) -> str:
        """Return a text."""
        count = self.number(8)
        begin = self.skip(count)
        return bytes(self.head[begin : self.place]).decode("utf-8", "replace")

    def value(self, kind: int) -> None:
        """Go on behind a value. Raises ValueError for a type that GGUF does not have."""
        if kind == _TEXT:
            self.skip(self.number(8))
        elif kind == _LIST:
            item, count = self.number(4), self.number(8)
            if item in _SIZES:
                self.skip(_SIZES[item] * count)
            elif item == _TEXT:
                for _index in range(count):
                    self.skip(self.number(8))
            else:
                raise ValueError("a list of lists")
        elif kind in _SIZES:
            self.skip(_SIZES[kind])
        else:
            raise ValueError("an unknown type")


def last_tensor(head: bytes | bytearray) -> int:
    """Return the place in the file at which the last tensor begins; 0 for a file without tensors.

    Raises EOFError for a header that goes on behind ``head``, ValueError for one that is none.
    """
    reader = _Reader(head)
    reader.skip(4)
    if not 2 <= reader.number(4) <= 3:
        raise ValueError("an unknown version")
    tensors, entries, alignment = reader.number(8), reader.number(8), 32
    for _index in range(entries):
        name, kind = reader.text(), reader.number(4)
        begin = reader.place
        reader.value(kind)
        if name == _ALIGNMENT and kind == 4:
            alignment = struct.unpack_from("<I", head, begin)[0]
    offsets = [_offset(reader) for _index in range(tensors)]
    if alignment < 1:
        raise ValueError("no alignment")
    return -(-reader.place // alignment) * alignment + max(offsets) if offsets else 0


def _offset(reader: _Reader) -> int:
    """Return where a tensor begins among the data, from its entry."""
    reader.text()
    dimensions = reader.number(4)
    if dimensions > _DIMENSIONS:
        raise ValueError("too many dimensions")
    reader.skip(8 * dimensions + 4)
    return reader.number(8)
