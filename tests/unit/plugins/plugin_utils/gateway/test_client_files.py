# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pty
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.client_files import (
    find_file,
    open_terminal,
    write_file,
)

TEXT = "gateway_clients:\n  alice: {key_file: /k}\n"


@pytest.fixture
def site(tmp_path):
    (tmp_path / "site/group_vars/gateways").mkdir(parents=True)
    (tmp_path / "site/hosts.yml").write_text("gateways: {}\n")
    (tmp_path / "site/group_vars/gateways/clients.yml").write_text(TEXT)
    (tmp_path / "site/group_vars/all.yml").write_text("# gateway_clients: not here\nx: 1\n")
    (tmp_path / "site/.old.yml").write_text(TEXT)
    (tmp_path / "site/group_vars/.git").mkdir()
    (tmp_path / "site/group_vars/.git/x.yml").write_text(TEXT)
    (tmp_path / "site/group_vars/all.txt").write_text(TEXT)
    return tmp_path / "site"


def test_the_file_is_found_beside_the_inventory_and_in_its_directory(site):
    expected = site / "group_vars/gateways/clients.yml", TEXT, ""
    for source in (site, site / "hosts.yml"):
        assert find_file([str(source)], ["alice"]) == expected
    assert find_file([str(site), str(site / "hosts.yml"), "a,b", "/missing"], ["alice"]) == expected


@pytest.mark.parametrize(
    ("text", "names", "why"),
    [
        (None, ["alice"], "no file of the inventory sets gateway_clients"),
        (TEXT, ["alice", "bob"], "clients.yml: gateway_clients has other clients than the gateway"),
        ("gateway_clients: {a: 1", ["a"], "clients.yml: the file cannot be read as one document of YAML"),
    ],
)
def test_why_there_is_none(site, text, names, why):
    (site / "group_vars/gateways/clients.yml").write_text(text or "x: 1\n")
    found = find_file([str(site)], names)
    assert found[:2] == (None, "") and found[2].endswith(why)


def test_two_files_are_none(site):
    (site / "group_vars/all.yml").write_text(TEXT)
    assert find_file([str(site)], ["alice"])[2] == "2 files of the inventory set gateway_clients"


def test_a_file_keeps_its_mode_and_the_ends_of_its_lines(site):
    path = site / "group_vars/gateways/clients.yml"
    path.chmod(0o640)
    write_file(path, "gateway_clients: {}\r\n")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"gateway_clients: {}\r\n", 0o640)
    assert find_file([str(site)], [])[1] == "gateway_clients: {}\r\n"


def test_a_key_goes_to_the_terminal_of_the_run_and_into_no_pipe():
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(["sleep", "60"], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as run:
            terminal = open_terminal(run.pid, {})
            os.write(terminal, b"key")
            os.close(terminal)
            assert os.read(ours, 10) == b"key"
            for name in ("RUNNER_OMIT_EVENTS", "CI"):
                with pytest.raises(OSError, match=f"is stored .{name} is set"):
                    open_terminal(run.pid, {name: "False"})
            run.terminate()
    finally:
        os.close(ours)
        os.close(theirs)


def test_without_a_terminal(tmp_path):
    with (tmp_path / "log").open("w") as log, subprocess.Popen(
        ["sleep", "60"], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE
    ) as run:
        with pytest.raises(OSError, match="this run has no terminal"):
            open_terminal(run.pid, {})
        run.terminate()
    with pytest.raises(OSError, match="this run has no terminal"):
        open_terminal(2**22, {})
