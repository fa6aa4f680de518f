# SPDX-License-Identifier: GPL-3.0-or-later
"""Which program holds the weights after a change of a plan: real plans, the real program, a stand-in for vLLM."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.instance import preload_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_manifest

from tests.unit.plugins.plugin_utils.planning.test_preload import DRAFT, EAGLE, MODEL, pinned, plan, with_other_bytes

PARENT = "/run/vllm-preload"
COLLECTIONS = Path(preload_host.__file__).parents[6]
# A socket for each part of the model, and for each of a draft.
VLLM = """#!/bin/sh
ranks=$(sed -n 's/^tensor-parallel-size: //p' "$3")
mkdir -p "$5"; echo $$ > $RUNTIME_DIRECTORY/vllm
for rank in $(seq "${ranks:-1}"); do
  touch "$5/vllm_weight_cache_$rank.sock" "$5/vllm_weight_cache_$rank.sock.lock"
  if grep -q speculative-config "$3"; then touch "$5/vllm_weight_cache_${rank}_draft.sock"; fi
done
exec sleep 300
"""
# As vllm-preload.py, at other places and with a shorter pause.
PROGRAM = """
import sys
sys.path.insert(0, {collections!r})
from ansible_collections.baremetal.inference.plugins.module_utils.instance import preload, preload_host
preload.PARENT, preload_host.CONFIG_DIR, preload_host._PAUSE_SECONDS = {parent!r}, {etc!r}, 0.05
raise SystemExit(preload_host.run(sys.argv[1:]))
"""
# systemctl show and restart of the unit, which is ready as soon as its program says so.
SYSTEMCTL = """#!{python}
import os, pathlib, signal, socket, subprocess, sys, time
top = pathlib.Path({top!r})
pid, status = top / "pid", top / "status"
def lives():
    try:
        return (pathlib.Path("/proc") / pid.read_text() / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
if sys.argv[1] == "show":
    print("ActiveState=" + ("active" if lives() else "inactive"))
    print("StatusText=" + (status.read_text() if lives() else ""))
else:
    if lives():
        os.kill(int(pid.read_text()), signal.SIGTERM)
        while lives():
            time.sleep(0.02)
    (top / "notify").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(top / "notify"))
        listener.settimeout(60)
        env = dict(os.environ, NOTIFY_SOCKET=str(top / "notify"), RUNTIME_DIRECTORY=str(top / "run"))
        words = [sys.executable, str(top / "program.py"), "serve", "chat"]
        pid.write_text(str(subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid))
        status.write_text(listener.recv(1000).decode().partition("STATUS=")[2])
"""


class Host:
    """A host with one instance, whose engine starts anew with ``start``."""

    def __init__(self, top):
        self.top, self.parent = top, top / "run"
        for name in ("etc", "run", "bin"):
            (top / name).mkdir()
        given = {"collections": str(COLLECTIONS), "parent": str(self.parent), "etc": str(top / "etc")}
        (top / "program.py").write_text(PROGRAM.format(**given))
        systemctl = SYSTEMCTL.format(python=sys.executable, top=str(top))
        for name, text in (("vllm", VLLM), ("systemctl", systemctl)):
            (top / "bin" / name).write_text(text)
            (top / "bin" / name).chmod(0o755)

    def write(self, config):
        """Write the configuration of the instance, as a rollout does before it restarts the engine."""
        text = yaml.safe_dump(config, width=2**31).replace(PARENT, str(self.parent))
        (self.top / "etc/chat.yaml").write_text(text)

    def start(self):
        """Do what precedes a start of the engine; return the process that holds the weights then, and what was said."""
        env = {**os.environ, "PATH": f"{self.top / 'bin'}:/usr/bin:/bin"}
        words = [sys.executable, str(self.top / "program.py"), "settle", "chat"]
        said = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=120).stdout
        (directory,) = (path for path in self.parent.iterdir() if path.is_dir())
        assert str(directory) in (self.top / "etc/chat.yaml").read_text() and any(directory.glob("*.sock"))
        return int((self.parent / "vllm").read_text()), said

    def lives(self, pid):
        """Return whether a process runs."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def stop(self):
        """End the program and its process, as a stop of the unit does."""
        pid = int((self.top / "pid").read_text())
        if self.lives(pid):
            os.kill(pid, signal.SIGTERM)
        self.wait_for_end(pid)

    def wait_for_end(self, pid):
        """Wait until a process has ended."""
        until = time.monotonic() + 60
        while self.lives(pid):
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture
def host(tmp_path):
    found = Host(tmp_path)
    yield found
    found.stop()


def test_an_engine_without_a_change_finds_the_weights_where_they_were(host):
    host.write(plan()["config"])
    first, said = host.start()
    assert " after " in said
    host.write(plan({"port": 9000, "args": {"max-logprobs": 5}})["config"])
    time.sleep(0.3)
    assert host.start() == (first, "The weights are on the chips\n")


CHANGES = {
    "KV cache in FP8": ({"args": {"kv-cache-dtype": "fp8"}}, {}),
    "two chips": ({"args": {"tensor-parallel-size": 2}}, {}),
    "another release": ({}, {"release": "0.32.0"}),
    "a variable": ({"env": {"VLLM_USE_DEEP_GEMM": "0"}}, {}),
    "a draft": ({"args": {"speculative-config": EAGLE}}, {"draft": {}}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_the_old_weights_are_gone_before_the_engine_starts(host, tmp_path, change):
    requested, more = CHANGES[change]
    if "draft" in more:
        more = pinned(tmp_path, DRAFT)
    host.write(plan()["config"])
    first, _said = host.start()
    host.write(plan(requested, **more)["config"])
    second, said = host.start()
    assert not host.lives(first) and host.lives(second) and " after " in said
    assert host.start() == (second, "The weights are on the chips\n")


def test_the_old_weights_go_by_themselves(host, tmp_path):
    """Also where the engine starts later, and where nothing but the bytes of the draft has changed."""
    requested = {"args": {"speculative-config": EAGLE}}
    host.write(plan(requested, **pinned(tmp_path / "1", DRAFT))["config"])
    first, _said = host.start()
    host.write(plan(requested, **pinned(tmp_path / "2", DRAFT, files=with_other_bytes()))["config"])
    host.wait_for_end(first)
    host.wait_for_end(int((host.top / "pid").read_text()))
    assert not any(path.is_dir() for path in host.parent.iterdir())
    assert host.start()[0] != first


def test_a_slot_of_an_earlier_release_finds_its_weights(host):
    """Releases before named the directory after the name and the files of the model alone."""
    files = {path: file["sha256"] for path, file in load_manifest(MODEL)["files"].items()}
    text = json.dumps(["chat", files], sort_keys=True)
    old = {"socket_dir": f"{PARENT}/{hashlib.sha256(text.encode()).hexdigest()[:24]}"}
    host.write(plan()["config"])
    first, _said = host.start()
    host.write({**plan()["config"], "model-loader-extra-config": json.dumps(old)})
    second, _said = host.start()
    assert not host.lives(first) and host.start() == (second, "The weights are on the chips\n")
    host.write(plan()["config"])
    assert host.start()[0] != second and not host.lives(second)
