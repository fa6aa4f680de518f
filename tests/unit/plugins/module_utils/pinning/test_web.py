# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.web import RetryingClient, TooLargeError
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError

from tests.fakes.file_server import FileServer, serving
from tests.fakes.hub_server import Model, hubs_running

CONTENT = os.urandom(100_000)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        running.files["/x"] = CONTENT
        yield running


def web(server, **settings):
    return RetryingClient(server.url, {}, **{"timeout": 0.5, "backoff": 0.0, **settings})


def test_a_hash_goes_on_where_the_connection_broke(server):
    server.faults["/x"], server.cut_after = "cut", 30_000
    pieces = []
    found = web(server).hash(f"{server.url}/x", lambda piece: pieces.append(bytes(piece)))
    assert found == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert b"".join(pieces) == CONTENT
    assert [wanted for _method, _path, wanted in server.log] == [
        "",
        "bytes=30000-99999",
        "bytes=60000-99999",
        "bytes=90000-99999",
    ]


def test_a_server_that_cannot_go_on(server):
    server.faults["/x"], server.ranges = "cut", False
    with pytest.raises(WeightsError, match="the server cannot continue the same file"):
        web(server).hash(f"{server.url}/x", len)


def test_a_server_that_stalls(server):
    server.faults["/x"], server.cut_after = "stall", 0
    with pytest.raises(WeightsError, match=r"/x: no data arrived for 1 s"):
        web(server, timeout=1).hash(f"{server.url}/x", len)


@pytest.mark.parametrize(("status", "asked"), [(503, 4), (429, 4), (404, 1), (403, 1)])
def test_only_what_may_pass_is_asked_again(server, status, asked):
    server.faults["/x"] = status
    assert web(server).get(f"{server.url}/x").status == status
    assert len(server.log) == asked
    with pytest.raises(WeightsError, match=f"/x: HTTP {status}"):
        web(server).hash(f"{server.url}/x", len)


def test_half_an_answer_is_none(server):
    server.faults["/x"], server.cut_after = "cut", 10
    with pytest.raises(WeightsError, match="/x: the connection breaks again and again"):
        web(server).get(f"{server.url}/x")


def test_a_redirect_loop(server):
    server.redirects["/x"] = "/x"
    with pytest.raises(WeightsError, match="/x: more than 5 redirects"):
        web(server).get(f"{server.url}/x")


def test_an_answer_that_is_too_large(server):
    with pytest.raises(TooLargeError, match="found more than 1000 bytes, expected a smaller answer"):
        web(server).get(f"{server.url}/x", 1000)


def test_a_query_is_not_shown(server):
    server.files["/y?signature=secret"] = b"no json"
    with pytest.raises(WeightsError, match=r"/y: found no JSON") as caught:
        web(server).get(f"{server.url}/y?signature=secret").json()
    assert "secret" not in str(caught.value)


def test_a_ca_that_is_none(tmp_path):
    (tmp_path / "ca.pem").write_text("none")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(WeightsError, match=f"{name}: cannot be read as PEM certificates of a CA"):
            RetryingClient("https://h", {}, str(tmp_path / name))


def test_the_token_stays_with_its_server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with hubs_running() as hubs:
        hubs.hub["o/n"] = Model({"c" * 40: {"m.safetensors": CONTENT, "x.json": b"{}"}}, {"main": "c" * 40}, gated=True)
        hubs.tokens = {"hf_secret"}
        asking = RetryingClient(hubs.url, {"Authorization": "Bearer hf_secret"})
        assert asking.hash(f"{hubs.url}/o/n/resolve/main/m.safetensors", len)[0] == len(CONTENT)
        assert asking.get(f"{hubs.url}/o/n/resolve/main/x.json").body == b"{}"
        sent = {server: headers.get("Authorization") for server, _method, _path, headers in hubs.log}
    assert sent == {"hub": "Bearer hf_secret", "store": None}


def test_an_address_of_another_server_gets_no_token(server):
    RetryingClient("http://hub.example", {"Authorization": "Bearer hf_secret"}).get(f"{server.url}/x")
    assert "Authorization" not in server.seen[-1]
