# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of places: each path of the code is in it, and the reference page describes each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.removal.places import (
    EVERYTHING,
    HOST,
    SERVICES,
    Place,
    fixed_paths,
)

TOP = Path(__file__).resolve().parents[5]
PAGE = TOP / "docs/reference/what-lies-where.md"
SOURCES = ("roles/*/*/*", "plugins/modules/*.py", "plugins/action/*.py", "plugins/*_utils/**/*.py")
LITERAL = re.compile(r"(?<![\w.}/-])/(?:etc|var|opt|srv|usr/local|usr/share|run)/[\w.@{}%*-][\w.@{}/%*-]*")
TEMPLATE = re.compile(r"\{\{.*?\}\}")

# Paths that the code reads, that packages bring, or that stand in examples: nothing writes them.
READ = {
    "/etc/default/grub", "/etc/group", "/etc/nginx/mime.types", "/etc/os-release", "/etc/passwd",
    "/etc/apt/auth.conf.d", "/etc/hccn.conf", "/etc/apt/sources.list", "/etc/nvidia/ClientConfigToken",
    "/etc/cdi", "/etc/containers/certs.d", "/etc/docker/certs.d",
    "/opt/rocm", "/opt/rocm/bin", "/opt/rocm/core", "/opt/rocm/core/bin", "/usr/local/bin", "/usr/local/bin/npu-smi",
    "/usr/local/dcmi", "/usr/local/sbin",
    "/usr/local/libexec/docker", "/usr/local/sbin/npu-smi", "/usr/share/containers/storage.conf", "/var/lib/dkms/NAME",
    "/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der", "/var/tmp",
    # Below /run nothing survives a boot.
    "/run/gateway-readers/ended", "/run/haproxy-master.sock",
    "/run/containers/storage", "/run/haproxy", "/run/haproxy/admin.sock", "/run/haproxy/stats.sock", "/var/run/cdi",
    "/var/run/cdi/nvidia.yaml",
    # Huawei's installers write these logs.
    "/var/log/ascend-docker-runtime/installer.log", "/var/log/ascend_seclog/ascend_install.log",
    "/var/log/ascend_seclog/ascend_toolkit_install.log",
    # Inside of the ramdisk and the image that the role provisioner makes.
    "/etc/ironic-python-agent.d", "/etc/ssh/ssh_host_*", "/opt/agent", "/opt/agent/bin/ironic-python-agent",
    "/run/systemd/network", "/usr/local/sbin/agent-network", "/usr/share/doc/*", "/usr/share/locale/*",
    "/usr/share/man/*", "/var/cache/apt/archives/*.deb", "/var/lib/apt/lists/*",
    # Examples.
    "/srv/monitoring",
    "/etc/ansible/hub-token", "/etc/ansible/s3-credentials", "/etc/gateway.key", "/etc/keys/reports.key",
    "/etc/ssl/certs/example-ca.pem", "/srv/built/image", "/srv/carried/vllm-openai-v0.33.0.tar",
    "/opt/python/bin/python3.12", "/srv/training/finetuned", "/srv/weights", "/srv/wheels/oss_harmony-....whl",
}  # fmt: skip


def paths_of(text):
    """Return the absolute paths of a text; an expression in one stands for a name."""
    plain = TEMPLATE.sub("NAME", text)
    return {re.sub(r"\{.*", "NAME", found).rstrip("/") for found in LITERAL.findall(plain)}


def text_of(file):
    """Return the text of a file; tasks with a list to loop over stand once for each of its items."""
    text = file.read_text(encoding="utf-8")
    if file.parent.name != "tasks" or file.suffix != ".yml":
        return text
    return "\n".join(json.dumps(task) for outer in yaml.safe_load(text) for task in expanded(outer))


def expanded(task):
    """Return a task once for each item of its loop, with the item in place of its expressions."""
    loop = task.get("loop")
    if not isinstance(loop, list):
        return [task]
    found = []
    for item in loop:
        words = {f"item.{key}": value for key, value in item.items()} if isinstance(item, dict) else {"item": item}
        text = json.dumps(task)
        for name, value in words.items():
            text = text.replace("{{ " + name + " }}", str(value))
        found.append(json.loads(text))
    return found


