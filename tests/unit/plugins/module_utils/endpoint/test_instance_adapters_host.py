# SPDX-License-Identifier: GPL-3.0-or-later
"""instance_adapters in its own process, with an engine behind the role's middleware and a systemctl of the test."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
import yaml

from tests.fakes.adapter_engine import adapter_engine
from tests.fakes.gateways import until
from tests.fakes.vllm import self_signed
from tests.fakes.wheelhouse import run_module

KEY = "s3cret-of-chat"
UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A directory with the files of the instance chat, and with what systemctl says of its unit in ``active``."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(f'#!/bin/sh\necho "ActiveState=$(cat {tmp_path}/active)"\n')
    (tmp_path / "bin/systemctl").chmod(0o755)
    (tmp_path / "active").write_text("active")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "chat.env").write_text(f"{UPDATING}=1\nOPERATOR_GUARD=1\n")
    return tmp_path


@pytest.fixture
def engine(host):
    """An engine with two adapters."""
    with adapter_engine(host / "run/chat", {"sql": "/lora/sql-1", "old": "/lora/old"}) as found:
        yield found


def configure(host, port, adapters, **more):
    """Write the configuration of the instance; return its adapters in the form of lora-modules."""
    entries = [f"{name}={path}" for name, path in adapters.items()]
    config = {"host": "127.0.0.1", "port": port, "model": "/srv/models/base", "lora-modules": entries, **more}
    (host / "chat.yaml").write_text(yaml.safe_dump(config))
    return entries


def run(host, engine, adapters, port=None, **arguments):
    """Have the engine get adapters; return the result of the module."""
    entries = configure(host, engine.port if engine else port, adapters)
    arguments = {"adapters": entries, "config_dir": str(host), "run_dir": str(host / "run"), **arguments}
    return run_module("instance_adapters", instance="chat", **arguments)


def applied(host):
    """Return whether the installed configuration is noted as the one that the engine has."""
    note = host / "run/chat/adapters"
    return note.exists() and note.read_text().strip() == hashlib.sha256((host / "chat.yaml").read_bytes()).hexdigest()


def left(host):
    """Return what lies in the instance's directory beside the mark of the middleware."""
    return sorted(path.name for path in (host / "run/chat").iterdir() if path.name != "ready")


def test_the_engine_gets_the_adapters_of_its_configuration(host, engine):
    result = run(host, engine, {"sql": "/lora/sql-2", "new": "/lora/new"})
    assert (result["rc"], result["changed"], result["asked"]) == (0, True, True), result
    assert (result["loaded"], result["replaced"], result["unloaded"]) == (["new"], ["sql"], ["old"])
    assert engine.adapters == {"new": "/lora/new", "sql": "/lora/sql-2"}
    # What can fail comes first, and nothing else is asked.
    assert engine.asked == [
        ("load", "new", "/lora/new"),
        ("unload", "sql", None),
        ("load", "sql", "/lora/sql-2"),
        ("unload", "old", None),
    ]
    assert applied(host) and left(host) == ["adapters"]
    assert (host / "run/chat/adapters").stat().st_mode & 0o777 == 0o644


def test_a_second_run_changes_nothing(host, engine):
    wanted = dict(engine.adapters)
    result = run(host, engine, wanted)
    assert (result["changed"], engine.asked, engine.adapters) == (False, [], wanted)
    assert applied(host) and left(host) == ["adapters"]


def test_the_last_adapter_goes_and_the_first_one_comes(host, engine):
    assert run(host, engine, {})["unloaded"] == ["old", "sql"] and engine.adapters == {}
    assert run(host, engine, {"a": "/a"})["loaded"] == ["a"] and engine.adapters == {"a": "/a"}


def test_check_mode_says_the_same_and_changes_nothing(host, engine):
    before = dict(engine.adapters)
    configure(host, engine.port, before)
    # The file is the old one in check mode.
    result = run_module(
        "instance_adapters", instance="chat", adapters=["sql=/lora/sql-2", "new=/n"], config_dir=str(host),
        run_dir=str(host / "run"), _ansible_check_mode=True,
    )  # fmt: skip
    assert result["changed"]
    assert (result["loaded"], result["replaced"], result["unloaded"]) == (["new"], ["sql"], ["old"])
    assert (engine.adapters, engine.asked, left(host)) == (before, [], [])
    assert not run(host, engine, before, _ansible_check_mode=True)["changed"] and left(host) == []


