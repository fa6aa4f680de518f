# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pythons_host import read_pythons


def program(directory, name, mode=0o755):
    directory.mkdir(exist_ok=True)
    (directory / name).write_text("")
    (directory / name).chmod(mode)


def test_the_python3_of_the_system_is_first(tmp_path):
    system, local = tmp_path / "bin", tmp_path / "local"
    for name in ("python3.11", "python3.13", "python3.9", "python3.13-config", "python3.12m", "python2.7"):
        program(system, name)
    program(system, "python3.10", mode=0o644)
    (system / "python3").symlink_to("python3.11")
    program(local, "python3.12")
    found = read_pythons([str(system), str(local), str(tmp_path / "absent")])
    assert found == [
        *(f"{system}/python3.{minor}" for minor in (11, 13, 9)),
        f"{local}/python3.12",
    ]


def test_a_host_without_python(tmp_path):
    assert read_pythons([str(tmp_path)]) == []
