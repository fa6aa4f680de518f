# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from tools.lab.plan import LabError
from tools.vm.plan import (
    PARTITION_START,
    GuestRecipe,
    archive_url,
    boot_sectors,
    container_command,
    grub_config,
    grub_environment,
    guest_files,
    plain_inventory,
    qemu_command,
    sources_of,
    ssh_command,
    uname_script,
    version_key,
)

SOURCES = (
    "deb [signed-by=/k.gpg] http://mirror.site/debian bookworm main",
    "deb [signed-by=/k.gpg] http://mirror.site/debian bookworm-updates main",
    "deb [signed-by=/k.gpg] http://mirror.site/debian-security bookworm-security main",
)


def test_guest_is_installed_without_updates_and_told_of_them():
    recipe = GuestRecipe(SOURCES, (), (), "script")
    assert recipe.medium == [SOURCES[0]]
    files = guest_files("key\n", "host\n", "host.pub\n", SOURCES)
    assert files["etc/apt/sources.list"][0].splitlines() == list(SOURCES)


@pytest.mark.parametrize(
    "change",
    [
        {"sources": SOURCES[:1]},
        {"apt_options": ('Acquire::http::Proxy "http://proxy:3128"',)},
        {"certificates": ("pem",)},
        {"script": "another"},
    ],
)
def test_key_follows_all_that_decides_the_contents(change):
    recipe = {"sources": SOURCES, "apt_options": (), "certificates": (), "script": "script"}
    assert GuestRecipe(**recipe).key != GuestRecipe(**{**recipe, **change}).key


def test_controller_without_debian_takes_the_public_archive():
    assert sources_of(SOURCES) == SOURCES
    assert [line.split()[2:] for line in sources_of(())] == [
        ["http://deb.debian.org/debian", "bookworm", "main"],
        ["http://deb.debian.org/debian", "bookworm-updates", "main"],
        ["http://deb.debian.org/debian-security", "bookworm-security", "main"],
    ]


def test_archive_is_that_of_the_release():
    assert archive_url(SOURCES) == "http://mirror.site/debian"
    with pytest.raises(LabError, match=r"bookworm; found: deb http://mirror\.site/debian trixie main"):
        archive_url(["deb http://mirror.site/debian trixie main"])


def test_only_secrets_are_kept_from_others():
    modes = {path: mode for path, (_text, mode) in guest_files("k", "h", "p", SOURCES).items()}
    assert {path for path, mode in modes.items() if mode == 0o600} == {
        "etc/ssh/ssh_host_ed25519_key",
        "root/.ssh/authorized_keys",
    }


def test_menu_names_each_kernel_and_the_newest_by_debians_links():
    text = grub_config(["6.1.0-9-amd64", "6.1.0-10-amd64"])
    assert 'menuentry "newest" --id "newest" {\n  linux /vmlinuz root=' in text
    assert "linux /boot/vmlinuz-6.1.0-9-amd64 root=/dev/vda1" in text
    assert "initrd /boot/initrd.img-6.1.0-10-amd64\n" in text
    # GRUB would take an id that begins with a digit for a number.
    assert re.findall('--id "(.*)"', text) == ["newest", "linux-6.1.0-9-amd64", "linux-6.1.0-10-amd64"]


@pytest.mark.parametrize("entry", ["", "6.1.0-9-amd64"])
def test_environment_block_is_one_that_grub_reads(entry):
    block = grub_environment(entry)
    assert len(block) == 1024
    lines = block.splitlines()
    assert lines[0] == "# GRUB Environment Block"
    assert (f"next_entry=linux-{entry}" in lines) == bool(entry)


def test_boot_sectors_keep_grubs_code_and_name_one_partition():
    boot, core = bytes([0xEB]) * 512, b"core" * 300
    size = 64 * 1024**2
    found = boot_sectors(boot, core, size)
    assert found[:440] == boot[:440]
    assert found[510:512] == b"\x55\xaa"
    assert found[512:] == core
    active, kind, start, sectors = struct.unpack("<B3xB3xII", found[446:462])
    assert (active, kind) == (0x80, 0x83)
    assert start * 512 == PARTITION_START
    assert (start + sectors) * 512 == size
    assert found[462:510] == bytes(48)


def test_core_that_would_reach_into_the_partition_is_refused():
    with pytest.raises(LabError, match="more than there is before the first partition"):
        boot_sectors(bytes(512), bytes(PARTITION_START), 64 * 1024**2)


def test_machine_leaves_its_disk_alone_and_is_reached_from_here_only():
    command = " ".join(qemu_command(Path("/d/disk.img"), 2222, Path("/d/serial.log"), Path("/d/pid")))
    assert "file=/d/disk.img,if=virtio,format=raw,snapshot=on" in command
    assert "restrict=on,hostfwd=tcp:127.0.0.1:2222-:22" in command


def test_container_has_no_privileges_and_listens_here_only():
    command = container_command("name", Path("/root/dir"), 2222, Path("/d/tools"))
    assert "--privileged" not in command
    assert "ListenAddress=127.0.0.1" in command[-1]
    assert command.index("/root/dir") == len(command) - 4


def test_uname_says_the_guests_kernel_and_else_the_truth(tmp_path):
    script = tmp_path / "uname"
    script.write_text(uname_script("6.1.0-9-amd64"))
    answers = [
        subprocess.run(["sh", script, *words], check=True, capture_output=True, text=True).stdout.strip()
        for words in (["-r"], ["-s"])
    ]
    assert answers == ["6.1.0-9-amd64", "Linux"]


def test_guest_is_known_by_its_key_on_whatever_port():
    command = ssh_command(Path("/keys"), 2222)
    assert command[-1] == "root@127.0.0.1"
    assert {"HostKeyAlias=guest", "StrictHostKeyChecking=yes"} <= set(command)
    host = plain_inventory(Path("/keys"), 2222, {"more": 1})["all"]["hosts"]["guest"]
    assert (host["ansible_port"], host["more"]) == (2222, 1)
    assert "-o HostKeyAlias=guest" in host["ansible_ssh_common_args"]


def test_kernels_are_sorted_by_number():
    kernels = ["6.1.0-10-amd64", "6.1.0-9-amd64", "6.1.0-56-cloud-amd64", "6.1.0-56-amd64", "6.12.1-1-amd64"]
    assert sorted(kernels, key=version_key) == [
        "6.1.0-9-amd64",
        "6.1.0-10-amd64",
        "6.1.0-56-amd64",
        "6.1.0-56-cloud-amd64",
        "6.12.1-1-amd64",
    ]
