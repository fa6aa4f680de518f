# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file that opens a port or a socket for clients, or tells a program to, is in one row of listeners.yml."""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.fakes.sources import called, named, nodes_of, text_of
from tests.unit.docs.test_entrances import PLACES, TOP
from tools import entrances

CALLS = {
    "create_server",
    "create_unix_server",
    "listen",
    "run_app",
    "serve_forever",
    "start_server",
    "start_unix_server",
}
# In HAProxy, nginx, systemd, the registry, Ironic and exporters.
TOLD = re.compile(
    r"(?m)^\s*(bind|listen) \S|^Listen(Stream|Datagram|SequentialPacket)=|[-.](listen|bind)-?address[= ]|^host_ip *="
    r"|^\s*addr: \S"
)


def listens(source: str) -> bool:
    """Return whether a program listens."""
    for node in nodes_of(source):
        if isinstance(node, ast.ClassDef) and any(named(base).endswith("Server") for base in node.bases):
            return True
        # A plain listen() is a function of the collection, whose file is found itself.
        if isinstance(node, ast.Call) and called(node).rpartition(".")[2] in CALLS and called(node) != "listen":
            return True
    return False


def test_every_listener_is_in_one_row():
    programs = {path for place in PLACES for path in TOP.glob(place) if listens(text_of(path))}
    told = {path for path in TOP.glob("roles/*/templates/*") if TOLD.search(text_of(path))}
    found = {path.relative_to(TOP).as_posix() for path in programs | told}
    places = Counter(place for row in entrances.entries(entrances.LISTENERS) for place in row["places"])
    assert sorted(found - set(places)) == [], "name who reaches this server, and its bounds, in listeners.yml"
    assert sorted(set(places) - found) == [], "these listen no longer"
    assert [place for place, count in places.items() if count > 1] == []


def test_every_row_is_complete():
    for row in entrances.entries(entrances.LISTENERS):
        assert set(row) == {"places", *entrances.LISTENER_HEADERS}, row["server"]
        assert all(str(row[key]).strip() for key in entrances.LISTENER_HEADERS), row["server"]


def test_what_counts_as_listening():
    for source in ("socket.create_server(a)", "opened.listen(5)", "class A(socketserver.TCPServer): pass",
                   "await asyncio.start_server(f)", "server.serve_forever()"):  # fmt: skip
        assert listens(source), source
    for source in ("listen(jobs, world)", "socket.create_connection(a)", "class A(Thread): pass"):
        assert not listens(source), source
    for line in (
        "    listen 1.2.3.4:80;",
        "    bind :443",
        "ListenStream=80",
        "x --web.listen-address=:9100",
        "host_ip = x",
    ):
        assert TOLD.search(line), line
