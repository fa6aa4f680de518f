# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the chips of a host, who of them is stopped for a new driver, and who stops the new driver."""

from __future__ import annotations

import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.host import read_accounts, read_holders
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.users import (
    Holder,
    foreign_holders,
    units_to_stop,
)

from tests.fakes.nvidia import add_process, write

CHAT, SEARCH = "vllm@chat.service", "vllm@search.service"
PERSISTENCED, FABRIC = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
DOCKER, PODMAN = "docker-0a1b.scope", "libpod-0a1b.scope"


def holder(unit, pid=7):
    return Holder(pid, "python3", unit, "/dev/nvidia0")


def test_instances_stop_first_then_exporters_then_daemons_that_others_need_last():
    active = [PERSISTENCED, "nvidia-dcgm.service", SEARCH, FABRIC, CHAT, "ssh.service"]
    assert units_to_stop(active) == (CHAT, SEARCH, "nvidia-dcgm.service", FABRIC, PERSISTENCED)


@pytest.mark.parametrize(
    ("unit", "stopping", "is_foreign"),
    [
        (CHAT, (CHAT,), False),
        (DOCKER, (CHAT,), False),
        (PODMAN, (CHAT, PERSISTENCED), False),
        # Once the instances are stopped, a container is somebody else's.
        (DOCKER, (PERSISTENCED,), True),
        ("session-4.scope", (CHAT,), True),
        ("", (CHAT,), True),
        ("training.service", (), True),
    ],
)
def test_who_is_nobodys_to_stop(unit, stopping, is_foreign):
    assert bool(foreign_holders([holder(unit)], stopping)) is is_foreign


def test_a_holder_in_words():
    assert str(holder(DOCKER)) == "process 7 (python3 of docker-0a1b.scope) has /dev/nvidia0 open"
    assert str(holder("")) == "process 7 (python3) has /dev/nvidia0 open"


def test_processes_are_found_by_what_they_have_open(tmp_path):
    add_process(tmp_path, 30, "bash", "session-4.scope", "/dev/null")
    add_process(tmp_path, 20, "VLLM::EngineCor", CHAT, "/dev/nvidia1")
    (tmp_path / "proc/20/fd/4").symlink_to("/dev/nvidiactl")
    add_process(tmp_path, 10, "nvidia-persiste", PERSISTENCED, "/dev/nvidiactl")
    found = read_holders(str(tmp_path / "proc"), re.compile("/dev/nvidia"))
    assert [(one.pid, one.command, one.unit) for one in found] == [
        (10, "nvidia-persiste", PERSISTENCED),
        (20, "VLLM::EngineCor", CHAT),
    ]


def test_a_user_names_neither_the_unit_nor_the_message_of_his_processes(tmp_path):
    add_process(tmp_path, 30, "a\x1b[2J\nb", CHAT, "/dev/nvidia0")
    login = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm@chat.service\n"
    (tmp_path / "proc/30/cgroup").write_text(login)
    (found,) = read_holders(str(tmp_path / "proc"), re.compile("/dev/nvidia"))
    assert (found.command, found.unit) == ("a\\x1b[2J\\nb", "user@1000.service")
    assert foreign_holders([found], (CHAT,)) == [found]


def test_accounts_are_read_with_their_groups(tmp_path):
    write(tmp_path / "etc/group", "root:x:0:\nrender:x:104:ada,vllm\nHwHiAiUser:x:1000:\n")
    write(tmp_path / "etc/passwd", "HwHiAiUser:x:1000:1000::/home/HwHiAiUser:/bin/bash\nada:x:1001:1001::/:/bin/sh\n")
    names = ("render", "video", "HwHiAiUser")
    groups, users = read_accounts(str(tmp_path), names)
    assert groups == {"render": ("ada", "vllm"), "HwHiAiUser": ()}
    assert users == {"HwHiAiUser": "HwHiAiUser"}
    assert read_accounts(str(tmp_path / "nothing"), names) == ({}, {})
