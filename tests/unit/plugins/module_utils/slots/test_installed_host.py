# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host tells of the instances that are installed on it."""

from __future__ import annotations

import hashlib
import os
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.installed_host import Host, turn_of

from tests.fakes.systemd import FakeInstances


@pytest.fixture
def there(tmp_path):
    return FakeInstances(tmp_path / "root")


@pytest.fixture
def host(there):
    return Host(f"{there.root}/", lambda engine, ref: f"{engine}:{ref}")


def test_the_unit_of_its_own_decides_how_an_instance_runs(there, host):
    there.template("chat")
    assert (host.names(), host.kind("chat")) == (["chat"], "template")
    there.quadlet("registry/vllm:1", "chat")
    assert host.kind("chat") == "quadlet"
    there.unit("podman", "registry/vllm:1", "chat")
    assert host.kind("chat") == "unit"
    image = host.state("chat").image
    assert (image.engine, image.id) == ("podman", "podman:registry/vllm:1")


def test_what_an_installed_instance_lacks_is_named_by_its_path(there, host):
    there.template("chat")
    assert host.missing("chat", host.state("chat")) == []
    there.at("/etc/vllm/chat.env").unlink()
    there.at("/var/lib/vllm/chat/model").unlink()
    assert host.missing("chat", host.state("chat")) == ["/etc/vllm/chat.env", "/var/lib/vllm/chat/model"]


@pytest.mark.parametrize("used", [True, False])
def test_the_metadata_of_vllm_belong_to_the_instances_whose_environment_needs_them(there, host, used):
    there.template("chat")
    metadata = "/var/lib/vllm/chat/metadata/vllm.dist-info/METADATA"
    there.write(metadata, "Name: vllm\n")
    path = f"/usr/local/lib/vllm{':/var/lib/vllm/chat/metadata' if used else ''}"
    there.write("/etc/vllm/chat.env", f"PYTHONPATH={path}\n")
    assert (metadata in [entry.path for entry in host.state("chat").files]) == used
    there.at(metadata).unlink()
    assert host.missing("chat", host.state("chat")) == ([metadata] if used else [])


def test_a_configuration_that_the_engine_has_taken_over_is_no_change(there, host):
    there.template("chat")
    config = there.at("/etc/vllm/chat.yaml")
    time.sleep(0.05)  # the clock of a file system ticks every few milliseconds
    config.write_text(config.read_text() + "max-num-seqs: 4\n")
    newest = host.changed("chat", host.state("chat"))
    assert newest[1] == "/etc/vllm/chat.yaml"
    applied = there.at("/run/vllm/chat/adapters")
    applied.parent.mkdir(parents=True)
    applied.write_text(hashlib.sha256(config.read_bytes()).hexdigest())
    assert host.changed("chat", host.state("chat")) < newest
    # An engine owns the directory, and has not said what it has taken over.
    if os.geteuid() == 0:
        os.chown(applied, 65534, 65534)
        assert host.changed("chat", host.state("chat")) == newest


@pytest.mark.parametrize(("text", "turn"), [('{"id": 1}', {"id": 1}), ("[]", None), ("{", None), (None, None)])
def test_the_mark_of_a_rollout_is_a_mapping_or_none(there, host, text, turn):
    if text is not None:
        there.write("/var/lib/vllm/rollout.json", text)
    assert turn_of(host) == turn
