# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody who reaches an engine's port, or has a key, charges others, or reads what they used."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import json
import os
import urllib.parse

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import routed_host
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import (
    INSTANCE,
    SERVICE,
    digest_of,
    key_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.engine_secret import accepted_by

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, free_port, gateway, plan, until
from tests.fakes.usage_service import service, stored

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
NEW, OLD = "new-" + "0123456789abcdef" * 4, "old-" + "fedcba9876543210" * 4
BODY = json.dumps({"model": "m", "messages": "word word", "max_tokens": 5}).encode()
TOLD = "gw alice research id 1700000000"
READS = "- - - - -"


def signed(told, secret, kind, name):
    """Return a header as who has the key of a name makes it."""
    key = base64.b64decode(key_of(secret, kind, name))
    return f"{told} {hmac.new(key, told.encode(), 'sha256').hexdigest()}"


def proof(told, secret, kind, name):
    return signed(told, secret, kind, name).rpartition(" ")[2]


# What an attacker guesses or has: nothing, parts, what another header proves, and the keys of other services, other
# instances and other kinds.
GUESSES = [
    "", "-", NEW[:-1], NEW + "x", NEW.upper(), f"{NEW},{OLD}", "\xff" * 32, "x" * 4000, digest_of(NEW),
    proof(f"{TOLD}0", NEW, SERVICE, "chat"), proof(TOLD, NEW, SERVICE, "other"), proof(READS, NEW, SERVICE, "chat"),
    proof(TOLD, NEW, INSTANCE, "gw--chat-1"), proof(READS, NEW, INSTANCE, "gw--chat-2"),
    key_of(NEW, SERVICE, "chat"), key_of(NEW, INSTANCE, "gw--chat-1"), proof(TOLD, NEW + "x", SERVICE, "chat"),
]  # fmt: skip


def ask(engine, method, path, headers):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=HANGS)
    connection.request(method, path, BODY if method == "POST" else None, headers)
    found = connection.getresponse()
    text = found.read()
    connection.close()
    return found.status, text


@pytest.fixture
def place(tmp_path_factory):
    """A directory with a short path, because HAProxy has sockets below it."""
    return tmp_path_factory.mktemp("s")


@pytest.fixture
def engine(place, monkeypatch):
    monkeypatch.setenv("GATEWAY_SECRET", accepted_by(f"{NEW} {OLD}", "chat", "gw", "chat-1"))
    with counted_engine(place / "run0") as found:
        yield found


@contextlib.contextmanager
def counted(place, engine, name, secret):
    """A gateway with its service that counts, which has a secret."""
    (place / name).mkdir()
    more = {"options": {"tokens": True}, "variables": {"gateway_tokens": True}, "name": name, "secret": secret}
    log = (place / f"{name}.log").open("w")
    found = gateway(place / name, [engine.port], [client(team="research")], **more)
    servers = {f"127.0.0.1:{engine.port}": {"name": "gw--chat-1", "service": "chat", "models": ["m"]}}
    with log, found as running, service(place, name, [engine], free_port(), output=log, servers=servers):
        until(lambda: running.state("gw--chat-1") == "UP")
        yield running


def records(engine, secret, name="gw--chat-1"):
    header = signed(READS, secret, INSTANCE, name)
    status, text = ask(engine, "GET", "/gateway/usage", {"X-Gateway-Usage": header})
    assert status == 200
    return [json.loads(line) for line in text.splitlines() if b'"file"' not in line]


@pytest.mark.parametrize("guess", GUESSES)
def test_who_reaches_an_engine_charges_nobody_and_reads_nothing(engine, guess):
    header = {"X-Gateway-Usage": f"{TOLD} {guess}".encode("latin-1")}
    assert ask(engine, "POST", CHAT, header)[0] == 200
    for given in ({}, {"X-Gateway-Usage": f"{READS} {guess}".encode("latin-1")}):
        status, text = ask(engine, "GET", "/gateway/usage?wait=5", given)
        assert status == 403 and b"{" not in text
    assert records(engine, NEW) == []


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_while_it_changes_gateways_with_either_secret_are_counted(place, engine, secret):
    with counted(place, engine, "gw", secret) as found:
        assert found.ask("POST", CHAT, KEY, BODY)[0] == 200
        until(lambda: [row["completion"] for row in stored(place, "gw")] == [5])
        # A client's own header has no part in it, not even with the secret.
        for header in (f"gw bob other id 1 {secret}", secret):
            assert found.ask("POST", CHAT, KEY, BODY, **{"X-Gateway-Usage": header})[0] == 200
        until(lambda: [row["completion"] for row in stored(place, "gw")] == [15])
        assert {(row["client"], row["team"]) for row in stored(place, "gw")} == {("alice", "research")}
        assert found.ask("GET", "/gateway/usage", KEY)[0] == 404
        # Nor does a gateway have the secret, or an instance get anything that proves another request.
        for name in ("haproxy.cfg", "haproxy.log", "secret"):
            assert secret not in (found.directory / name).read_text()
        sent = " ".join(str(headers) for _path, _body, headers in engine.requests)
        key = key_of(secret, SERVICE, "chat")
        assert "x-gateway-usage" in sent and secret not in sent and key not in sent
        assert NEW not in os.environ["GATEWAY_SECRET"] and OLD not in os.environ["GATEWAY_SECRET"]


