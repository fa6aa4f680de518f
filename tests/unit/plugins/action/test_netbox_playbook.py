# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/netbox.yml as a whole: hosts with trees of their own, a NetBox that takes writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.sysfs import lines, write_procfs, write_sysfs
from tests.integration.netbox_server import TOKEN, serving

TOP = Path(__file__).resolve().parents[4]
ITEMS = "/api/dcim/inventory-items/"
# It answers the query, and leaves a chip out that has no serial number.
NVIDIA_SMI = """#!/bin/sh
[ "$1" = "--query-gpu=pci.bus_id,serial,vbios_version" ] || exit 2
echo "00000000:10:00.0, 1654523001234, 96.00.A5.00.1A"
echo "00000000:11:00.0, $SECOND_SERIAL, 96.00.A5.00.1A"
"""


@pytest.fixture
def site(tmp_path):
    """Two hosts with chips, one that NetBox does not know and one that does not answer."""
    hosts = {}
    for name, pci_id, count in (("gpu-a-01", "10de:2335", 2), ("amd-a-01", "1002:74a1", 1), ("stray", "10de:2335", 1)):
        sys_root = write_sysfs(tmp_path / name / "sys", lines(pci_id, count))
        hosts[name] = {
            "accelerator_sysfs_root": str(sys_root),
            "accelerator_proc_root": str(write_procfs(tmp_path / name / "proc")),
            "ansible_connection": "local",
            "ansible_become": False,
            "ansible_python_interpreter": sys.executable,
        }
    card = tmp_path / "amd-a-01/sys/bus/pci/devices/0000:10:00.0"
    (card / "serial_number").write_text("692347000123\n")
    hosts["gpu-a-02"] = {"ansible_host": "127.0.0.9", "ansible_port": 1, "ansible_ssh_args": "-o ConnectTimeout=1"}
    (tmp_path / "hosts.json").write_text(json.dumps({"inference": {"hosts": hosts}}))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    with serving() as netbox:
        yield tmp_path, netbox


def run(site, *arguments, second="1654523001235", token=TOKEN):
    """Run the playbook; return its exit status, what it says, and how many tasks changed something."""
    top, netbox = site
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(top / "tmp"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "NETBOX_API": netbox.url,
        "NETBOX_TOKEN": token,
        "PATH": f"{top}/bin:{os.environ['PATH']}",
        "SECOND_SERIAL": second,
    }
    words = [sys.executable, "-m", "ansible", "playbook", "playbooks/netbox.yml", "-i", str(top / "hosts.json")]
    done = subprocess.run([*words, *arguments], cwd=TOP, env=environment, check=False, capture_output=True, text=True)
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert token not in said
    return done.returncode, said, sum(map(int, re.findall(r"changed=(\d+)", said)))


@pytest.mark.long
def test_written_once_then_only_what_differs(site):
    netbox = site[1]
    rc, said, changed = run(site, "--check", "--diff")
    assert changed and not netbox.wrote, said
    assert "gpu-a-01: accelerator 0000:10:00.0: new: h200, firmware 96.00.A5.00.1A, serial 1654523001234" in said
    rc, said, changed = run(site, "-l", "localhost,gpu-a-01,amd-a-01")
    assert rc == 0 and changed, said
    items = {(item["device"]["name"], item["name"]): item for item in netbox.objects[ITEMS]}
    assert len(items) == 3
    assert items["amd-a-01", "accelerator 0000:10:00.0"]["serial"] == "692347000123"
    assert items["gpu-a-01", "accelerator 0000:11:00.0"]["part_id"] == "10de:2335"
    wrote = len(netbox.wrote)
    rc, said, changed = run(site, "-l", "localhost,gpu-a-01,amd-a-01", "-vvv")
    assert (rc, changed, len(netbox.wrote)) == (0, 0, wrote) and "NetBox agrees with the hosts" in said, said
    rc, said, changed = run(site, "-l", "localhost,gpu-a-01", "--diff", second="999")
    assert rc == 0 and "gpu-a-01: accelerator 0000:11:00.0: serial 1654523001235 -> 999" in said, said
    assert netbox.wrote[wrote:] == [("PATCH", ITEMS, [{"id": 3, "serial": "999"}])]


def test_hosts_without_an_answer_or_a_device_are_named(site):
    _rc, said, _changed = run(site)
    assert "NetBox has no device called stray: nothing is written for it" in said, said
    assert "gpu-a-02: " in said and "its items stay unchanged" in said, said
    assert {item["device"]["name"] for item in site[1].objects[ITEMS]} == {"gpu-a-01", "amd-a-01"}


@pytest.mark.parametrize(
    ("arguments", "token", "words"),
    [
        (["-l", "localhost,gpu-a-01"], "f" * 40, "status 403: Invalid token"),
        (["-l", "localhost,gpu-a-01", "-e", "netbox_url=ftp://x"], TOKEN, "netbox_url: found 'ftp://x'"),
        (["-e", "netbox_hosts=nobody"], TOKEN, "No host in nobody"),
        (["-e", "netbox_urll=http://x"], TOKEN, "nearest: 'netbox_url'"),
    ],
)
def test_one_clear_error(site, arguments, token, words):
    rc, said, _changed = run(site, *arguments, token=token)
    assert rc != 0 and words in said and not site[1].wrote, said
