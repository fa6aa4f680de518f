# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Host
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.proof import Finding
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.state_module import (
    OF_STACK,
    common_state,
    foreign_option,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.documented_options import documented_options

HOST = Host("ubuntu", "24.04", "noble", "x86_64", "6.8.0", "6.8.0", False)
ARGUMENTS = documented_options("driver_state")
NONE = {name: entry.get("default") for name, entry in ARGUMENTS.items()}


def test_options_of_a_stack_have_no_default_so_that_those_of_another_show():
    for stack, options in OF_STACK.items():
        assert all("default" not in ARGUMENTS[name] for name in options)
        assert foreign_option({**NONE, "stack": stack}) == ""
        assert set(options) <= set(ARGUMENTS)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stack": "cuda", "toolkit": False}, "toolkit: found false with stack cuda; it is an option of stack cann"),
        ({"stack": "rocm", "fabric": "none"}, 'fabric: found "none" with stack rocm; it is an option of stack cuda'),
        ({"stack": "cann", "partition": "all"}, "partition: found"), ({"stack": "rocm", "partition": "SPX"}, ""),
    ],
)  # fmt: skip
def test_an_option_of_another_stack_is_an_error_even_if_it_is_false(options, reason):
    found = foreign_option({**NONE, **options})
    assert found.replace("'", '"').startswith(reason) and bool(found) == bool(reason)


def test_findings_of_now_make_the_summary_and_those_of_the_next_boot_do_not(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/x.conf").write_text("a\n")
    options = {
        **NONE,
        "root": str(tmp_path),
        "proc_root": str(tmp_path / "proc"),
        "contents_of": ["/etc/x.conf", "/etc/y"],
    }
    options["offered_of"] = ["amdgpu-dkms"]
    now, later = (
        Finding("the module is not loaded", "amdgpu", "reboot"),
        Finding("the next kernel has none", "amdgpu", "wait", later=True),
    )
    asked = []

    def run(words):
        asked.append(words[0])
        return CommandResult(
            0, "amdgpu-dkms | 1:6.16.13 | https://repo noble/main\n" if words[0] == "apt-cache" else ""
        )

    found = common_state(options, HOST, [now, later], re.compile("/dev/kfd"), run)
    assert [entry["what"] for entry in found["findings"]] == ["the module is not loaded"]
    assert [entry["what"] for entry in found["later"]] == ["the next kernel has none"]
    assert "not loaded" in found["summary"] and "next kernel" not in found["summary"]
    assert found["contents"]["/etc/x.conf"] == "a\n" and not found["contents"]["/etc/y"]
    assert found["offered"] == {"amdgpu-dkms": ["1:6.16.13"]} and found["holders"] == []
    assert Host.from_dict(found["host"]) == HOST and "systemctl" in asked
