# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read on a host with Huawei's chips where it is odd; modules/test_driver_state_cann.py has a whole one."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.host import OPEN_NODES, inspect_host
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import NOT_FOUND, CommandResult

from tests.fakes.ascend import KERNEL, atlas_host, cards, mapping, table, write

CHIPS = [f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x18)]


@pytest.fixture
def host(tmp_path):
    return atlas_host(tmp_path)


class Tools:
    """Answers commands, and remembers them."""

    def __init__(self, **answers):
        self.answers, self.asked = {"info": table(CHIPS), "info -l": cards(8), "info -m": mapping(8), **answers}, []

    def __call__(self, words):
        self.asked.append(list(words))
        if words[0] != self.answers.get("tool", "npu-smi"):
            return CommandResult(NOT_FOUND)
        answer = self.answers.get(" ".join(words[1:]), "")
        return answer if isinstance(answer, CommandResult) else CommandResult(0, answer)


def inspect(host, tools, **options):
    return inspect_host(str(host), str(host / "sys"), str(host / "proc"), run=tools, **options)


def test_a_tool_outside_of_the_path_of_sudo_is_found_where_the_driver_puts_it(host):
    found = inspect(host, Tools(tool="/usr/local/sbin/npu-smi"))
    assert found.table.rc == 0 and found.chips == tuple(CHIPS)
    assert inspect(host, Tools(tool="nothing")).table.rc == NOT_FOUND


def test_a_tool_that_fails_is_asked_once(host):
    tools = Tools(info=CommandResult(1, "", "dcmi module initialize failed"))
    found = inspect(host, tools)
    assert [words for words in tools.asked if words[0] == "npu-smi"] == [["npu-smi", "info"]]
    assert found.boards == {} and found.health == {} and found.table.err


def test_the_health_of_ill_chips_alone_is_asked(host):
    tools = Tools(info=table(CHIPS, ill=[3]), **{"info -t health -i 3 -c 0": "Health : Alarm\n"})
    found = inspect(host, tools)
    assert found.health == {"3/0": "Health : Alarm\n"}


def test_modules_have_another_name_in_other_drivers(host):
    (host / "sys/module/drv_davinci_intf_host").rename(host / "sys/module/davinci_ascend")
    found = inspect(host, Tools())
    assert list(found.host.modules) == ["drv_davinci_intf_host"] and found.host.kernel == KERNEL


def test_nodes_in_dev_are_those_of_the_driver(host):
    found = inspect(host, Tools())
    assert len(found.nodes) == 11 and "/dev/davinci_manager" in found.nodes and found.dcmi
    assert all(OPEN_NODES.match(node) for node in found.nodes) and not OPEN_NODES.match("/dev/shm/davinci")


@pytest.mark.parametrize(
    ("passwd", "group", "primary", "has_group"),
    [
        ("HwHiAiUser:x:1000:1000::/:/bin/sh\n", "HwHiAiUser:x:1000:\n", "HwHiAiUser", True),
        ("HwHiAiUser:x:1000:44::/:/bin/sh\n", "video:x:44:\n", "video", False),
        ("HwHiAiUser:x:1000:7::/:/bin/sh\n", "HwHiAiUser:x:1000:\n", "7", True),
        ("HwHiAiUser\n", "broken\n\n", "", False),
    ],
)  # fmt: skip
def test_the_group_of_the_drivers_user_is_that_of_the_account(host, passwd, group, primary, has_group):
    write(host / "etc/passwd", passwd)
    write(host / "etc/group", group)
    installed = inspect(host, Tools()).installed
    assert (installed.group, installed.has_group) == (primary, has_group)


def test_of_two_installations_of_cann_the_newer_location_counts(host):
    arch = inspect(host, Tools()).host.architecture
    text = "package_name=Ascend-cann-toolkit\nversion={}\n"
    old = host / f"usr/local/Ascend/ascend-toolkit/latest/{arch}-linux/ascend_toolkit_install.info"
    write(old, text.format("8.3.RC1"))
    assert inspect(host, Tools()).installed.cann["toolkit"] == "8.3.RC1"
    write(host / f"usr/local/Ascend/cann/{arch}-linux/ascend_toolkit_install.info", text.format("9.1.0"))
    assert inspect(host, Tools()).installed.cann["toolkit"] == "9.1.0"