def test_a_gateway_with_another_secret_serves_and_says_that_it_does_not_count(place, engine):
    with counted(place, engine, "gw", "other-" + "0" * 40) as found:
        assert found.ask("POST", CHAT, KEY, BODY)[0] == 200
        log = place / "gw.log"
        until(lambda: "another gateway_secret or release; run site.yml for it, then gateway.yml" in log.read_text())
        assert stored(place, "gw") == [] and NEW not in log.read_text()


def test_who_has_an_engines_port_and_not_its_key_charges_nobody(place, monkeypatch):
    """One without a key tells records as anybody does; they wait until it proves that they are its own."""
    with counted_engine(place / "run0") as engine, counted(place, engine, "gw", NEW) as found:
        assert found.ask("POST", CHAT, KEY, BODY)[0] == 200
        log = place / "gw.log"
        until(lambda: "does not prove that it is the instance's" in log.read_text())
        assert stored(place, "gw") == []
    monkeypatch.setenv("GATEWAY_SECRET", accepted_by(NEW, "chat", "gw", "chat-1"))
    with counted_engine(place / "run0") as engine, service(
        place,
        "gw",
        [engine],
        free_port(),
        servers={f"127.0.0.1:{engine.port}": {"name": "gw--chat-1", "service": "chat", "models": ["m"]}},
    ):
        until(lambda: [row["completion"] for row in stored(place, "gw")] == [5])


def test_who_reads_the_network_can_repeat_a_request_and_a_reading(place, engine):
    # What the page says that he can; and no other client, no other instance.
    with counted(place, engine, "gw", NEW) as found:
        assert found.ask("POST", CHAT, KEY, BODY)[0] == 200
        seen = engine.requests[-1][2][b"x-gateway-usage"].decode()
    assert ask(engine, "POST", CHAT, {"X-Gateway-Usage": seen})[0] == 200
    assert [row["client"] for row in records(engine, NEW)] == ["alice", "alice"]
    assert ask(engine, "POST", CHAT, {"X-Gateway-Usage": seen.replace("alice", "bob")})[0] == 200
    assert ask(engine, "GET", "/gateway/usage", {"X-Gateway-Usage": seen})[0] == 403
    assert len(records(engine, NEW)) == 2


@pytest.mark.parametrize("secret", [NEW, OLD])
def test_a_gateway_of_0_9_0_which_sends_the_secret_is_counted_and_reads(engine, secret):
    assert ask(engine, "POST", CHAT, {"X-Gateway-Usage": f"{TOLD} {secret}"})[0] == 200
    status, text = ask(engine, "GET", "/gateway/usage", {"X-Gateway-Usage": f"{READS} {secret}"})
    assert status == 200 and b'"client":"alice"' in text


def test_at_one_address_each_service_has_its_own_key(place, monkeypatch):
    engines = contextlib.ExitStack()
    found = {}
    for name in ("chat", "other"):
        monkeypatch.setenv("GATEWAY_SECRET", accepted_by(NEW, name, "gw", name))
        found[name] = engines.enter_context(counted_engine(place / name / "run"))
    plans = {name: plan(engine.port, of=name, models=(name,)) for name, engine in found.items()}
    more = {"options": {"tokens": True}, "variables": {"gateway_tokens": True}, "plans": plans, "secret": NEW}
    with engines, gateway(place, [], [client(team="research")], **more) as running:
        for name in found:
            until(lambda name=name: running.ask("POST", CHAT, KEY, json.dumps({"model": name}).encode())[0] == 200)
        got = {name: engine.requests[-1][2][b"x-gateway-usage"] for name, engine in found.items()}
        # What the one has got is of no use at the other.
        assert ask(found["chat"], "POST", CHAT, {"X-Gateway-Usage": got["other"]})[0] == 200
        assert ask(found["other"], "POST", CHAT, {"X-Gateway-Usage": got["chat"]})[0] == 200
        for name, engine in found.items():
            assert [record["client"] for record in records(engine, NEW, f"gw--{name}")] == ["alice"]


@pytest.mark.parametrize(("secret", "counts"), [(NEW, 1), (NEW[:-1], 0), ("", 0)])
def test_on_the_way_through_a_router_the_proof_counts_too(place, monkeypatch, secret, counts):
    monkeypatch.setenv("GATEWAY_SECRET", accepted_by(NEW, "chat", "gw", "chat-1"))
    monkeypatch.setenv("PREFILL_HOSTS", "")
    with counted_engine(place / "run0", wrap=routed_host.Routed) as engine:
        engine.wrapped.prefill = ["10.0.0.1"]
        told = base64.b64encode(signed(TOLD, secret, SERVICE, "chat").encode()).decode()
        for path in (f"/routed{CHAT}", CHAT):
            assert ask(engine, "POST", path, {"Baggage": f"gateway-usage={told}"})[0] == 200
        assert ask(engine, "GET", "/routed/gateway/usage", {})[0] == 403
        assert [record["client"] for record in records(engine, NEW)] == ["alice"] * 2 * counts


def test_a_query_has_no_secret(engine):
    # A query is in access logs.
    query = urllib.parse.urlencode({"secret": NEW})
    assert ask(engine, "GET", f"/gateway/usage?{query}", {})[0] == 403
