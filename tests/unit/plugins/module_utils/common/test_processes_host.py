# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import boot_id, started_at


def test_the_id_of_this_boot():
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_boot_without_an_id(tmp_path):
    assert boot_id(str(tmp_path)) == ""


def test_the_start_of_a_process_whose_name_holds_parentheses(tmp_path):
    (tmp_path / "7").mkdir()
    fields = " ".join(str(number) for number in range(3, 53))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) {fields}\n")
    assert started_at(7, str(tmp_path)) == 22
    assert started_at(8, str(tmp_path)) is None
    assert started_at(os.getpid())
