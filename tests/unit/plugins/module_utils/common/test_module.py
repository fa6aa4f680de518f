# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import inspect

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils.common.module import Module, guard

from tests.fakes.wheelhouse import run_module

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202etxt"


def test_ansible_s_own_module_takes_the_same_arguments():
    methods = [
        (name, method) for name, method in inspect.getmembers(Module, inspect.isfunction) if not name.startswith("_")
    ]
    assert len(methods) == 5
    for name, method in methods:
        wanted = set(inspect.signature(method).parameters)
        assert wanted - set(inspect.signature(getattr(AnsibleModule, name)).parameters) <= {"kwargs"}, name


def test_a_terminal_obeys_no_message_and_no_warning():
    said = []

    class Recorder:
        def fail_json(self, msg, **more):
            said.append((msg, more))

        def warn(self, warning):
            said.append(warning)

        def exit_json(self, **result):
            said.append(result)

    module = Recorder()
    guard(module)
    module.fail_json(msg=f"a: {HOSTILE}\nb", rc=1)
    module.fail_json(OSError("\x07"))
    module.warn(HOSTILE)
    escaped = "\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\u202etxt"
    assert said == [(f"a: {escaped}\nb", {"rc": 1}), ("\\x07", {}), escaped]


def test_a_terminal_obeys_no_diff(tmp_path):
    (tmp_path / "a").write_text(f"x\t{HOSTILE}\n")
    entry = {"path": str(tmp_path / "a"), "content": "x", "mode": "0644"}
    found = run_module("host_files", files=[entry], _ansible_diff=True)
    assert found["diff"][0]["before"] == "x\t\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\u202etxt\n"


def test_what_a_program_prints_is_harmless_in_the_message_of_a_module(tmp_path):
    told = f"printf '{HOSTILE}' >&2; exit 1".replace("\x1b", "\\033").replace("\x07", "\\007")
    (tmp_path / "check").write_text(f"#!/bin/sh\n{told}\n")
    (tmp_path / "check").chmod(0o755)
    entry = {"path": str(tmp_path / "a"), "content": "x", "mode": "0644", "validate": f"{tmp_path}/check %s"}
    found = run_module("host_files", files=[entry])
    assert found["failed"] and "title" in found["msg"] and all(map(str.isprintable, found["msg"].split("\n")))
