# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the kernel for the few TCP sockets that count (sock_diag), however many connections this host has.

The tables below /proc/self/net have a line for every connection, so any user can make them larger than a program reads:
they are only read where the kernel does not answer, and one that is cut is an error.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
import time
from typing import Iterator, NamedTuple

from ..common.files_host import bytes_of

# Of this process: a unit with ProcSubset=pid sees no /proc/net.
NET = "/proc/self/net"
# States, of which newer kernels have more; those have sockets without a connection at any port.
_LISTEN, _ESTABLISHED, _CONNECTED = 10, 1, 0x1B7E
_DIAG_BY_FAMILY, _DUMP, _DONE, _ERROR, _CGROUP_ID = 20, 0x301, 3, 2, 21
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
# Of a socket: family, state, timer and retransmissions; its addresses; times, queues, owner and inode.
_SOCKET = struct.Struct("=4B48s5I")
_SECONDS, _MOST_BYTES, _MOST_TABLE = 5.0, 64 << 20, 64 << 20


class Row(NamedTuple):
    """A socket of the host: addresses, the owner, whether it listens, its inode, and its control group (0: unknown)."""

    local: tuple[str, int]
    remote: tuple[str, int]
    uid: int
    listens: bool
    inode: int = 0
    group: int = 0
    established: bool = False


def sockets(port: int, remote: int) -> list[Row]:
    """Return the sockets that listen at a port, and those from it to a remote port.

    Raises OSError where neither the kernel nor its tables say all of them.
    """
    try:
        return [*_of_kernel(port, 0, 1 << _LISTEN), *_of_kernel(port, remote, _CONNECTED)]
    except (OSError, struct.error):
        # No netlink in this unit, or not in this kernel.
        return [row for row in _tables(port) if row.listens or row.remote[1] == remote]


def listening(port: int) -> list[Row]:
    """Return the sockets that listen at a port. Raises OSError as ``sockets`` does."""
    # The kernel takes 0, as a worker of several hosts has it, for any port.
    if not port:
        return []
    try:
        return list(_of_kernel(port, 0, 1 << _LISTEN))
    except (OSError, struct.error):
        return [row for row in _tables(port) if row.listens]


def connected_to(remote: int = 0) -> list[Row]:
    """Return this host's established connections, all or those to a remote port. Raises OSError as ``sockets`` does."""
    try:
        return list(_of_kernel(0, remote, 1 << _ESTABLISHED))
    except (OSError, struct.error):
        return [row for row in _tables(0, remote) if row.established]


def plain(address: str, port: int) -> tuple[str, int]:
    """Return an address in one form, without the zone; one of IPv4 that is written as IPv6 as the former."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found), port


def _of_kernel(port: int, remote: int, states: int) -> Iterator[Row]:
    for family in (socket.AF_INET, socket.AF_INET6):
        yield from parsed(asked(family, port, remote, states))


def asked(family: int, port: int, remote: int, states: int) -> bytes:
    """Return the kernel's messages about sockets at two ports, without the last one. Raises OSError, struct.error."""
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, states)
    request += struct.pack(">HH", port, remote) + b"\0" * 36 + b"\xff" * 8
    deadline = time.monotonic() + _SECONDS
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4) as opened:
        opened.settimeout(_SECONDS)
        opened.send(_HEADER.pack(_HEADER.size + len(request), _DIAG_BY_FAMILY, _DUMP, 1, 0) + request)
        answer = bytearray()
        while len(answer) < _MOST_BYTES and time.monotonic() < deadline:
            part = opened.recv(1 << 16)
            # The last message can stand behind others.
            end = next((at for at, _length, kind in _messages(part) if kind in (_DONE, _ERROR)), None)
            if end is None:
                answer += part
                continue
            code = struct.unpack_from("=i", part, end + _HEADER.size)[0]
            if code:
                raise OSError(abs(code), os.strerror(abs(code)))
            return bytes(answer) + part[:end]
    raise OSError("the kernel did not end its list of sockets")


def _messages(answer: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield place, length and kind of each message. Raises struct.error for one that is cut."""
    at = 0
    while at < len(answer):
        length, kind = _HEADER.unpack_from(answer, at)[:2]
        if length < _HEADER.size or at + length > len(answer):
            raise struct.error("a message that is cut")
        yield at, length, kind
        at += (length + 3) & ~3


def parsed(answer: bytes) -> Iterator[Row]:
    """Yield the sockets of the kernel's messages. Raises struct.error for any other message."""
    for at, length, kind in _messages(answer):
        if kind != _DIAG_BY_FAMILY:
            raise struct.error("another kind of message")
        family, state, _timer, _again, ends, _times, _read, _sent, uid, inode = _SOCKET.unpack_from(
            answer, at + _HEADER.size
        )
        size = 4 if family == socket.AF_INET else 16
        port, remote = struct.unpack_from(">HH", ends)
        addresses = [str(ipaddress.ip_address(ends[start : start + size])) for start in (4, 20)]
        group = _group(answer[at + _HEADER.size + _SOCKET.size : at + length])
        yield Row(
            plain(addresses[0], port),
            plain(addresses[1], remote),
            uid,
            state == _LISTEN,
            inode,
            group,
            state == _ESTABLISHED,
        )


def _group(attributes: bytes) -> int:
    """Return the control group of a socket's attributes, 0 where an old kernel does not say it."""
    place = 0
    while place + _ATTRIBUTE.size <= len(attributes):
        size, name = _ATTRIBUTE.unpack_from(attributes, place)
        if name == _CGROUP_ID:
            return int(struct.unpack_from("=Q", attributes, place + _ATTRIBUTE.size)[0])
        place += max(_ATTRIBUTE.size, (size + 3) & ~3)
    return 0


def _tables(port: int, remote: int = 0) -> Iterator[Row]:
    """Yield the sockets at a local port, to a remote one, or all. Raises OSError for a table that is cut."""
    wanted = port or remote
    mark = f":{wanted:04X} ".encode() if wanted else b""
    for name in ("tcp", "tcp6"):
        text = bytes_of(f"{NET}/{name}", _MOST_TABLE)
        # A host without IPv6 has one table.
        if len(text) >= _MOST_TABLE or (not text and name == "tcp"):
            raise OSError(f"{NET}/{name} cannot be read, or has more than {_MOST_TABLE >> 20} MiB")
        for line in text.splitlines()[1:]:
            if mark in line:
                fields = line.decode().split()
                ends, state = (_address(fields[1]), _address(fields[2])), int(fields[3], 16)
                if not wanted or ends[0 if port else 1][1] == wanted:
                    yield Row(*ends, int(fields[7]), state == _LISTEN, int(fields[9]), 0, state == _ESTABLISHED)


def _address(text: str) -> tuple[str, int]:
    """Return address and port as the kernel's table writes them: words of 32 bits in the order of this machine."""
    digits, _colon, port = text.partition(":")
    words = (int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8))
    return plain(str(ipaddress.ip_address(b"".join(words))), int(port, 16))
