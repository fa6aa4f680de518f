# SPDX-License-Identifier: GPL-3.0-or-later
"""A real vLLM on this CPU whose adapters are loaded, replaced and unloaded while it answers."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.fakes.wheelhouse import run_module
from tests.integration.real_engines import real_engines
from tests.integration.tiny_adapters import FIRST, PROMPT, RANK, SECOND, adapter
from tests.parity.conftest import fetched
from tools.tiny_models.build import write
from tools.tiny_models.families import FAMILIES
from tools.vllm.fetch_vllm_release import environment

pytestmark = pytest.mark.long
GUARDED = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "OPERATOR_GUARD": "1"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """An engine with the adapter sql; ``paths`` are those of all adapters."""
    top = tmp_path_factory.mktemp("adapters")
    write(FAMILIES["llama"](), top / "model")
    paths = {"first": adapter(top / "first", 0, 1), "second": adapter(top / "second", 1, 2)}
    paths["large"] = adapter(top / "large", 2, 3, rank=2 * RANK)
    (top / "bin").mkdir()
    (top / "bin/systemctl").write_text("#!/bin/sh\necho ActiveState=active\n")
    (top / "bin/systemctl").chmod(0o755)
    arguments = ["--enable-lora", "--max-loras", "2", "--max-lora-rank", RANK, "--max-num-seqs", "8"]
    arguments += ["--max-model-len", "2048", "--lora-modules", f"sql={paths['first']}"]
    with real_engines(fetched(environment), top, top / "model", 1, *arguments, env=GUARDED) as (engine,):
        engine.top, engine.paths = top, paths
        yield engine


def ask(site, model, path="/v1/completions", **more):
    """Return status and text of an answer."""
    body = {"model": model, "prompt": PROMPT, "max_tokens": 3, "temperature": 0, "ignore_eos": True, **more}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{site.port}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.loads(answer.read())["choices"][0]["text"]
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode()


def change(site, monkeypatch, **adapters):
    """Have the engine get adapters, by the names of their paths; return the result of the module."""
    monkeypatch.setenv("PATH", str(site.top / "bin"), prepend=os.pathsep)
    entries = [f"{name}={site.paths[path]}" for name, path in adapters.items()]
    lines = "".join(f"- {entry}\n" for entry in entries)
    config = f"host: 127.0.0.1\nport: {site.port}\nmodel: m\n" + (f"lora-modules:\n{lines}" if lines else "")
    # The directory of the engine is that of an instance called run.
    (site.directory / "run.yaml").write_text(config)
    (site.directory / "run.env").touch()
    places = {"config_dir": str(site.directory), "run_dir": str(site.directory)}
    return run_module("instance_adapters", instance="run", adapters=entries, **places)


def test_clients_cannot_change_adapters(site):
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        status, text = ask(site, "sql", path, lora_name="sql", lora_path=site.paths["second"])
        assert (status, text) == (404, "only operators on the host may call this\n")
    assert ask(site, "sql") == (200, FIRST)
    assert ask(site, "m") == (200, "The fleet is")


def test_adapters_come_and_go_without_a_restart(site, monkeypatch):
    pid = site.process.pid
    result = change(site, monkeypatch, sql="first", new="second")
    assert result.get("loaded") == ["new"], result
    assert (ask(site, "sql"), ask(site, "new")) == ((200, FIRST), (200, SECOND))
    result = change(site, monkeypatch, sql="first")
    assert result.get("unloaded") == ["new"], result
    assert ask(site, "new")[0] == 404 and ask(site, "sql") == (200, FIRST)
    assert not change(site, monkeypatch, sql="first")["changed"]
    assert site.process.pid == pid and site.process.poll() is None


def test_an_adapter_is_replaced_under_load_and_no_request_is_lost(site, monkeypatch):
    change(site, monkeypatch, sql="first")
    answers, stop = [], threading.Event()

    def client():
        while not stop.is_set():
            answers.append(ask(site, "sql"))

    workers = [threading.Thread(target=client) for _number in range(4)]
    for each in workers:
        each.start()
    time.sleep(3)
    result = change(site, monkeypatch, sql="second")
    time.sleep(3)
    stop.set()
    for each in workers:
        each.join()
    assert result.get("replaced") == ["sql"], result
    # Each answer is that of one adapter, from its first token to its last.
    assert set(answers) == {(200, FIRST), (200, SECOND)}
    assert ask(site, "sql") == (200, SECOND)
    # Back again: what the prefix cache has of the first one is right.
    change(site, monkeypatch, sql="first")
    assert ask(site, "sql") == (200, FIRST)


def test_an_adapter_that_vllm_refuses_changes_nothing(site, monkeypatch):
    change(site, monkeypatch, sql="first")
    for adapters in ({"sql": "first", "bad": "large"}, {"sql": "large"}):
        message = change(site, monkeypatch, **adapters)["msg"]
        assert "POST /v1/load_lora_adapter answered" in message and "rank" in message
        assert f"The engine has the adapters sql ({site.paths['first']})." in message
        assert ask(site, "sql") == (200, FIRST) and ask(site, "bad")[0] == 404
