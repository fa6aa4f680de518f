# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the throughput of TCP between two hosts: one sends zeros for a while, the other counts them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass

STREAMS = 4
CHUNK = 1 << 20
# Seconds between two attempts to connect: the other side may not listen yet.
_PAUSE = 0.2


class NetworkError(Exception):
    """The network cannot be measured; the message is the whole sentence."""


@dataclass(frozen=True)
class Throughput:
    """A measurement: Gbit/s, bytes and seconds, with STREAMS connections."""

    gbit_per_s: float
    bytes: int
    seconds: float
    streams: int


def serve(port: int, seconds: float, patience: float) -> int:
    """Send zeros to the first STREAMS connections for some seconds; return how many connected. Raises NetworkError.

    ``patience`` is how long to wait for each connection.
    """
    try:
        listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=STREAMS)
    except (OSError, ValueError):
        # A host without IPv6.
        try:
            listener = socket.create_server(("", port), backlog=STREAMS)
        except OSError as exc:
            raise NetworkError(f"port {port}: cannot listen: {exc.strerror}; set accept_port") from exc
    threads = []
    with contextlib.closing(listener):
        listener.settimeout(patience)
        for _number in range(STREAMS):
            try:
                connection, _address = listener.accept()
            except socket.timeout:
                break
            threads.append(threading.Thread(target=_send, args=(connection, seconds)))
            threads[-1].start()
    for thread in threads:
        thread.join()
    return len(threads)


def receive(host: str, port: int, seconds: float, patience: float) -> Throughput:
    """Connect STREAMS times and count the received bytes for some seconds. Raises NetworkError."""
    connections = [_connect(host, port, patience) for _number in range(STREAMS)]
    counts = [0] * len(connections)
    begin = time.monotonic()
    threads = [
        threading.Thread(target=_count, args=(connection, counts, number, begin + seconds))
        for number, connection in enumerate(connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - begin
    total = sum(counts)
    if not total:
        raise NetworkError(f"{host} port {port}: connected, but nothing arrived; is another program listening there?")
    return Throughput(round(total * 8 / taken / 1e9, 2), total, round(taken, 2), len(connections))


def _connect(host: str, port: int, patience: float) -> socket.socket:
    end = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic()))
        except OSError as exc:
            if time.monotonic() >= end:
                raise NetworkError(
                    f"no connection to {host} port {port} within {patience:.0f} s: {exc}; open the port between the "
                    "two hosts, or name another with accept_port"
                ) from exc
            time.sleep(_PAUSE)


def _send(connection: socket.socket, seconds: float) -> None:
    zeros, end = memoryview(bytes(CHUNK)), time.monotonic() + seconds
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.settimeout(seconds)
        while time.monotonic() < end:
            connection.send(zeros)


def _count(connection: socket.socket, counts: list[int], number: int, end: float) -> None:
    buffer = bytearray(CHUNK)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        while time.monotonic() < end:
            connection.settimeout(max(0.1, end - time.monotonic()))
            received = connection.recv_into(buffer)
            if not received:
                return
            counts[number] += received
