# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack.messages import (
    describe_commands,
    describe_failures,
)


def test_a_failed_task_is_described_by_its_error_output_and_the_lines_that_name_the_cause():
    result = {
        "failed": True,
        "msg": "non-zero return code",
        "stderr": "E: Sub-process /usr/bin/dpkg returned an error code (1)\n",
        "stdout": "Unpacking\ntar: No space left on device\nBad return status for 6.1\ntar: No space left on device",
    }
    assert describe_failures(result, "cpu-12") == (
        "E: Sub-process /usr/bin/dpkg returned an error code (1) "
        "tar: No space left on device; Bad return status for 6.1."
    )


def test_the_failed_items_of_a_loop_are_described_with_their_place():
    result = {
        "failed": True,
        "msg": "One or more items failed",
        "results": [
            {"failed": False, "item": {"path": "/a", "key": "http://a"}},
            {"failed": True, "item": {"path": "/b", "key": "http://b"}, "msg": "Connection refused"},
            {"failed": True, "item": {"path": "/c", "key": ""}, "stderr": "not signed"},
            {"item": "skipped"},
        ],
    }
    assert describe_failures(result, "cpu-12") == "/b (http://b): Connection refused. /c: not signed."


def test_what_was_shown_already_is_not_repeated():
    assert describe_failures({"failed": True, "msg": "cpu-12: file.run ended"}, "cpu-12") == "see the error above."
    assert describe_failures({"failed": True}, "cpu-12") == "see the error above."


def test_each_command_of_a_loop_that_failed_is_described_by_its_last_line():
    stuck = "rmmod: ERROR: ../libkmod/libkmod-module.c:799\nrmmod: ERROR: Module nvidia is in use"
    results = [{"rc": 0, "stderr": ""}, {"rc": 1, "stderr": stuck}, {"skipped": True}, {"rc": 1, "stderr": "also"}]
    assert describe_commands({"results": results}) == "rmmod: ERROR: Module nvidia is in use; also"
    assert describe_commands({"results": [{"rc": 0, "stderr": "a warning"}]}) == ""
    assert describe_commands({"results": []}) == ""
