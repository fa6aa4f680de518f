# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client, against a real HTTP server that answers as NetBox does."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.netbox.client import NetBox
from ansible_collections.baremetal.inference.plugins.plugin_utils.netbox.items import NetBoxError

from tests.integration.netbox_server import DEVICES, TOKEN, TOKEN_V2, serving


@pytest.fixture
def server():
    with serving() as found:
        yield found


@pytest.mark.parametrize("token", [TOKEN, TOKEN_V2])
def test_every_page_is_read(server, token):
    netbox = NetBox(server.url, token)
    assert [device["name"] for device in netbox.find("dcim/devices/", "name", list(DEVICES))] == list(DEVICES)
    assert len(server.asked) == 3


def test_many_values_are_several_requests(server):
    netbox = NetBox(f"{server.url}/api/", TOKEN)
    names = [f"host-{number}" for number in range(120)]
    assert list(netbox.find("dcim/devices/", "name", names)) == []
    assert max(len(path) for path, _status in server.asked) < 2000 and len(server.asked) == 3


def test_no_values_ask_nothing(server):
    assert list(NetBox(server.url, TOKEN).find("dcim/devices/", "name", [])) == [] and not server.asked


def test_a_refused_token(server):
    with pytest.raises(NetBoxError, match=r"status 403: Invalid token; the token needs the right") as caught:
        list(NetBox(server.url, "f" * 40).find("dcim/devices/", "name", ["a"]))
    assert "f" * 40 not in str(caught.value)


def test_a_refused_object_is_explained(server):
    netbox = NetBox(server.url, TOKEN)
    assert netbox.write("POST", "extras/tags/", {"name": "x", "slug": "x"})["id"] == 1
    with pytest.raises(NetBoxError, match=r"POST .*/tags/: status 400: .*already exists"):
        netbox.write("POST", "extras/tags/", {"name": "x", "slug": "x"})
    with pytest.raises(NetBoxError, match="status 403: You do not have permission"):
        netbox.write("POST", "dcim/devices/", {"name": "x", "slug": "x"})


@pytest.mark.parametrize("url", ["", "netbox", "file:///etc/passwd", "https://me:word@netbox"])
def test_an_address_that_is_none(url):
    with pytest.raises(NetBoxError, match="netbox_url: found") as caught:
        NetBox(url, TOKEN)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a b", "a\nb"])
def test_no_token(token):
    with pytest.raises(NetBoxError, match="set NETBOX_TOKEN"):
        NetBox("https://netbox", token)


def test_a_file_without_authorities(tmp_path):
    (tmp_path / "ca.pem").write_text("none")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(NetBoxError, match=f"netbox_ca_file: .*{name}"):
            NetBox("https://netbox", TOKEN, str(tmp_path / name))


def test_nobody_answers():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NetBoxError, match=r"no answer: .*refused"):
            list(NetBox(f"http://127.0.0.1:{taken.getsockname()[1]}", TOKEN).find("dcim/devices/", "name", ["a"]))


class Odd(BaseHTTPRequestHandler):
    status, body, seen = 200, b"", []

    def do_GET(self):
        self.seen.append(self.path)
        self.send_response(self.status)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_args):
        """Quiet."""


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "not an answer of NetBox"),
        (200, b"[]", "not a list of NetBox"),
        (200, b'{"count": 1, "results": [7]}', "not a list of NetBox"),
        (200, b"", "not a list of NetBox"),
        (302, b"", "redirected to http://127.0.0.1:.*/elsewhere; set netbox_url"),
        (502, b"<html>", "status 502"),
    ],
)
def test_another_server_is_named_and_gets_no_second_request(status, body, words):
    handler = type("Handler", (Odd,), {"status": status, "body": body, "seen": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(NetBoxError, match=words):
            list(NetBox(f"http://127.0.0.1:{server.server_port}", TOKEN).find("dcim/devices/", "name", ["a"]))
        server.shutdown()
    assert len(handler.seen) == 1


def test_a_list_that_never_ends_ends():
    body = b'{"count": 9, "results": []}'
    handler = type("Handler", (Odd,), {"body": body, "seen": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        assert list(NetBox(f"http://127.0.0.1:{server.server_port}", TOKEN).find("x/", "name", ["a"])) == []
        server.shutdown()
