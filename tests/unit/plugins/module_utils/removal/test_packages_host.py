# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of a host, and who has a chip open."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import RemovalError
from ansible_collections.baremetal.inference.plugins.module_utils.removal.packages_host import Packages, chip_users


def commands(answers):
    def run(words, **_options):
        if words[0] not in answers:
            raise FileNotFoundError(2, "No such file or directory", words[0])
        return answers[words[0]]

    return run


def test_a_removed_package_whose_settings_stay_is_not_installed():
    found = Packages(commands({"dpkg-query": (0, "installed bash\nconfig-files nvidia-smi\n", "")}))
    assert (found.manager, found.installed) == ("apt", ("bash",))


def test_rpm_is_asked_where_there_is_no_dpkg():
    found = Packages(commands({"rpm": (0, "installed bash\n", "")}))
    assert (found.manager, found.installed) == ("dnf", ("bash",))
    assert Packages(commands({})).manager == ""


def test_a_package_that_another_one_needs_is_refused_with_the_reason():
    answers = {"dpkg-query": (0, "installed a\n", ""), "dpkg": (1, "", "b depends on a")}
    packages = Packages(commands(answers))
    assert packages.refusal(["a"]).endswith("b depends on a")
    with pytest.raises(RemovalError, match="b depends on a"):
        packages.remove(["a"])


def test_a_process_with_a_chip_open_is_a_user_and_an_instance_or_a_daemon_is_not(tmp_path):
    for pid, node, unit in ((7, "nvidia0", "user.slice"), (8, "nvidia0", "vllm@chat.service"),
                            (9, "nvidia0", "nvidia-persistenced.service"), (10, "nvidiactl", "x.service")):  # fmt: skip
        directory = tmp_path / str(pid)
        (directory / "fd").mkdir(parents=True)
        (directory / "fd/3").symlink_to(f"/dev/{node}")
        (directory / "comm").write_text("python3\n")
        (directory / "cgroup").write_text(f"0::/{unit}\n")
    assert chip_users(["chat"], str(tmp_path)) == ["process 7 (python3) has /dev/nvidia0 open"]