def covers(place, path):
    """Return whether a path lies at a place; capitals in the place stand for one name each."""
    parts = enumerate(re.split("([A-Z]{2,}[A-Z_]*)", place.path))
    pattern = "".join("[^/]+" if index % 2 else re.escape(part) for index, part in parts)
    below = "(/.*)?" if place.path.endswith("/") else ""
    return re.fullmatch(pattern.rstrip("/") + below, path.rstrip("/")) is not None


def is_known(path):
    """Return whether a path is in the table, above a path of the table, or only read."""
    above = any(place.path.startswith(path + "/") for place in HOST)
    return path in READ or above or any(covers(place, path) for place in HOST)


def unknown():
    found = {}
    for pattern in SOURCES:
        for file in TOP.glob(pattern):
            if file.is_file() and file.parent.name != "removal" and file.parent.parent.name != "molecule":
                for path in paths_of(text_of(file)):
                    if not is_known(path):
                        found.setdefault(path, set()).add(str(file.relative_to(TOP)))
    return found


def rows(part):
    """Return path, description, writer and remover of each row in a part of the page."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [(path.strip("`"), what, writer, remover.strip("`")) for path, what, writer, remover in lines]


def test_every_path_that_the_code_names_is_in_the_table():
    assert unknown() == {}, "add it to removal/places.py with what removes it, or to READ if nothing writes it"


@pytest.mark.parametrize("path", ["/etc/vllm/chat.new", "/usr/local/lib/vllm-new.py", "/var/lib/new"])
def test_a_planted_path_is_found(path):
    assert not is_known(path) or path.startswith("/etc/vllm/")
    assert paths_of(f'dest: "{path}"') == {path}


def test_an_expression_stands_for_a_name():
    assert paths_of('path: "/etc/systemd/system/vllm@{{ __vllm_name }}.service"') == {
        "/etc/systemd/system/vllm@NAME.service"
    }


def test_the_items_of_a_loop_are_read():
    task = {"copy": {"dest": "/usr/local/lib/{{ item }}"}, "loop": ["a.py", "b.py"]}
    assert paths_of(json.dumps(expanded(task))) == {"/usr/local/lib/a.py", "/usr/local/lib/b.py"}


def test_the_page_has_the_same_places_and_says_what_they_are():
    found = rows("On a host")
    assert [(path, *more) for path, _what, *more in found] == [(it.path, it.writer, it.removed_by) for it in HOST]
    assert all(what for _path, what, *_more in [*found, *rows("On the controller")])


def test_every_writer_is_a_role_or_a_playbook():
    roles = {path.name for path in (TOP / "roles").iterdir()}
    playbooks = {path.name for path in (TOP / "playbooks").glob("*.yml")}
    listed = [*(place.writer for place in HOST), *(writer for *_more, writer, _remover in rows("On the controller"))]
    writers = {writer for words in listed for writer in words.split(", ")}
    # The role vllm writes vllm-scale's; they are named apart because its service is stopped first.
    assert writers - roles - playbooks == {"you", "accelerators", "vllm-scale"}


def test_capitals_stand_for_one_name():
    unit = Place("/etc/vllm/NAME.env", "", EVERYTHING)
    assert covers(unit, "/etc/vllm/chat.env")
    assert not covers(unit, "/etc/vllm/a/b.env")
    below = Place("/srv/models/ORG/MODEL/", "", EVERYTHING)
    assert covers(below, "/srv/models/a/b/c/d") and covers(below, "/srv/models/a/b")
    assert not covers(below, "/srv/models/a")


@pytest.mark.parametrize("role", ["vllm", "weights", "gateway", "mirror", "rollout"])
def test_no_directory_that_others_share_goes_as_a_whole(role):
    shared = ("/srv/models", "/srv/encodings", "/opt/vllm", "/srv/mirror", "/etc/haproxy", "/var/lib/haproxy", "/etc")
    assert not set(fixed_paths(role)) & set(shared)


def test_the_marker_of_a_service_is_one_of_its_places():
    assert all(service.marker in fixed_paths(service.role) for service in SERVICES)
