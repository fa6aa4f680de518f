# SPDX-License-Identifier: GPL-3.0-or-later
"""Several services at one address of a real HAProxy: the model of a request chooses one that the key may use."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import socket
import time

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, gateway, plan, until
from tests.fakes.wheelhouse import run_module
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
# A key for the service quick alone, one for chat and next, one for nothing that is here.
QUICK, CHAT, NONE = "quick-" * 6, "chat-" * 7, "none-" * 7
NAMES = {"chat": ["chat", "openai/gpt-oss-120b"], "next": ["chat", "next"], "quick": ["quick", "openai/gpt-oss-120b"],
         "vec": ["embed"]}  # fmt: skip
MODELS = {
    "chat": {"services": {"chat": 80, "next": 20}},
    "openai/gpt-oss-120b": {"services": {"chat": 1}, "fallback": "quick"},
}
POST = ("POST", "/v1/chat/completions")


def clients():
    return [
        client(),
        client("quick-only", QUICK, services=("quick",)),
        client("chat-only", CHAT, services=("chat", "next")),
        client("nothing", NONE, services=("elsewhere",)),
    ]


@contextlib.contextmanager
def many(directory, **more):
    """Four services with an engine each; ``to`` returns the services that got a request since the last call."""
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(engine()) for name in NAMES}
        plans = {
            name: plan(each.server_port, of=name, models=NAMES[name]) for name, each in engines.items()
        }  # fmt: skip
        plans["vec"]["args"] = {"runner": "pooling"}
        options = {"models": MODELS, **more.pop("options", {})}
        found = stack.enter_context(gateway(directory, [], clients(), plans=plans, options=options, **more))
        found.engines = engines

        def to():
            asked = [name for name, each in engines.items() for _request in each.asked]
            for each in engines.values():
                each.asked.clear()
            return asked

        found.to = to
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with many(tmp_path_factory.mktemp("models")) as found:
        yield found


@pytest.fixture
def one(site):
    site.to()
    return site


def body_of(model, **more):
    return json.dumps(
        {"messages": [{"role": "user", "content": 'a "model": {"model": "next"}'}], "model": model, **more}
    ).encode()


def code_of(answer):
    return json.loads(answer[2])["error"]["code"]


@pytest.mark.parametrize(("model", "service"), [("quick", "quick"), ("next", "next"), ("openai/gpt-oss-120b", "chat")])
def test_the_model_of_a_request_chooses_the_service(one, model, service):
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"):
        assert one.ask("POST", path, KEY, body_of(model))[0] == 200
    assert one.ask("GET", f"/v1/models/{model}", KEY)[0] == 200
    assert one.ask("GET", f"/v1/models/{model.replace('/', '%2F')}", KEY)[0] == 200
    assert one.to() == [service] * 6


def test_an_embedding_goes_where_embeddings_are(one):
    assert one.ask("POST", "/v1/embeddings", KEY, body_of("embed"))[0] == 200
    assert one.ask("POST", "/v1/embeddings", KEY, b'{"input": "no model"}')[0] == 200
    assert one.to() == ["vec", "vec"]
    for path, model in (("/v1/embeddings", "chat"), ("/v1/chat/completions", "embed")):
        answer = one.ask("POST", path, KEY, body_of(model))
        assert (answer[0], code_of(answer)) == (404, "wrong_path")
    assert one.to() == []


def test_a_canary_gets_its_share(one):
    assert {one.ask(*POST, KEY, body_of("chat"))[0] for _n in range(500)} == {200}
    asked = one.to()
    # Six standard deviations around 100.
    assert set(asked) == {"chat", "next"} and 46 <= asked.count("next") <= 154


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_an_unknown_model_is_told_with_the_names_that_the_key_may_use(one, path):
    for key, model, names in (
        (KEY, "gpt-5", "chat, openai/gpt-oss-120b, next, quick, embed"),
        (QUICK, "gpt-5", "quick"), (QUICK, "chat", "quick"), (CHAT, "quick", "chat, openai/gpt-oss-120b, next"),
        (NONE, "chat", "none"),
    ):  # fmt: skip
        status, headers, text = one.ask("POST", path, key, body_of(model))
        said = json.loads(text)
        assert status == 404 and headers["content-type"] == "application/json"
        assert said["error"]["message"].endswith(f" may use: {names}."), said
        form = (said.get("type"), said["error"]["type"])
        assert form == (("error", "not_found_error") if path == "/v1/messages" else (None, "invalid_request_error"))
    assert one.to() == []


def test_the_list_of_models_is_that_of_the_key(one):
    def listed(key):
        found = json.loads(one.ask("GET", "/v1/models", key)[2])
        assert found["object"] == "list" and {entry["object"] for entry in found["data"]} <= {"model"}
        return [entry["id"] for entry in found["data"]]

    assert listed(KEY) == ["chat", "openai/gpt-oss-120b", "next", "quick", "embed"]
    assert (listed(QUICK), listed(CHAT), listed(NONE)) == (["quick"], ["chat", "openai/gpt-oss-120b", "next"], [])
    assert one.ask("GET", "/v1/models", "x" * 40)[0] == 401
    assert one.to() == []


def test_each_service_has_an_address_of_its_own(one):
    assert one.ask("POST", "/quick/v1/chat/completions?x=1", KEY, body_of("chat"))[0] == 200
    assert one.engines["quick"].asked[-1][1] == "/v1/chat/completions?x=1"
    assert one.ask("GET", "/vec/v1/models", KEY)[0] == 200
    assert one.to() == ["quick", "vec"]
    for method, path, key, status in (
        ("POST", "/vec/v1/chat/completions", KEY, 404), ("GET", "/chat/v1/models", QUICK, 404),
        ("POST", "/chat/v1/chat/completions", QUICK, 404), ("POST", "/chat/v1/pause", KEY, 404),
        ("GET", "/chat/v1/../metrics", KEY, 404), ("GET", "/chat/metrics", KEY, 404),
        ("GET", "/nothing/v1/models", KEY, 404),
        ("GET", "/chat/v1/models", None, 401), ("GET", "/quick/v1/../../chat/v1/models", QUICK, 404),
        ("GET", "/quick/v1/models/../../../chat/v1/models", QUICK, 404), ("GET", "/chat/quick/v1/models", QUICK, 404),
    ):  # fmt: skip
        assert one.ask(method, path, key)[0] == status, (method, path)
    assert one.to() == []


def test_a_large_body_goes_where_the_header_or_the_start_of_the_body_says(one):
    large = {"messages": [{"role": "user", "content": "x" * 300_000}]}
    last = json.dumps({**large, "model": "quick"}).encode()
    first = json.dumps({"model": "quick", **large}).encode()
    for body, headers, service in (
        (first, {}, "quick"),
        # Not within what the gateway reads: the first service that writes text.
        (last, {}, "chat"), (last, {"X-Model": "quick"}, "quick"),
    ):  # fmt: skip
        status, _headers, text = one.ask(*POST, KEY, body, **headers)
        assert (status, json.loads(text)["bytes"], one.to()) == (200, len(body), [service])
    assert one.ask(*POST, QUICK, last)[0] == 200 and one.to() == ["quick"]
    assert one.ask("POST", "/quick/v1/chat/completions", KEY, last)[0] == 200 and one.to() == ["quick"]


def test_the_header_does_not_reach_the_engine(one):
    assert one.ask(*POST, KEY, body_of("chat"), **{"X-Model": "quick"})[0] == 200
    assert "x-model" not in {name.lower() for name in one.engines["quick"].asked[-1][2]}
    assert one.ask(*POST, CHAT, body_of("chat"), **{"X-Model": "quick"})[0] == 404


def test_more_of_a_body_is_read_where_a_site_asks_for_it(tmp_path):
    body = json.dumps({"messages": "x" * 900_000, "model": "quick"}).encode()
    with many(tmp_path, options={"inspect_kib": 1024}) as found:
        assert found.ask(*POST, KEY, body)[0] == 200 and found.to() == ["quick"]
        assert found.ask(*POST, KEY, b"x" * 5_000_000)[0] == 200


def form(*fields, boundary="b0undary"):
    parts = [f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n" for head, value in fields]
    return "".join([*parts, f"--{boundary}--\r\n"]).encode()


@pytest.mark.parametrize(
    ("fields", "service"),
    [
        ([('name="model"', "quick"), ('name="file"; filename="a.wav"', "x" * 200_000)], "quick"),
        ([('name="file"; filename="a"\r\nContent-Type: audio/wav', "\0\r\n--b"), ('name="model"', "quick")], "quick"),
        ([("name=model", "quick")], "quick"),
        ([('name="file"; filename="model"', "quick")], "chat"),
        ([('name="x"\r\nX-Note: name="model"', "quick")], "chat"),
        ([('name="model"', "next"), ('name="model"', "quick")], "quick"),
        ([('name="file"; filename="a.wav"', "x" * 200_000), ('name="model"', "quick")], "chat"),
    ],
)  # fmt: skip
def test_a_form_names_its_model_too(tmp_path_factory, site, fields, service):
    site.to()
    headers = {"Content-Type": 'multipart/form-data; boundary="b0undary"'}
    assert site.ask(*POST, KEY, form(*fields), **headers)[0] == 200
    assert site.to() == [service]


ODD = [
    b"",
    b"x",
    b"[]",
    b"null",
    b'"chat"',
    b"{",
    b'{"model"',
    b'{"model":',
    b'{"model":"cha',
    b'{"model":"chat"',
    b"\0" * 100,
    b'{"model":"chat"} {"model":"quick"}',
    b'{"model":"chat","model":"quick"}',
    b'{"model":"quick","model":"chat"}',
    b'{"mod\\u0065l":"chat"}',
    b'{"model":"ch\\u0061t"}',
    b'{"model":"chat\\u0000"}',
    b'{"model":"chat\0"}',
    b'{"model\0":"chat"}',
    b'{"model":"\\ud83d\\ude00"}',
    b'{"model":"chat\\"}',
    b'{"a":"\\\\","model":"chat"}',
    b'{"a":"\\\\\\"","model":"chat"}',
    b'{"model":"' + b"chat" * 262_144 + b'"}',
    b'{"model":{"model":"chat"}}',
    b'{"x":{"model":"chat"}}',
    b'{"x":[{"model":"chat"}]}',
    b'{"model":["chat"]}',
    b'{"model":1}',
    b'{"model":null}',
    b'{"model":""}',
    b'\xef\xbb\xbf{"model":"chat"}',
    '{"model":"chat"}'.encode("utf-16"),
    '{"model":"chat"}'.encode("utf-32"),
    b'{"Model":"chat"}',
    b'{"model":"CHAT"}',
    b'{"model":"chat "}',
    b'{"model":" chat"}',
    b'{"model":"chat,quick"}',
    b"[" * 60_000,
    b'{"a":' * 10_000,
    b'{"model" : "chat" , }',
    b'{"m":' + b"[1]," * 10_000 + b'"model":"chat"}',
    b'{"model":"quick","x":"' + b"y" * 100_000 + b'","model":"chat"}',
    b'{"model":"openai/gpt-oss-120b"}',
    b'{"model":"chat","model":7}',
]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_no_body_gets_a_key_to_another_service(one, number):
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/embeddings"):
        one.ask("POST", path, QUICK, ODD[number])
        assert set(one.to()) <= {"quick"}
        assert one.ask("POST", path, NONE, ODD[number])[0] == 404
        assert one.to() == []


@pytest.mark.parametrize(
    "value", ["chat", "quick,chat", "chat,quick", "chat\t", "c" * 5000, "%63hat", '"chat"', "quick\r\n X: y"]
)
def test_no_header_gets_a_key_to_another_service(one, value):
    with contextlib.suppress(ValueError):
        one.ask(*POST, QUICK, body_of("quick"), **{"X-Model": value})
    lines = ["X-Model: quick", f"X-Model: {value}", "Content-Length: 2", "Connection: close"]
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: gw", f"Authorization: Bearer {QUICK}", *lines]
    with socket.create_connection(("127.0.0.1", one.port), timeout=HANGS) as connection:
        connection.sendall("\r\n".join([*head, "", "{}"]).encode("latin-1"))
        connection.recv(65536)
    assert set(one.to()) <= {"quick"}


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 15", "Transfer-Encoding: chunked"],
        ["Content-Length: 15", "Content-Length: 2"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding : chunked"],
        ["Content-Length: +15"],
    ],
)
def test_no_request_hides_in_another(one, lines):
    inner = "\r\n".join(
        [
            "POST /chat/v1/chat/completions HTTP/1.1",
            "Host: gw",
            f"Authorization: Bearer {QUICK}",
            "Content-Length: 16",
            "",
            "",
        ]
    )
    body = f'0\r\n\r\n{inner}{{"model":"chat"}}'
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: gw", f"Authorization: Bearer {QUICK}", *lines, "", ""]
    with socket.create_connection(("127.0.0.1", one.port), timeout=3) as connection, contextlib.suppress(OSError):
        connection.sendall(("\r\n".join(head) + body).encode())
        for _n in range(3):
            connection.recv(65536)
    assert set(one.to()) <= {"quick"}


def written(chance, value):
    """Return a value as JSON, with spaces and escapes where they change nothing."""

    def space():
        return chance.choice(["", "", " ", "\n", "\t \r\n"])

    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            inner = ",".join(
                f"{space()}{written(chance, key)}{space()}:{space()}{written(chance, each)}{space()}"
                for key, each in value
            )
            return f"{{{inner}}}"
        return f"[{','.join(space() + written(chance, each) + space() for each in value)}]"
    if isinstance(value, str):
        return (
            '"'
            + "".join(f"\\u{ord(each):04x}" if chance.random() < 0.1 else json.dumps(each)[1:-1] for each in value)
            + '"'
        )
    return json.dumps(value)


def made(chance, depth=0):
    kinds = 7 if depth < 4 else 5
    kind = chance.randrange(kinds)
    if kind < 2:
        return chance.choice(
            ["chat", "model", "quick", '"', "\\", '{"model":"next"}', 'a\\"b', "é", "x" * 50, "", "],}", "\0"]
        )
    if kind < 5:
        return chance.choice([None, True, 1, -2.5e10, 0])
    if kind == 5:
        return [made(chance, depth + 1) for _n in range(chance.randrange(4))]
    return [
        ("x", 1),
        *(
            (chance.choice(["model", "Model", "a", "mod"]), made(chance, depth + 1))
            for _n in range(chance.randrange(4))
        ),
    ]


def test_the_gateway_reads_the_model_that_vllm_reads(one):
    seed = int(os.environ.get("FUZZ_SEED", "21"))
    chance = random.Random(seed)
    names = ["next", "quick", "nothing", "", None, 5, "chat\0", "é", "openai/gpt-oss-120b", "x" * 300]
    owners = {"next": "next", "quick": "quick", "openai/gpt-oss-120b": "chat"}
    for number in range(int(os.environ.get("FUZZ_RUNS", "300"))):
        pairs = [("x", 1), *((chance.choice(["a", "b", "modex"]), made(chance)) for _n in range(chance.randrange(5)))]
        for _n in range(chance.randrange(4)):
            pairs.insert(chance.randrange(len(pairs) + 1), ("model", chance.choice(names)))
        text = written(chance, pairs)
        read = json.loads(text).get("model")
        # vLLM answers for its own model where there is none, and refuses what is no text.
        expected = owners.get(read) if isinstance(read, str) and read else "chat"
        status = one.ask(*POST, KEY, text.encode())[0]
        assert (one.to(), status) == (([expected], 200) if expected else ([], 404)), (seed, number, text)


def test_a_fallback_gets_what_its_service_cannot_serve(tmp_path):
    with many(tmp_path) as found:
        asked = body_of("openai/gpt-oss-120b")
        assert found.ask(*POST, KEY, asked)[0] == 200 and found.to() == ["chat"]
        found.tell("set server chat/gw--chat state maint")
        assert found.ask(*POST, KEY, asked)[0] == 200 and found.to() == ["quick"]
        # Another name of the service has none, and another key may not use it.
        assert found.ask(*POST, CHAT, asked)[0] == 503
        found.tell("set server quick/gw--quick state maint")
        assert found.ask(*POST, KEY, asked)[0] == 503
        found.tell("set server chat/gw--chat state ready")
        assert found.ask(*POST, KEY, asked)[0] == 200 and found.to() == ["chat"]


def test_rights_change_without_a_reload(tmp_path):
    def change(found, services):
        entry = {"name": "quick-only", "sha256": [hashlib.sha256(QUICK.encode()).hexdigest()], "services": services}
        where = {"directory": str(found.directory / "maps"), "socket": found.paths["socket"], "group": "root"}
        return run_module("gateway_keys", clients=[entry], **where)

    with many(tmp_path) as found:
        assert found.ask(*POST, QUICK, body_of("next"))[0] == 404
        assert change(found, ["quick", "next"])["changed_clients"] == ["quick-only"]
        assert found.ask(*POST, QUICK, body_of("next"))[0] == 200
        assert not change(found, ["next", "quick"])["changed"]
        change(found, ["next"])
        assert found.ask(*POST, QUICK, body_of("quick"))[0] == 404
        change(found, ["*"])
        assert found.ask(*POST, QUICK, body_of("quick"))[0] == 200


def test_keys_change_at_a_gateway_that_an_earlier_release_set_up(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        config = found.directory / "haproxy.cfg"
        lines = [line for line in config.read_text().splitlines() if "rights.map" not in line and "may:" not in line]
        config.write_text("\n".join([*lines, ""]))
        (found.directory / "maps/rights.map").unlink()
        found.reload()
        entry = {"name": "bob", "sha256": [hashlib.sha256(QUICK.encode()).hexdigest()]}
        where = {"directory": str(found.directory / "maps"), "socket": found.paths["socket"], "group": "root"}
        done = run_module("gateway_keys", clients=[entry], **where)
        assert (done["running"], done["added"], done["removed"]) == (True, ["bob"], ["alice"])
        assert [found.ask("GET", "/v1/models", key)[0] for key in (KEY, QUICK)] == [401, 200]


def test_a_key_has_its_rights_at_a_service_with_a_port_of_its_own(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port], clients()) as found:
        assert found.ask("GET", "/v1/models", KEY)[0] == 200
        assert found.ask("GET", "/v1/models", CHAT)[0] == 200
        for path in ("/v1/chat/completions", "/v1/messages"):
            status, _headers, text = found.ask("POST", path, QUICK)
            assert (status, json.loads(text)["error"]["code"]) == (403, "model_not_allowed")


def test_a_gateway_without_keys_has_many_models_too(tmp_path):
    with many(tmp_path, options={"open": True, "clients": {}}) as found:
        assert found.ask(*POST, None, body_of("quick"))[0] == 200 and found.to() == ["quick"]
        assert found.ask(*POST, None, body_of("gpt-5"))[0] == 404
        assert len(json.loads(found.ask("GET", "/v1/models")[2])["data"]) == 5


def test_a_client_that_sends_its_body_slowly_is_served(one):
    body = body_of("quick")
    head = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: gw",
        f"Authorization: Bearer {KEY}",
        f"Content-Length: {len(body)}",
    ]
    with socket.create_connection(("127.0.0.1", one.port), timeout=HANGS) as connection:
        connection.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode())
        for each in range(0, len(body), 20):
            connection.sendall(body[each : each + 20])
            time.sleep(0.05)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert one.to() == ["quick"]


def test_the_log_names_the_model_and_no_other_part_of_the_body(one):
    one.ask(*POST, KEY, body_of("quick", secret="secret-in-a-body"))
    until(lambda: 'service=quick server=gw--quick model="quick" method=POST' in one.log.read_text())
    assert "secret-in-a-body" not in one.log.read_text()
