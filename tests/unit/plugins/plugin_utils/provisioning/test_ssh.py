# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import locked, publish
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning import ssh
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.ssh import Proof, read_proof

from tests.fakes.provision_entries import entry


def test_a_host_key_is_one_that_ssh_reads_and_nothing_of_it_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    key = ssh.make_host_key("gpu-a-01")
    (tmp_path / "key").write_text(key.private)
    (tmp_path / "key").chmod(0o600)
    derived = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(tmp_path / "key")], capture_output=True, text=True, check=True
    )
    assert derived.stdout.split()[:2] == key.public.split()
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_the_port_of_ssh_answers_or_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ssh.answers("127.0.0.1", port)
    assert not ssh.answers("127.0.0.1", port)


def test_a_system_is_asked_with_its_own_key_and_no_other(tmp_path, monkeypatch):
    """A stand-in for ssh shows the command and the file of known hosts."""
    (tmp_path / "ssh").write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" >"$0.words"\n'
        'for word; do case $word in UserKnownHostsFile=*) cp "${word#*=}" "$0.known";; esac; done\n'
        'printf "build1\\n\\norder1\\n\\nstatus: done\\n"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert ssh.ask(entry(), "ssh-ed25519 AAAA", "root", "/k") == Proof("build1", "order1", "status: done")
    words = (tmp_path / "ssh.words").read_text().splitlines()
    assert {
        "StrictHostKeyChecking=yes",
        "HostKeyAlias=gpu-a-01",
        "BatchMode=yes",
        "GlobalKnownHostsFile=/dev/null",
    } <= {*words}
    assert words[words.index("--") + 1] == "10.0.1.11"
    assert words[words.index("-i") + 1] == "/k"
    assert (tmp_path / "ssh.known").read_text() == "gpu-a-01 ssh-ed25519 AAAA\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Return what makes a stand-in for ssh that runs these words of the shell."""

    def make(words):
        (tmp_path / "ssh").write_text(f"#!/bin/bash\n{words}\n")
        (tmp_path / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return make


def test_the_program_that_shows_the_firmware_is_run_on_the_host(system, tmp_path):
    system(f'echo "${{@: -1}}" >{tmp_path}/command; exec {sys.executable} -I -')
    found = ssh.show_firmware(entry(), "ssh-ed25519 AAAA", "root", "")
    assert found["sockets"] >= 1 and (tmp_path / "command").read_text() == "python3 -I -\n"
    ssh.show_firmware(entry(), "ssh-ed25519 AAAA", "debian", "")
    assert (tmp_path / "command").read_text() == "sudo -n python3 -I -\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("echo sudo: a password is required >&2; exit 1", "SSH: sudo: a password is required"),
        ("exit 3", "SSH: status 3"),
        ("printf '\\302\\205' >&2; exit 3", "SSH: status 3"),
        ("printf 'a\\033b' >&2; exit 3", r"SSH: a\\x1bb"),
        # A banner of any length before what matters.
        ("head -c 300000 /dev/zero | tr '\\0' x >&2; echo; echo >&2; echo denied >&2; exit 1", "SSH: denied"),
        ("cat /dev/zero", "is not what show_firmware_host.py prints"),
        ("cat /dev/zero >&2", "SSH did not answer within 1 s"),
        ("exec sleep 60", "SSH did not answer within 1 s"),
        # The ssh of a jump host.
        ("sleep 60 & exec sleep 60", "SSH did not answer within 1 s"),
        ("sleep 60 & exit 0", "is not what show_firmware_host.py prints"),
    ],
)
def test_a_host_that_shows_no_firmware_costs_seconds_and_no_memory(system, monkeypatch, words, reason):
    monkeypatch.setattr(ssh, "COMMAND", 1)
    monkeypatch.setattr(ssh, "NO_END", "SSH did not answer within 1 s")
    system(words.replace("cat", "exec cat"))
    with pytest.raises(ProvisionError, match=reason):
        ssh.show_firmware(entry(), "ssh-ed25519 AAAA", "root", "")


def test_a_system_that_floods_the_controller_is_read_to_its_bound(system, monkeypatch):
    monkeypatch.setattr(ssh, "COMMAND", 2)
    system("exec cat /dev/zero")
    assert "no /etc/baremetal-inference" in ssh.ask(entry(), "ssh-ed25519 AAAA", "root", "").reason
    system("exec sleep 60")
    assert ssh.ask(entry(), "ssh-ed25519 AAAA", "root", "").reason == ssh.NO_END


