# SPDX-License-Identifier: GPL-3.0-or-later
"""Which processes use a directory, from a /proc of a test's own."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import processes_host as common
from ansible_collections.baremetal.inference.plugins.module_utils.removal import processes_host
from ansible_collections.baremetal.inference.plugins.module_utils.removal.processes_host import read_processes

REVISION = "a" * 40
IDENTITY = "c" * 64


def process(proc, pid, cmdline="", maps="", cgroup="0::/\n", cwd="/"):
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    for name, text in {"cmdline": cmdline, "maps": maps, "cgroup": cgroup, "comm": "python3\n"}.items():
        (directory / name).write_text(text)
    (directory / "cwd").symlink_to(cwd)


def test_a_process_names_a_path_in_its_command_its_files_or_its_directory(tmp_path):
    process(tmp_path, 11, cmdline="/opt/vllm/0.32.0/bin/python\0serve\0")
    process(tmp_path, 12, maps="7f00-7f01 r--p 0 08:01 5 /opt/vllm/0.32.0/lib/x.so\n", cgroup="0::/vllm@chat.service\n")
    process(tmp_path, 13, cwd="/opt/vllm/0.32.0/share")
    process(tmp_path, 14, cmdline="ls\0/opt/vllm/0.32.0-other/x\0")
    process(tmp_path, 15, cmdline="sleep\0")
    found = read_processes(["/opt/vllm"], proc=str(tmp_path))
    assert [(each.pid, each.instance) for each in found if each.uses("/opt/vllm/0.32.0")] == [
        (11, ""),
        (12, "chat"),
        (13, ""),
    ]
    assert found[0].description == "process 11 (python3)"


def test_a_revision_counts_wherever_it_is_mounted(tmp_path):
    cgroup = f"0::/system.slice/docker-{IDENTITY}.scope\n"
    process(tmp_path, 21, cmdline=f"vllm\0/model/{REVISION}\0", cgroup=cgroup)
    (found,) = read_processes(["/srv/models"], {IDENTITY: "chat"}, str(tmp_path))
    assert found.uses(f"/srv/models/example/tiny/{REVISION}")
    assert found.instance == "chat"


@pytest.mark.parametrize(("room", "limit"), [(common, "MOST_WORDS"), (processes_host, "_MOST_NAMES")])
def test_a_process_that_names_too_much_may_use_anything(tmp_path, monkeypatch, room, limit):
    process(tmp_path, 31, cmdline="/opt/vllm/a\0/opt/vllm/b\0", cgroup="0::/vllm@chat.service\n")
    monkeypatch.setattr(room, limit, 1)
    (found,) = read_processes(["/opt/vllm"], proc=str(tmp_path))
    assert found.uses("/opt/vllm/c") and found.uses(f"/srv/models/example/tiny/{REVISION}")
    assert (found.instance, found.description) == ("chat", "process 31 (python3, which may use anything)")
