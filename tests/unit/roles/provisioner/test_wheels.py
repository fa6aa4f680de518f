# SPDX-License-Identifier: GPL-3.0-or-later
"""A provisioner at a site without internet: the carried disk has its wheels, and pip takes them from the mirror."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import parse_lock
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.wheelhouse_host import read_lock

from tests.fakes.inventory_plugin import TOP
from tests.fakes.wheelhouse import make_wheel
from tools.prune_lock import wanted_by

ROLE = TOP / "roles/provisioner"
# A network of its own: the mirror answers at its address, and nothing else is there.
NETWORK = """
set -eu
ip link set lo up
ip address add 198.51.100.5/32 dev lo
"$1" -m http.server --bind 198.51.100.5 --directory "$2" 80 &
trap "kill $!" EXIT
until "$1" -c 'import socket; socket.create_connection(("198.51.100.5", 80))' 2>/dev/null; do sleep 0.1; done
"$3" -i localhost, "$4"
"""


@pytest.mark.parametrize("path", sorted((ROLE / "files").glob("ironic-*.txt")), ids=lambda path: path.stem)
def test_the_carried_lock_is_what_the_role_installs_with_this_python(path):
    carried = parse_lock(read_lock(str(path)))
    installed = parse_lock(wanted_by((ROLE / "files/ironic.txt").read_text(), carried.target.python))
    assert path.stem == f"ironic-cp{carried.target.python.replace('.', '')}-{carried.target.machine}"
    assert {pin.name: pin.version for pin in carried.pins.values()} == {
        pin.name: pin.version for pin in installed.pins.values()
    }
    assert all(pin.hashes <= installed.pins[name].hashes for name, pin in carried.pins.items())


def test_the_role_names_no_address_of_the_internet_but_in_two_options():
    """What a site sets to its mirrors is all that the role and its programs ask."""
    named = {
        address
        for path in ROLE.rglob("*")
        if path.is_file() and path.suffix not in (".md", ".in") and "argument_specs" not in path.name
        for line in path.read_text().splitlines()
        for address in re.findall(r"https?://[a-z0-9-]+\.[a-z0-9./-]+", line)
        if not line.startswith("#")
    }
    assert named == {"https://pypi.org/simple/", "http://deb.debian.org/debian"}


@pytest.mark.skipif(not shutil.which("unshare") or os.geteuid() != 0, reason="needs a network namespace")
def test_pip_takes_the_wheels_from_the_mirror_and_needs_no_other_host(tmp_path):
    """The task of the role, in a network where only the mirror answers, without TLS as the role mirror serves it."""
    digest = make_wheel(tmp_path / "site/wheels", "foo", "1.0")
    (tmp_path / "site/simple/foo").mkdir(parents=True)
    wheel = f"../../wheels/foo-1.0-py3-none-any.whl#sha256={digest}"
    (tmp_path / "site/simple/foo/index.html").write_text(f'<a href="{wheel}">foo-1.0-py3-none-any.whl</a>')
    tasks = yaml.safe_load((ROLE / "tasks/install.yml").read_text())
    (task,) = (task for task in tasks if "hashes of the lock" in task["name"])
    (tmp_path / "ironic.txt").write_text(f"foo==1.0 --hash=sha256:{digest}\n")
    options = {
        "provisioner_python": sys.executable,
        "provisioner_wheel_index": "http://198.51.100.5/simple/",
        "__provisioner_venv": str(tmp_path),
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml")],
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [
            {"ansible.builtin.set_fact": options},
            {key: value for key, value in task.items() if key not in ("become", "notify")},
        ],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    ansible = Path(sys.executable).with_name("ansible-playbook")
    programs = [sys.executable, str(tmp_path / "site"), str(ansible), str(tmp_path / "play.yml")]
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", NETWORK, "bash", *programs],
        env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert list((tmp_path / "env/lib").glob("python3*/site-packages/foo.py"))
