# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.server
import json
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning import ironic as _ironic
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ironic import (
    BusyError,
    Ironic,
    IronicError,
)

# As Ironic 39 answers a wrong order: the message is JSON in JSON.
WRAPPED = json.dumps(
    {"error_message": json.dumps({"debuginfo": None, "faultcode": "Client", "faultstring": "Bad\n  state"})}
)


@pytest.fixture
def serve():
    """Return a function that starts a server with these answers; it returns an Ironic and the list of requests."""
    running = []

    def start(*answers):
        left, seen = list(answers), []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                seen.append((self.command, self.path, json.loads(body) if body else None, dict(self.headers)))
                status, text, *headers = left.pop(0)
                text = text if isinstance(text, (str, bytes)) else json.dumps(text)
                text = text if isinstance(text, bytes) else text.encode()
                self.send_response(status)
                for name, value in dict(*headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815  names of the library

            def log_message(self, *_words):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        running.append(server)
        return Ironic(f"http://127.0.0.1:{server.server_port}", "admin", "s3cret"), seen

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def test_every_request_carries_the_account_and_the_version(serve):
    ironic, seen = serve((200, {"nodes": [{"name": "gpu-01", "uuid": "u1"}]}))
    assert ironic.nodes() == {"gpu-01": {"name": "gpu-01", "uuid": "u1"}}
    method, path, _body, headers = seen[0]
    assert (method, path.partition("?")[0]) == ("GET", "/v1/nodes")
    assert headers["Authorization"] == "Basic YWRtaW46czNjcmV0"
    assert {name.lower(): value for name, value in headers.items()}["x-openstack-ironic-api-version"] == "1.110"


def test_all_pages_of_nodes_are_read(serve, monkeypatch):
    monkeypatch.setattr(_ironic, "PAGE", 2)
    pages = [[{"name": f"n{page}{number}", "uuid": f"u{page}{number}"} for number in range(2)] for page in range(2)]
    ironic, seen = serve(*((200, {"nodes": page}) for page in pages), (200, {"nodes": []}))
    assert sorted(ironic.nodes()) == ["n00", "n01", "n10", "n11"]
    assert seen[2][1].endswith("&marker=u11")


def test_pages_without_an_end_are_an_error(serve, monkeypatch):
    monkeypatch.setattr(_ironic, "PAGE", 1)
    monkeypatch.setattr(_ironic, "MOST_PAGES", 3)
    ironic, _seen = serve(*([(200, {"nodes": [{"name": "n", "uuid": "u"}]})] * 3))
    with pytest.raises(IronicError, match="lists more than 3 nodes"):
        ironic.nodes()


def test_a_node_is_created_with_its_port(serve):
    ironic, seen = serve((201, {"uuid": "u1"}), (200, {"uuid": "u1"}), (201, {}))
    ironic.create({"name": "gpu-01"}, "52:54:00:12:34:56")
    assert [(each[0], each[1].partition("?")[0]) for each in seen] == [
        ("POST", "/v1/nodes"), ("GET", "/v1/nodes/gpu-01"), ("POST", "/v1/ports"),
    ]  # fmt: skip
    assert seen[2][2] == {"node_uuid": "u1", "address": "52:54:00:12:34:56"}


def test_orders_changes_ports_and_the_end_of_a_node(serve):
    ironic, seen = serve(
        (202, ""), (202, ""), (200, {}), (200, {"ports": [{"address": "52:54:00:AB:00:01"}]}), (202, ""), (204, "")
    )
    ironic.order("gpu-01", "manage")
    ironic.order("gpu-01", "active", {"user_data": "x"})
    ironic.change("gpu-01", [{"op": "add"}])
    assert ironic.ports("gpu-01") == ["52:54:00:ab:00:01"]
    ironic.forget("gpu-01")
    assert [each[:3] for each in seen] == [
        ("PUT", "/v1/nodes/gpu-01/states/provision", {"target": "manage"}),
        ("PUT", "/v1/nodes/gpu-01/states/provision", {"target": "active", "configdrive": {"user_data": "x"}}),
        ("PATCH", "/v1/nodes/gpu-01", [{"op": "add"}]),
        ("GET", "/v1/ports?node=gpu-01&fields=address", None),
        ("PUT", "/v1/nodes/gpu-01/maintenance", {"reason": "handed over"}),
        ("DELETE", "/v1/nodes/gpu-01", None),
    ]


def test_a_node_that_is_gone_is_forgotten(serve):
    ironic, seen = serve((404, {"faultstring": "Node gpu-01 could not be found"}))
    ironic.forget("gpu-01")
    assert [each[:2] for each in seen] == [("PUT", "/v1/nodes/gpu-01/maintenance")]


@pytest.mark.parametrize(
    ("status", "text", "kind", "said"),
    [
        (400, WRAPPED, IronicError, "Ironic answered PUT /v1/nodes/n/states/provision with HTTP 400: Bad state"),
        (400, "<html>\x1b[2J", IronicError, "HTTP 400: <html>\\x1b[2J"),
        (409, {"faultstring": "locked by host"}, BusyError, "HTTP 409: locked by host"),
        (503, "", BusyError, "HTTP 503"),
        (401, "", IronicError, "refused user 'admin' (401)"),
        (200, "no JSON", IronicError, "does not answer as Ironic does"),
        (200, "[" * 100_000, IronicError, "does not answer as Ironic does"),
    ],
)  # fmt: skip
def test_a_failure_is_one_sentence_without_the_password(serve, status, text, kind, said):
    ironic, _seen = serve((status, text))
    with pytest.raises(IronicError) as error:
        ironic.order("n", "manage")
    assert error.value.__class__ is kind
    assert said in str(error.value)
    assert "s3cret" not in str(error.value)
    assert "czNjcmV0" not in str(error.value)


def test_a_redirect_never_takes_the_account_elsewhere(serve):
    other, seen = serve((200, {"nodes": []}))
    ironic, _seen = serve((302, "", {"Location": other.url + "/v1/nodes"}))
    with pytest.raises(IronicError, match="HTTP 302"):
        ironic.nodes()
    assert seen == []


def test_an_ironic_that_is_gone_can_be_asked_again():
    with pytest.raises(BusyError, match=r"does not answer: .*refused"):
        Ironic("http://127.0.0.1:9", "admin", "s3cret").nodes()


def test_an_answer_is_bounded(serve, monkeypatch):
    monkeypatch.setattr(_ironic, "MOST_BYTES", 1000)
    ironic, _seen = serve((200, "x" * 1001))
    with pytest.raises(IronicError, match="is larger than"):
        ironic.nodes()


def test_the_password_is_not_shown():
    assert "s3cret" not in repr(Ironic("http://x", "admin", "s3cret"))
