# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take an instance out of service before systemd stops it.

    vllm-drain.py NAME DRAIN NOTICE

systemd runs this before it sends SIGTERM to vLLM, which goes on to accept requests that it never answers. For NOTICE
seconds, and until every gateway that checks the instance has seen it, GET /health answers 404; all other requests are
still served. Then the running requests get DRAIN seconds to finish. A process in the background keeps new requests away
until vLLM has closed its port.

vLLM has no switch for the answer of its /health, so this program takes over the new connections: vLLM's port allows a
second listener of the same user (SO_REUSEPORT), and a filter of the kernel hands new connections to it. It forwards
them to vLLM over connections that the filter recognises by their traffic class.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import os
import re
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator

# Present on a host that is a gateway too: there even an instance on the loopback address is behind a gateway.
GATEWAY = "/etc/haproxy/gateway-agent.json"
HEALTH = b"GET /health "
REFUSAL = (
    b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: 26\r\nConnection: close\r\n\r\n"
    b"this instance is stopping\n"
)
GONE, REFUSED = REFUSAL % b"404 Not Found", REFUSAL % b"503 Service Unavailable"
# A gateway with this header in its checks sends no new requests after one answer 404; others need three failures.
SOFT = re.compile(rb"\r\nx-soft-stop: *404\r\n", re.IGNORECASE)
ANSWERS = 3
# NOTICE is a little longer than the interval of the checks; a gateway that needs three failures gets four times that.
LONGEST_NOTICE = 4
# Seconds that the engine must stay idle: a new request is in no metric while vLLM still reads it.
SETTLE = 1.0
PAUSE = 0.2
TIMEOUT = 5.0
# No other packet has this traffic class, so that the filter knows the connections of this program.
OWN_CLASS = 0x4C
SO_ATTACH_REUSEPORT_CBPF = 51
_LOAD = re.compile(rb"(?m)^vllm:num_requests_(?:running|waiting)(?:\{[^\n]*\})? +(\S+)")


@dataclass
class Instance:
    """Where vLLM listens, and whether with TLS."""

    host: str
    port: int
    tls: bool

    @property
    def family(self) -> socket.AddressFamily:
        """The family that vLLM chooses for the address."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def address(self) -> tuple[str, int]:
        """Where a client on this host finds it."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host), self.port  # noqa: S104

    def behind_gateway(self) -> bool:
        """Return whether a gateway may send requests to it."""
        with contextlib.suppress(ValueError):
            return not ipaddress.ip_address(self.host).is_loopback or os.path.exists(GATEWAY)
        return True


def read_instance(config: str) -> Instance | None:
    """Return the instance of a configuration, None for one without a port: it accepts no requests."""
    found = dict(re.findall(r"^(host|port): *['\"]?([^'\"\n]+?)['\"]? *$", config, re.MULTILINE))
    if "port" not in found or re.search(r"^headless: *true", config, re.MULTILINE):
        return None
    tls = re.search(r"^ssl-certfile:", config, re.MULTILINE) is not None
    return Instance(found.get("host", "0.0.0.0"), int(found["port"]), tls)  # noqa: S104


def listeners(port: int, family: socket.AddressFamily) -> list[int]:
    """Return the user of each socket that listens on the port, in the kernel's order."""
    table = Path("/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp").read_text(encoding="ascii")
    rows = [line.split() for line in table.splitlines()[1:]]
    return [int(row[7]) for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]


def steering(index: int) -> bytes:
    """Return a classic BPF program: the socket ``index`` gets new connections, the first one those of OWN_CLASS."""
    network = 0xFFF00000  # SKF_NET_OFF: offsets from here on count from the IP header
    load_byte, load_half, shift, mask, jump, equal, give = 0x30, 0x28, 0x74, 0x54, 0x05, 0x15, 0x06
    program = [
        (load_byte, 0, 0, network),
        (shift, 0, 0, 4),
        (equal, 0, 2, 4),  # IPv6 goes on two lines further down
        (load_byte, 0, 0, network + 1),
        (jump, 0, 0, 2),
        (load_half, 0, 0, network),
        (mask, 0, 0, 0x0FF0),
        (equal, 1, 0, OWN_CLASS),
        (equal, 0, 1, OWN_CLASS << 4),
        (give, 0, 0, 0),
        (give, 0, 0, index),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in program)


@contextlib.contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Be the user of vLLM for a moment: the kernel shares a port only among sockets of one user."""
    before = os.geteuid()
    if user != before:
        os.seteuid(user)
    try:
        yield
    finally:
        if user != before:
            os.seteuid(before)


def take_over(instance: Instance) -> socket.socket:
    """Return a listener that gets all new connections of the instance. Raises OSError."""
    users = listeners(instance.port, instance.family)
    if not users:
        raise OSError("vLLM does not listen")
    with acting_as(users[0]):
        listener = socket.socket(instance.family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((instance.host, instance.port))
        program = steering(len(users))
        words = ctypes.create_string_buffer(program)
        pointer = struct.pack("@HP", len(program) // struct.calcsize("HBBI"), ctypes.addressof(words))
        # A socket joins the others of the port when it listens, and the program belongs to all of them.
        listener.listen(1024)
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, pointer)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


# The ports of this program's own connections to vLLM.
OWN_PORTS: set[int] = set()


async def connect(instance: Instance) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to vLLM itself. Raises OSError and asyncio.TimeoutError."""
    own = socket.socket(instance.family, socket.SOCK_STREAM)
    try:
        own.setblocking(False)
        own.bind(("", 0))
        OWN_PORTS.add(own.getsockname()[1])
        if instance.family == socket.AF_INET6:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, OWN_CLASS)
        else:
            own.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, OWN_CLASS)
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(own, instance.address), TIMEOUT)
        return await asyncio.open_connection(sock=own)
    except BaseException:
        own.close()
        raise