@pytest.mark.parametrize("state", ["inactive", "activating", "deactivating", "failed"])
def test_an_instance_that_does_not_run_is_not_asked(host, engine, state):
    (host / "active").write_text(state)
    result = run(host, engine, {"a": "/a"})
    assert (result["changed"], result["asked"], engine.asked, left(host)) == (False, False, [], [])


def test_the_key_is_sent_and_never_shown(host, engine):
    (host / "chat.secrets").write_text(f"VLLM_API_KEY={KEY}\n")
    engine.key, engine.broken = KEY, {"/a": f"no such adapter for {KEY}"}
    result = run(host, engine, {"a": "/a"})
    assert "no such adapter for ********" in result["msg"]
    assert KEY not in json.dumps(result)
    engine.broken = {}
    assert run(host, engine, {"a": "/a"})["rc"] == 0
    engine.key = "another"
    assert "GET /v1/models answered 401: Unauthorized" in run(host, engine, {"b": "/b"})["msg"]


def failure(host, engine, adapters, **arguments):
    """Return the message of a run that fails."""
    result = run(host, engine, adapters, **arguments)
    assert result.get("failed") and not applied(host), result
    assert [name for name in left(host) if name != "adapters"] == []
    message = result["msg"]
    assert f"{os.uname().nodename}: instance chat: " in message
    return message


def test_a_new_adapter_that_cannot_be_loaded_leaves_the_engine_as_it_was(host, engine):
    engine.broken, before = {"/bad": "rank 64 is greater than max_lora_rank 16"}, dict(engine.adapters)
    message = failure(host, engine, {"bad": "/bad", "sql": "/lora/sql-2"})
    assert engine.adapters == before
    expected = "adapter bad (/bad): POST /v1/load_lora_adapter answered 500: rank 64 is greater than max_lora_rank 16. "
    assert expected in message
    assert "The engine has the adapters sql (/lora/sql-1), old (/lora/old). " in message
    assert f"{host}/chat.yaml has the new ones" in message and "run site.yml again, which restarts it" in message


def test_a_replacement_that_cannot_be_loaded_brings_the_former_one_back(host, engine):
    engine.broken, before = {"/bad": "no"}, dict(engine.adapters)
    message = failure(host, engine, {"sql": "/bad", "old": "/lora/old"})
    assert engine.adapters == before and "answered 500: no. The former one is loaded again. " in message
    engine.broken = {"/bad": "no", "/lora/sql-1": "gone"}
    message = failure(host, engine, {"sql": "/bad", "old": "/lora/old"})
    assert "get status 404: adapter sql (/lora/sql-1): POST /v1/load_lora_adapter answered 500: gone" in message


def test_an_engine_that_hangs_ends_the_run_at_its_deadline(host, engine):
    engine.hangs, began = True, time.monotonic()
    message = failure(host, engine, {"new": "/n", "sql": "/lora/sql-1", "old": "/lora/old"}, timeout=2)
    assert "adapter new (/n): POST /v1/load_lora_adapter failed: no answer within " in message
    assert time.monotonic() - began < 30


def test_what_was_loaded_in_the_meantime_is_reported(host, engine):
    """Another program loads the adapter between the list and the request."""
    cards = engine.cards
    engine.cards = lambda: [card for card in cards() if card["id"] != "sql"]
    message = failure(host, engine, {"sql": "/lora/sql-1", "old": "/lora/old"})
    assert "answered 400: The lora adapter 'sql' has already been loaded." in message


def test_what_was_unloaded_in_the_meantime_is_reported(host, engine):
    cards = engine.cards
    engine.cards = lambda: [*cards(), {"id": "ghost", "root": "/g", "parent": "base"}]
    message = failure(host, engine, dict(engine.adapters))
    assert "adapter ghost (/g): POST /v1/unload_lora_adapter answered 404: The lora adapter 'ghost' cannot" in message


def test_an_engine_that_accepts_and_does_nothing_is_found_out(host, engine):
    engine.forgets = True
    message = failure(host, engine, {**engine.adapters, "new": "/n"})
    assert "after it has accepted all changes; expected sql (/lora/sql-1), old (/lora/old), new (/n)" in message


def test_an_engine_without_the_endpoints_says_so(host, engine):
    engine.closed = True
    assert 'answered 404: {"detail":"Not Found"}' in failure(host, engine, {**engine.adapters, "new": "/n"})


def test_nothing_listens(host):
    (host / "run/chat").mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        message = failure(host, None, {"a": "/a"}, port=free.getsockname()[1])
    assert "GET /v1/models failed: connection refused" in message and "has is unknown" in message


