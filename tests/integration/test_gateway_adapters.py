# SPDX-License-Identifier: GPL-3.0-or-later
"""An instance with LoRA adapters behind a real HAProxy: a key may be limited to some of its models."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import Backend, decide

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HAPROXY, KEY, client, gateway, options, plan, until
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
# Keys for an adapter, for the model without its adapters, and for nothing of this service.
SQL, BASE, NONE = "sql-key-" * 5, "base-key-" * 5, "none-key-" * 5
ADAPTERS = {"args": {"enable-lora": True, "lora-modules": ["sql=/srv/lora/sql", "team/crew=/srv/lora/crew"]}}
LIMITED = {SQL: ["sql"], BASE: ["base", "b"], KEY: ["base", "b", "sql", "team/crew"], NONE: []}


def rights_of(models, plans):
    """Return the rights of a key with these models."""
    decided = decide("gw", [Backend("gw", "127.0.0.1", plans)], options())
    return tuple(dict.fromkeys(right for name in models for right in decided["models"][name]))


@contextlib.contextmanager
def serving(directory, *, shared):
    """A service with two adapters; with ``shared`` another one has the same port."""
    with contextlib.ExitStack() as stack:
        chat = stack.enter_context(counted_engine(directory / "run/chat"))
        plans = {"chat": plan(chat.port, of="chat", models=["base", "b"], **ADAPTERS)}
        if shared:
            plans["other"] = plan(stack.enter_context(engine()).server_port, of="other", models=["o"])
        clients = [
            client(),
            client("sql-only", SQL, services=rights_of(["sql"], plans)),
            client("base-only", BASE, services=rights_of(["b"], plans)),
            client("nothing", NONE, services=("elsewhere",)),
        ]
        found = stack.enter_context(gateway(directory, [], clients, plans=plans))
        until(lambda: found.state("gw--chat") == "UP")
        found.engine = chat
        yield found


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "shared"])
def site(request, tmp_path_factory):
    with serving(tmp_path_factory.mktemp("adapters"), shared=request.param) as found:
        yield found


def ask(site, key, body, path=CHAT, **headers):
    """Return the status of a request and the models that the engine was asked for."""
    site.engine.requests.clear()
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, _headers, answer = site.ask("POST", path, key, data, **{"Content-Type": "application/json", **headers})
    return status, [request.get("model") for _path, request, _headers in site.engine.requests], answer


def request(model, **more):
    return {"model": model, "messages": [], "max_tokens": 1, **more}


@pytest.mark.parametrize("key", LIMITED)
@pytest.mark.parametrize("model", ["base", "b", "sql", "team/crew"])
def test_a_key_is_served_by_its_models_only(site, key, model):
    status, asked, answer = ask(site, key, request(model))
    if model in LIMITED[key]:
        assert (status, asked) == (200, [model])
    else:
        assert status in (403, 404) and asked == []
        assert json.loads(answer)["error"]["code"] in ("model_not_found", "model_not_allowed")


def test_the_refusal_names_the_models_of_the_key(site):
    for path in (CHAT, "/v1/messages"):
        _status, _asked, answer = ask(site, SQL, request("base"), path)
        error = json.loads(answer)
        assert "The key may use: sql." in error["error"]["message"]
        assert error.get("type") == ("error" if path == "/v1/messages" else None)


def test_the_list_of_models_is_that_of_the_key(site):
    def listed(key):
        return [each["id"] for each in json.loads(site.ask("GET", "/v1/models", key)[2])["data"]]

    assert listed(SQL) == ["sql"] and listed(BASE) == ["base", "b"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"sql","model":"team/crew"}',
        b'{"model":"sql","\\u006dodel":"team/crew"}',
        b'{"model":"sql","model":"\\u0074eam/crew"}',
        b'{"x":{"model":"sql"},"model":"team/crew"}',
        b'{"messages":[]}',
        b'{"model":null}',
        b'{"model":""}',
        b'{"model":["sql"]}',
        b'["sql"]',
        b"no JSON",
        b'{"model":"sql",' + b'"x":"' + b"x" * 300_000 + b'","model":"team/crew"}',
        b'{"x":"' + b"x" * 300_000 + b'","model":"team/crew"}',
        '{"model":"sql","model":"team/crew"}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"model":"sql","model":"team/crew"}',
    ],
)
@pytest.mark.parametrize("headers", [{}, {"X-Model": "sql"}, {"X-Gateway-Models": "team/crew,base"}])
def test_no_body_gets_another_model(site, body, headers):
    status, asked, answer = ask(site, SQL, body, **headers)
    assert 400 <= status < 500 and asked == [], answer


def test_a_long_body_is_served(site):
    body = request("sql", messages=[{"role": "user", "content": "x" * 300_000}])
    status, asked, _answer = ask(site, SQL, body, **{"X-Model": "sql"})
    assert (status, asked) == (200, ["sql"])


def test_a_form_that_is_json_too_is_refused(site):
    body = b'{"model":"sql","x":"&model=team/crew&"}'
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=b"):
        status, asked, _answer = ask(site, SQL, body, **{"Content-Type": kind})
        assert 400 <= status < 500 and asked == []
