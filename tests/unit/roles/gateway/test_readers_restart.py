# SPDX-License-Identifier: GPL-3.0-or-later
"""A restart of the service that ends slow readers gives each of them its seconds again."""

from __future__ import annotations

from pathlib import Path

import yaml

TASKS = Path(__file__).resolve().parents[4] / "roles/gateway/tasks"
RESTART = "Restart the service that ends slow readers"


def test_only_its_program_and_its_unit_restart_it():
    tasks = yaml.safe_load((TASKS / "configure.yml").read_text(encoding="utf-8"))
    restarting = [
        task["baremetal.inference.host_files"]["files"] for task in tasks if RESTART in task.get("notify", ())
    ]
    program, unit = restarting
    assert program == "{{ 'gateway-tool' | baremetal.inference.host_program }}"
    assert [file["template"] for file in unit] == ["gateway-readers.service.j2"]


def test_check_mode_reports_that_it_is_stopped():
    (start,) = [
        task
        for task in yaml.safe_load((TASKS / "run.yml").read_text(encoding="utf-8"))
        if "gateway-agent.service" in str(task.get("loop"))
    ]
    assert "'haproxy.service', 'gateway-readers.service']" in start["loop"]
    assert "('gateway-readers' not in item or __gateway_host.ends_readers)" in start["when"]
