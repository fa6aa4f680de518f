# SPDX-License-Identifier: GPL-3.0-or-later
"""A state that release 0.7.0 kept comes back and serves: its command names the middleware of that release."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.modules import instance_slot

from tests.fakes.module_arguments import patch_module_args
from tests.fakes.programs import installed
from tests.fakes.systemd import FakeInstances, FakeSystemd

VENV, WEIGHTS = "/opt/vllm/0.32.0-cpu-aa", f"/srv/models/example/tiny/{'a' * 40}"
# As serve.j2 of 0.7.0 wrote it.
SERVE = """#!/bin/sh
#
# Ansible managed
#
# The middleware answers gateways while the unit starts and stops.
export AVAILABILITY_DIRECTORY=/run/vllm/chat
export PYTHONPATH="/usr/local/lib/vllm${PYTHONPATH:+:$PYTHONPATH}"
%sexec /opt/vllm/0.32.0-cpu-aa/bin/vllm serve --middleware availability.Availability %s"$@"
"""
ALONE = SERVE % ("", "")
DECODE = SERVE % (
    "# Only the router may say where the KV cache of a prompt is: on one of these hosts.\n"
    "export PREFILL_HOSTS='10.0.0.3'\n",
    "--middleware routed.Routed ",
)
# What vLLM does with --middleware, and three questions for the outermost class.
VLLM = f"""#!{sys.executable} -S
import asyncio, importlib, os, sys

async def app(scope, receive, send):
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b""}})

for place, word in enumerate(sys.argv):
    if word == "--middleware":
        module, name = sys.argv[place + 1].rsplit(".", 1)
        app = getattr(importlib.import_module(module), name)(app)

async def status(path, *headers, method="GET", body=b""):
    sent = []

    async def receive():
        return {{"type": "http.request", "body": body, "more_body": False}}

    async def send(message):
        sent.append(message)

    scope = {{"type": "http", "method": method, "path": path, "headers": list(headers)}}
    await app(scope, receive, send)
    return sent[0]["status"]

limited = (b"x-gateway-models", b"base")
print(asyncio.run(status("/health")))
open(os.environ["AVAILABILITY_DIRECTORY"] + "/ready", "w").close()
print(asyncio.run(status("/health")))
print(asyncio.run(status("/v1/chat/completions", limited, method="POST", body=b'{{"model": "other"}}')))
"""


def slot_of_070(there, serve):
    """Write what release 0.7.0 kept of an instance; return the name of the slot."""
    files = {
        "/etc/systemd/system/vllm@.service": ("[Service]\n", "0644"),
        "/etc/vllm/chat.env": ("A=1\n", "0640"),
        "/etc/vllm/chat.secrets": ("VLLM_API_KEY=s3cret-of-chat\n", "0600"),
        "/etc/vllm/chat.yaml": ("port: 8000\nmax-model-len: 1\n", "0640"),
        "/var/lib/vllm/chat/serve": (serve, "0755"),
    }
    owner = {"gid": os.getgid(), "uid": os.getuid()}
    entries = {
        path: {**owner, "mode": mode, "sha256": hashlib.sha256(text.encode()).hexdigest()}
        for path, (text, mode) in files.items()
    }
    parts = [[path, each["sha256"], each["mode"], each["uid"], each["gid"]] for path, each in entries.items()]
    digest = hashlib.sha256(json.dumps([sorted(parts), WEIGHTS, ""]).encode()).hexdigest()[:16]
    names = ("args", "env", "image", "model", "release", "revision", "runtime", "vllm_version")
    slot = {
        "digest": digest, "files": entries, "image": None, "kept_at": "2026-11-28T12:07:45Z", "kind": "template",
        "model": WEIGHTS, "plan": {**dict.fromkeys(names), "args": {}, "env": {}, "release": "0.32.0"},
        "record": {"tokens_per_second": 7.5}, "schema": 1, "stamped": True, "venv": VENV,
    }  # fmt: skip
    top = f"/var/lib/vllm/chat/slots/{digest}"
    for path, (text, _mode) in files.items():
        there.write(f"{top}/files{path}", text, 0o600)
    there.write(f"{top}/slot.json", json.dumps(slot, indent=1, sort_keys=True), 0o600)
    there.at(f"{top}/model").symlink_to(WEIGHTS)
    there.at("/var/lib/vllm/chat/slots/good").symlink_to(digest)
    return digest


def restore(there, monkeypatch, tmp_path):
    systemd, said, mask = FakeSystemd(tmp_path / "systemd.json"), io.StringIO(), os.umask(0o022)
    monkeypatch.setattr(AnsibleModule, "run_command", lambda _module, words, **_options: systemd(words))
    arguments = {"instance": "chat", "state": "restored", "root": str(there.root)}
    try:
        with patch_module_args(arguments), contextlib.redirect_stdout(said), pytest.raises(SystemExit):
            instance_slot.main()
    finally:
        os.umask(mask)
    return json.loads(said.getvalue())


@pytest.mark.parametrize("serve", [ALONE, DECODE], ids=["alone", "decode"])
def test_a_state_that_070_kept_comes_back_and_serves(tmp_path, monkeypatch, serve):
    there = FakeInstances(tmp_path / "root")
    # What a newer release has installed since.
    there.template(flag="2", venv="0.33.0-cpu-bb", revision="b" * 40)
    there.weights("a" * 40)
    there.venv("0.32.0-cpu-aa")
    digest = slot_of_070(there, serve)
    found = restore(there, monkeypatch, tmp_path)
    assert found.get("digest") == digest and found["changed"] and found["up"], found
    restored = there.at("/var/lib/vllm/chat/serve")
    assert restored.read_text() == serve

    there.write(f"{VENV}/bin/vllm", VLLM, 0o755)
    library, run = tmp_path / "lib", tmp_path / "run"
    run.mkdir()
    for name in ("availability", "routed"):
        installed(name, library)
    places = {"/usr/local/lib/vllm": library / "vllm", "/run/vllm/chat": run, "/opt": there.at("/opt")}
    text = serve
    for path, place in places.items():
        text = text.replace(path, str(place))
    restored.write_text(text)
    done = subprocess.run([restored], capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    assert (done.stdout.split(), done.stderr) == (["503", "200", "404"], "")
