# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that sends a byte now and then stops nobody: a timeout of a socket begins again with each of them."""

from __future__ import annotations

import ast
import contextlib
import threading
import time
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.containers import registry_host, registry_socket_host
from ansible_collections.baremetal.inference.plugins.module_utils.containers.oci_index import Image, OciError
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import admission_report_host, tool_host
from ansible_collections.baremetal.inference.plugins.modules import container_runtime_key
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation import files
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ironic import Ironic, IronicError

from tests.fakes.dripping import DRIPS, dripping
from tests.fakes.gateways import until
from tests.fakes.unix_relay import at_a_socket

ROOT = Path(__file__).resolve().parents[2]
# The readers of a head only.
HEADS = [name for name in DRIPS if name not in ("chunk", "trailers", "body")]


class EndError(Exception):
    """The end of a module."""


class KeyModule:
    """The module container_runtime_key, as far as its download needs it."""

    def __init__(self, url):
        self.params = {"url": url, "fingerprints": [], "timeout": 0.25, "http_agent": "test", "use_proxy": False}
        self.params["url_username"] = self.params["url_password"] = self.params["force_basic_auth"] = None
        self.tmpdir = "/tmp"

    def fail_json(self, msg, **_more):
        raise EndError(msg)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Let each deadline be short."""
    monkeypatch.setattr(registry_socket_host, "TIMEOUT", 0.25)
    monkeypatch.setattr(files, "_WHOLE", 0.25)
    monkeypatch.setattr(admission_report_host, "SECONDS", 0.25)


@contextlib.contextmanager
def ended():
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 8


def reading():
    """Return the threads of this process but those of the servers that drip."""
    own = ("(answer)", "(serve)", "(_pass_on)")
    return {thread for thread in threading.enumerate() if not thread.name.endswith(own)}


@contextlib.contextmanager
def nothing_left():
    """Nobody goes on reading what still drips."""
    before = reading()
    yield
    until(lambda: not reading() - before, 10)


@pytest.mark.parametrize("drip", HEADS)
def test_a_registry_that_drips_has_no_image(drip):
    with dripping(drip) as address, ended():
        assert registry_host.manifest_status(f"{address}/a/b:1", 0.25) is None


@pytest.mark.parametrize("drip", HEADS)
def test_a_registry_that_drips_is_pushed_nothing(drip):
    with dripping(drip) as address, at_a_socket(address) as path, ended(), nothing_left():
        registry = registry_socket_host.Registry(path)
        assert not registry.answers(0)
        with pytest.raises(OciError, match="no answer of a registry"):
            registry.digest_of(Image("/root", "a/b", "1", "sha256:1"))


@pytest.mark.parametrize("drip", DRIPS)
def test_a_key_that_drips_is_not_installed(drip):
    with dripping(drip) as address, ended(), pytest.raises(EndError):
        container_runtime_key.download_key(KeyModule(f"http://{address}/key"))


@pytest.mark.parametrize("drip", DRIPS)
def test_data_that_drip_are_not_kept(drip, tmp_path):
    with dripping(drip) as address, ended(), pytest.raises(files.EvaluationError, match="cannot be downloaded"):
        files.download("task", f"http://{address}/data", "0" * 64, str(tmp_path / "data"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("drip", DRIPS)
def test_an_ironic_that_drips_is_busy(drip):
    with dripping(drip) as address, ended(), nothing_left(), pytest.raises(IronicError, match="does not answer"):
        Ironic(f"http://{address}", "user", "password", timeout=0.25).nodes()


@pytest.mark.parametrize("drip", HEADS)
def test_who_took_the_port_for_metrics_holds_neither_the_check_nor_the_report(drip, tmp_path):
    with dripping(drip) as address, ended():
        host, _colon, port = address.partition(":")
        assert not tool_host.health(host, port)
        config = tmp_path / "haproxy.cfg"
        config.write_text(f"frontend gateway:status\n    bind {address}\n    filter lua.admission\n", encoding="utf-8")
        assert admission_report_host.read_admission(str(config)) == []


def test_each_program_that_asks_another_one_has_a_deadline():
    asking = {"open_url", "fetch_url", "urlopen", "HTTPConnection", "HTTPSConnection", "build_opener"}
    found = {}
    for path in sorted((ROOT / "plugins").rglob("*.py")):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        calls = [node.func for node in tree if isinstance(node, ast.Call)]
        names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
        if names & asking:
            found[str(path.relative_to(ROOT))] = bool(names & {"within", "finish_within", "WatchedResponse"})
    # These connections get a WatchedResponse as their class.
    assert found.pop("plugins/module_utils/transfer/connections.py") is False
    assert len(found) > 10
    assert [path for path, bounded in found.items() if not bounded] == []


def test_each_task_that_asks_another_host_has_a_deadline():
    names = ("ansible.builtin.get_url", "ansible.builtin.uri")
    found = []

    def visit(node, path):
        if isinstance(node, dict):
            if any(name in node for name in names):
                found.append((str(path), node.get("name"), node.get("timeout")))
            node = list(node.values())
        for item in node if isinstance(node, list) else ():
            visit(item, path)

    for path in [*ROOT.glob("roles/*/*/**/*.yml"), *ROOT.glob("playbooks/**/*.yml")]:
        if "molecule" not in path.parts:
            visit(yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader), path)
    assert len(found) > 7
    assert [each for each in found if not each[2]] == []
