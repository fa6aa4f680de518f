# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode would change, on one screen."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.baremetal.inference.plugins.plugin_utils.common.change_table import change_of, change_table


def shown(*changes, width=110):
    return change_table([change_of(host, task) for host, task in changes], width).splitlines()


def test_hosts_that_would_change_alike_share_a_row_for_each_role():
    vllm = ("vllm : Write the files of each instance", "vllm : Restart changed instances")
    # In whatever order they answer.
    servers = [(host, task) for task in vllm for host in ("gpu-10", "gpu-2")]
    others = [("gpu-2", "health : Start the service"), ("gw-1", "gateway : Reload HAProxy"), ("", "A check")]
    assert shown(*servers, *others) == [
        "hosts          role     changes  tasks",
        "-------------  -------  -------  -----------------------------------------------------------",
        "gpu-2, gpu-10  vllm     2        Write the files of each instance; Restart changed instances",
        "gpu-2          health   1        Start the service",
        "gw-1           gateway  1        Reload HAProxy",
        "(once)                  1        A check",
    ]  # fmt: skip


def test_a_fleet_and_a_bare_server_fit_on_a_screen():
    found = shown(*((f"gpu-{host}", f"cuda : Step {step}") for host in range(1, 1001) for step in range(40)))
    assert found[2:] == ["gpu-1, gpu-2, gpu-3, gpu-4 and 996 more  cuda  40       Step 0; Step 1; Step 2; and 37 more"]


def test_the_file_of_a_task_is_left_out():
    assert shown(("a", "gateway : configure | Write the systemd units"))[2].endswith(
        "  1        Write the systemd units"
    )


def test_the_page_of_the_command_has_such_a_table():
    writes = "vllm : configure | Write the environment, arguments, secrets, start script and unit of each instance"
    servers = [(f"gpu-a-0{number}", writes) for number in (1, 2)]
    gateway = ("configure | Install certificate and key", "configure | Write the configuration of HAProxy")
    lines = shown(*servers, *(("gw1", f"gateway : {task}") for task in gateway), width=120)
    page = (Path(__file__).resolve().parents[5] / "docs/operate/command.md").read_text(encoding="utf-8")
    assert "\n".join(["What would change:", *lines]) in page


def test_a_handler_that_runs_for_several_files_is_named_once():
    assert shown(("a", "x : Copy"), ("a", "x : Copy"))[2:] == ["a      x     2        Copy"]


def test_without_changes_there_is_no_table():
    assert shown() == []