def test_a_unit_without_its_directory(host):
    assert "No such file or directory" in run(host, None, {"a": "/a"}, port=1)["msg"]


def test_a_list_that_is_not_vllm_s_is_refused(host, engine):
    engine.cards = lambda: [{"id": "x", "parent": "base"}]
    assert "its list of models is not that of vLLM" in failure(host, engine, {"a": "/a"})
    assert engine.asked == []


def test_a_file_that_somebody_has_changed_is_not_claimed(host, engine):
    configure(host, engine.port, {"b": "/b"})
    result = run_module(
        "instance_adapters", instance="chat", adapters=["a=/a"], config_dir=str(host), run_dir=str(host / "run")
    )
    assert "has the adapters b (/b), expected a (/a); it was changed during this run" in result["msg"]
    assert engine.asked == [] and not applied(host)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"instance": "../chat"}, "instance: found '../chat', expected a name such as chat"),
        ({"timeout": 0}, "timeout: found 0, expected more than 0"),
        ({"adapters": ["sql"]}, "found 'sql', expected a name and a path"),
        ({"instance": "other"}, "other.yaml is not there; run playbooks/site.yml"),
    ],
)
def test_bad_options_are_refused(host, engine, arguments, message):
    configure(host, engine.port, {})
    options = {"instance": "chat", "config_dir": str(host), "run_dir": str(host / "run"), **arguments}
    result = run_module("instance_adapters", **options)
    assert message in result["msg"] and engine.asked == []


def ask(engine, model, path="/v1/chat/completions", **headers):
    """Return status and body of a request of a client."""
    data = json.dumps({"model": model, "lora_name": model, "lora_path": "/evil"}).encode()
    headers = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{engine.port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


def test_clients_cannot_load_adapters_before_while_and_after(host, engine):
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    for path in (load, unload):
        assert ask(engine, "sql", path) == (404, "only operators on the host may call this\n")
    engine.takes, found = 1.0, []
    worker = threading.Thread(target=lambda: found.append(run(host, engine, {**engine.adapters, "new": "/n"})))
    worker.start()
    while not (host / "run/chat/operator").exists():
        time.sleep(0.01)
    while worker.is_alive():
        for header in ("", "0" * 64):
            assert ask(engine, "evil", load, **{"operator-token": header})[0] == 404
    worker.join()
    assert found[0]["rc"] == 0 and "evil" not in engine.adapters
    assert ask(engine, "sql", unload)[0] == 404 and "sql" in engine.adapters


def test_no_request_is_lost_while_an_adapter_is_replaced(host, engine):
    """Requests that run keep the former adapter, new ones wait for the other one: none gets 404."""
    engine.takes, engine.chat_takes, answers, stop = 1.0, 0.3, [], threading.Event()

    def client():
        while not stop.is_set():
            answers.append(ask(engine, "sql"))

    workers = [threading.Thread(target=client) for _number in range(6)]
    for each in workers:
        each.start()
    until(lambda: answers)
    result = run(host, engine, {**engine.adapters, "sql": "/lora/sql-2"})
    until(lambda: "/lora/sql-2" in answers[-1][1])
    stop.set()
    for each in workers:
        each.join()
    assert result["replaced"] == ["sql"], result
    assert {status for status, _body in answers} == {200}
    assert {json.loads(body)["adapter"] for _status, body in answers} == {"/lora/sql-1", "/lora/sql-2"}


def test_without_the_wait_requests_would_be_lost(engine):
    """The engine of the tests refuses them as vLLM does, or the test before this one would show nothing."""
    engine.adapters.pop("sql")
    status, body = ask(engine, "sql")
    assert status == 404 and "does not exist" in body


def test_tls_is_used_where_the_instance_has_it(host, tmp_path):
    _context, certificate = self_signed(tmp_path)
    key = str(tmp_path / "key.pem")
    with adapter_engine(host / "run/chat", {}, ssl_certfile=certificate, ssl_keyfile=key) as engine:
        entries = configure(host, engine.port, {"a": "/a"}, **{"ssl-certfile": certificate})
        result = run_module(
            "instance_adapters", instance="chat", adapters=entries, config_dir=str(host), run_dir=str(host / "run")
        )
        assert result["loaded"] == ["a"], result


def test_a_token_of_a_killed_run_opens_nothing_afterwards(host, engine):
    (host / "run/chat/operator").write_text("f" * 64)
    with contextlib.suppress(AssertionError):
        run(host, engine, dict(engine.adapters))
    assert not (host / "run/chat/operator").exists()