async def running(instance: Instance) -> int | None:
    """Return how many requests run or wait, 0 where vLLM does not listen, None where it does not tell."""
    try:
        reader, writer = await connect(instance)
    except ConnectionRefusedError:
        return 0
    except (OSError, asyncio.TimeoutError):
        return None
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = _LOAD.findall(await asyncio.wait_for(reader.read(-1), TIMEOUT))
        return int(sum(map(float, found))) if found else None
    except (OSError, ValueError, asyncio.TimeoutError):
        return None
    finally:
        writer.close()


@dataclass
class Door:
    """Answers the new connections: 404 to health checks, vLLM's own answers to all else."""

    instance: Instance
    # How many answers 404 each address that checks the instance still has to get.
    missing: dict[str, int] = field(default_factory=dict)
    open: int = 0
    # Whether other requests are refused too.
    closed: bool = False

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection."""
        # Once vLLM has closed its port, a connection to it ends here.
        if writer.get_extra_info("peername")[1] in OWN_PORTS:
            writer.close()
            return
        self.open += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                head = await reader.read(65536)
                while head and len(head) < len(HEALTH) and HEALTH.startswith(head):
                    head += await reader.readexactly(1)
                if head.startswith(HEALTH):
                    await self._refuse(head, reader, writer)
                elif head and self.closed:
                    writer.write(REFUSED)
                    await writer.drain()
                elif head:
                    await self._forward(head, reader, writer)
        finally:
            self.open -= 1
            writer.close()

    async def _refuse(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"\r\n\r\n" not in head and len(head) < 65536:
            head += await asyncio.wait_for(reader.readexactly(1), TIMEOUT)
        writer.write(GONE)
        await writer.drain()
        client = writer.get_extra_info("peername")[0]
        self.missing[client] = 0 if SOFT.search(head) else max(0, self.missing.get(client, ANSWERS) - 1)

    async def _forward(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, to_upstream = await connect(self.instance)
        try:
            to_upstream.write(head)
            asking = asyncio.ensure_future(copy(reader, to_upstream))
            try:
                await copy(upstream, writer)
            finally:
                asking.cancel()
        finally:
            to_upstream.close()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the source ends, then end the target."""
    with contextlib.suppress(OSError):
        while True:
            data = await source.read(65536)
            if not data:
                break
            target.write(data)
            await target.drain()
    with contextlib.suppress(OSError):
        target.write_eof()


async def notify(door: Door, notice: float) -> None:
    """Wait until every gateway has seen that the instance is stopping."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        if waited >= notice and (not any(door.missing.values()) or waited >= notice * LONGEST_NOTICE):
            return
        await asyncio.sleep(PAUSE)


async def finish(door: Door, drain: float) -> int | None:
    """Wait until no request runs; return how many still do after ``drain`` seconds, None where vLLM does not tell."""
    began, since = time.monotonic(), None
    while True:
        found = await running(door.instance)
        now = time.monotonic()
        idle = found == 0 and not door.open
        since = (since or now) if idle else None
        if since is not None and now - since >= SETTLE:
            return 0
        if since is None and now - began >= drain:
            return door.open if found == 0 else found
        await asyncio.sleep(PAUSE)


async def hold(door: Door) -> None:
    """Refuse new requests until vLLM has closed its port."""
    door.closed = True
    while len(listeners(door.instance.port, door.instance.family)) > 1:
        await asyncio.sleep(PAUSE)


async def stop(instance: Instance, drain: float, notice: float, tell: Callable[[str], None]) -> None:
    """Take the instance out of service, let its requests finish, tell how that ended, and keep new requests away."""
    door = Door(instance)
    if instance.tls or not instance.behind_gateway():
        tell(summary(await finish(door, drain), drain))
        return
    try:
        server = await asyncio.start_server(door.answer, sock=take_over(instance))
    except OSError as exc:
        reason = f"the port cannot be taken over ({exc.strerror or exc})"
        tell(f"{summary(await finish(door, drain), drain)}; gateways were not told, because {reason}")
        return
    await notify(door, notice)
    told = f"told {len(door.missing)} gateways" if door.missing else "no gateway checks it"
    tell(f"{summary(await finish(door, drain), drain)}; {told}")
    await hold(door)
    server.close()


def summary(left: int | None, drain: float) -> str:
    """Return how the requests ended, for the journal."""
    if left is None:
        return f"Stopping: vLLM does not tell whether requests run, waited {drain:g} s"
    return f"Stopping: {left} requests still run after {drain:g} s" if left else "Stopping: no request runs"


def main() -> None:
    """Run the command of the command line."""
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    # systemd sets it while the main process runs; one that has ended serves nobody.
    if "MAINPID" not in os.environ:
        return
    instance = read_instance(Path(f"/etc/vllm/{sys.argv[1]}.yaml").read_text(encoding="utf-8"))
    if instance:
        print(stop_in_background(instance, float(sys.argv[2]), float(sys.argv[3])), flush=True)


def stop_in_background(instance: Instance, drain: float, notice: float) -> str:
    """Return what happened once systemd may send SIGTERM; a child process keeps new requests away from then on.

    systemd ends the child at the latest with the last process of the unit (KillMode=mixed).
    """
    readable, writable = os.pipe()
    if os.fork():
        os.close(writable)
        with os.fdopen(readable, encoding="utf-8") as told:
            return told.read() or "Stopping: gateways were not told, because of the error above"
    os.close(readable)

    def tell(text: str) -> None:
        os.write(writable, text.encode())
        os.close(writable)

    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    asyncio.run(stop(instance, drain, notice, tell))
    os._exit(0)


if __name__ == "__main__":
    main()
