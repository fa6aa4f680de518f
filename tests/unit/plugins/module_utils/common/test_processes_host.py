# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.processes_host import (
    become,
    boot_id,
    started_at,
)


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("groups", [(), (grp.getgrnam("tty").gr_gid,)])
def test_a_new_process_becomes_another_user_with_the_groups_that_are_named(groups):
    account = pwd.getpwnam("nobody")
    done = subprocess.run(
        ["sh", "-c", "id -u; id -G"], preexec_fn=become(account, groups), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(number) for number in (account.pw_uid, account.pw_gid, *groups)]
    done = subprocess.run(["id", "-G"], preexec_fn=become(account, None), capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(gid) for gid in os.getgrouplist(account.pw_name, account.pw_gid)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("groups", [(), None])
def test_a_process_of_another_user_gains_no_rights_by_setuid_programs(groups):
    command = ["grep", "NoNewPrivs", "/proc/self/status"]
    become_nobody = become(pwd.getpwnam("nobody"), groups)
    done = subprocess.run(command, preexec_fn=become_nobody, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["NoNewPrivs:", "1"]
