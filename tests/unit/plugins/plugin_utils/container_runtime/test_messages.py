# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.messages import describe_packages

FULL = {
    "failed": True,
    "msg": "'/usr/bin/apt-get -y install docker.io' failed",
    "stdout": "Unpacking docker.io\n dpkg: error processing archive docker.io.deb (--unpack):\n cannot copy data\nDone",
    "stderr": "W: a warning\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n",
}


def test_the_lines_that_name_the_cause_are_taken_from_the_output():
    assert describe_packages(FULL) == (
        "dpkg: error processing archive docker.io.deb (--unpack): | cannot copy data | "
        "E: Sub-process /usr/bin/dpkg returned an error code (1)"
    )


def test_of_a_loop_only_the_failed_items_are_read_and_each_line_once():
    passed = {"failed": False, "stderr": "E: repaired by the next command"}
    result = {"failed": True, "msg": "One or more items failed", "results": [passed, FULL, FULL]}
    assert describe_packages(result) == describe_packages(FULL)


def test_without_such_lines_the_message_of_the_task_remains():
    msg = "no available installation candidate for docker-ce=5:99.9*"
    assert describe_packages({"failed": True, "msg": msg, "stdout": "Reading package lists"}) == msg