@pytest.mark.parametrize(
    ("status", "output", "errors", "found"),
    [
        (0, b"b1\n\no1\n\nstatus: running\n", b"", Proof("b1", "o1", "status: running")),
        (0, b"b1\n\no1\n\n", b"", Proof("b1", "o1", "")),
        (0, b"\nstatus: running\n", b"", Proof(cloud_init="status: running", reason="the system has no")),
        (255, b"", b"a\nHost key verification failed.\n", Proof(reason="SSH: Host key verification failed.")),
        (255, b"", b"", Proof(reason="SSH: no connection")),
        (255, b"", b"a\x1b[2J", Proof(reason="SSH: a\\x1b[2J")),
    ],
)
def test_the_answer_of_a_system_is_read(status, output, errors, found):
    proof = read_proof(status, output, errors)
    assert (proof.build_id, proof.order, proof.cloud_init) == (found.build_id, found.order, found.cloud_init)
    assert proof.reason.startswith(found.reason)
    assert bool(proof.reason) == bool(found.reason)


def test_a_first_boot_is_over_when_cloud_init_says_so():
    assert [Proof(cloud_init=f"status: {word}").settled for word in ("running", "not started", "done", "error")] == [
        False, False, True, True,
    ]  # fmt: skip


def test_the_key_of_a_host_takes_the_place_of_its_former_one(tmp_path):
    file = tmp_path / "ssh/known_hosts"
    ssh.trust(
        file,
        ("10.0.1.11", "gpu-a-01"),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKHEChAlQCvTVaLLLNzrmAlJ3T7cJTXxwBZTJEsLnLYl",
    )
    ssh.trust(file, ("10.0.1.12",), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEyOmh9MAoTb4WFdMEo0GrMRyAZ5zG2i6I0i5c0vZqyp")
    ssh.trust(
        file,
        ("10.0.1.11", "gpu-a-01"),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBgvvRB5dmm6Mp5qeAJbxN1hXwpuVZJXzH3ZxvRf5rVb",
    )
    lines = file.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["10.0.1.12", "10.0.1.11,gpu-a-01"]
    assert file.stat().st_mode & 0o777 == 0o600


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEyOmh9MAoTb4WFdMEo0GrMRyAZ5zG2i6I0i5c0vZqyp"


def test_a_link_of_the_user_to_the_known_hosts_stays_a_link(tmp_path):
    (tmp_path / "dotfiles").mkdir()
    link = tmp_path / "known_hosts"
    link.symlink_to("dotfiles/known_hosts")
    ssh.trust(link, ("10.0.1.11",), KEY)
    assert link.is_symlink() and (tmp_path / "dotfiles/known_hosts").read_text() == f"10.0.1.11 {KEY}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link away")
@pytest.mark.parametrize("key", [KEY, ""])
def test_a_link_of_another_user_chooses_no_file_that_is_written(tmp_path, key):
    other, link = tmp_path / "other", tmp_path / "known_hosts"
    other.write_text(f"10.0.1.11 {KEY}\n")
    link.symlink_to(other)
    os.lchown(link, 65534, 65534)
    with pytest.raises(ProvisionError, match=r"provision_known_hosts: .* is a link of another user"):
        ssh.trust(link, ("10.0.1.11", "10.0.1.12"), key)
    assert other.read_text() == f"10.0.1.11 {KEY}\n" and len(list(tmp_path.iterdir())) == 2


def test_the_threads_of_one_run_wait_for_each_other_in_turn_at_the_known_hosts(tmp_path, monkeypatch):
    """The lock of the file is for other runs: its wait has an end, and nothing says whose turn is next."""
    monkeypatch.setattr(ssh, "locked", lambda path, wait: locked(path, wait=0))
    monkeypatch.setattr(ssh, "publish", lambda *words: (time.sleep(0.01), publish(*words)))
    file, key = (
        tmp_path / "known_hosts",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEyOmh9MAoTb4WFdMEo0GrMRyAZ5zG2i6I0i5c0vZqyp",
    )
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: ssh.trust(file, (f"10.0.1.{number}",), key), range(8)))
    assert len(file.read_text().splitlines()) == 8
