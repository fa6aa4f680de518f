# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of all instances of a host: each once, in the order in which they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.instance_files import (
    instance_entries,
    instance_files,
)

TOP = Path(__file__).resolve().parents[5]
VENV = {"instance": "chat", "runtime": "venv"}
CONTAINER = {"instance": "chat", "runtime": "container"}


def test_what_instances_share_is_written_once_and_concerns_them_all():
    plans = {
        "a": {**VENV, "instance": "a"},
        "b": {**VENV, "instance": "b"},
        "c": {**CONTAINER, "instance": "c"},
    }
    files = instance_files(plans, {"user": "vllm"})
    paths = [entry["path"] for entry in files]
    assert len(paths) == len(set(paths)) and paths[-1] == "/etc/systemd/system/vllm@.service"
    assert files[-1]["restarts"] == ["a", "b"]
    own = next(entry for entry in files if entry["path"] == "/etc/systemd/system/vllm@c.service")
    assert own["restarts"] == ["c"] and own["plan"] is plans["c"]


def test_the_unit_that_instances_share_lets_the_slowest_one_start():
    slow, own = ({"env": {"VLLM_ENGINE_READY_TIMEOUT_S": seconds}} for seconds in ("3600", "7200"))
    plans = {"a": VENV, "b": {**VENV, "instance": "b", **slow}, "c": {**CONTAINER, "instance": "c", **own}}
    files = instance_files(plans, {"user": "vllm"})
    found = {entry["path"]: entry["start_seconds"] for entry in files if "start_seconds" in entry}
    assert found == {"/etc/systemd/system/vllm@.service": 3900, "/etc/systemd/system/vllm@c.service": 7500}


EXTRAS = {"residents": "gpu0", "preload": True}


def test_a_build_of_another_name_gets_a_distribution_that_vllm_finds():
    plan = {**VENV, "group": {"role": "worker"}, "venv": {"distribution": "0.32.0+cpu"}, "weights": None}
    entries = instance_entries({"chat": plan}, {"user": "vllm"})
    paths = [entry["path"] for entry in entries]
    metadata = "/var/lib/vllm/chat/metadata/vllm.dist-info"
    # Directories come before what is in them, the program before the unit that starts it.
    assert paths.index("/var/lib/vllm/chat/metadata") < paths.index(metadata) < paths.index(f"{metadata}/METADATA")
    assert paths.index("/usr/local/lib/vllm-group.py") < paths.index("/etc/systemd/system/vllm-group@.service")
    alone = instance_entries({"chat": {**VENV, "weights": None}}, {"user": "vllm"})
    assert not [entry for entry in alone if "group" in entry["path"]]


def extra(kind):
    return [f"/etc/systemd/system/vllm-{kind}@.service", f"/etc/systemd/system/vllm@chat.service.d/{kind}.conf"]


@pytest.mark.parametrize("kind", EXTRAS)
def test_the_program_of_chips_comes_before_its_unit(kind):
    paths = [
        entry["path"]
        for entry in instance_entries({"chat": {**VENV, kind: EXTRAS[kind], "weights": None}}, {"user": "vllm"})
    ]
    program = f"/usr/local/lib/vllm-{kind}.py"
    assert paths.index(program) < paths.index(extra(kind)[1]) < paths.index(extra(kind)[0])
    alone = [entry["path"] for entry in instance_entries({"chat": {**VENV, "weights": None}}, {"user": "vllm"})]
    assert program not in alone and not {*extra(kind)} & {*alone}


def test_every_directory_comes_before_what_lies_in_it():
    plan = {"instance": "chat", "runtime": "venv", "container": None, "weights": "/srv/models/a@1"}
    entries = instance_entries({"chat": plan}, {"user": "vllm"})
    paths = [entry["path"] for entry in entries]
    assert [entry["path"] for entry in entries if entry.get("secret")] == ["/etc/vllm/chat.secrets"]
    directories = [entry["path"] for entry in entries if entry.get("state") == "directory"]
    own = [path for path in directories if not path.startswith(("/usr/local/lib/vllm-", "/usr/local/lib/vllm/"))]
    assert own == ["/etc/vllm", "/usr/local/lib/vllm", "/etc/systemd/system", "/var/lib/vllm/chat"]
    for directory in directories:
        assert all(paths.index(directory) < paths.index(path) for path in paths if path.startswith(f"{directory}/"))
    # The weights concern the instance; the programs are no reason to restart one.
    restarts = {entry["path"]: list(entry["restarts"]) for entry in entries}
    assert restarts["/var/lib/vllm/chat/model"] == ["chat"]
    assert restarts["/usr/local/lib/vllm-wait-ready.py"] == restarts["/usr/local/lib/vllm-drain.py"] == []
    assert all(restarts[path] == [] for path in paths if path.startswith("/usr/local/lib/vllm/"))
    assert paths.index("/usr/local/lib/vllm/availability.py") < paths.index("/etc/vllm/chat.yaml")


def test_what_roles_select_from_the_files_is_there():
    """A key that an entry lacks fails where the variable is used: on hosts with containers only, for example."""
    texts = [path.read_text(encoding="utf-8") for path in TOP.glob("roles/*/*/*.yml")]
    uses = [use for text in texts for use in re.findall(r"\bvllm_files\b((?: *\|[^|}]+)+)", text)]
    names = {name for use in uses for name in re.findall(r"(?:selectattr|rejectattr|attribute=)\(?'(\w+)'", use)}
    names |= {name for use in uses for name in re.findall(r"attribute='(\w+)'", use)}
    files = instance_files({"a": {**CONTAINER, "instance": "a"}, "b": {**VENV, "instance": "b"}}, {"user": "vllm"})
    assert names >= {"path", "template", "name"}
    assert [name for name in sorted(names) if any(name not in entry for entry in files)] == []
