# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as an inventory has them, and the plans of a fleet of them without the planner behind."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_reader import FleetError, HostReader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import plan_fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

INSTANCES = {"chat": {"recipe": "openai/gpt-oss-20b", "port": 8000}}
HOST = {"accelerator": "h200", "accelerator_count": 8, "vllm_release": "0.33.0", "vllm_instances": INSTANCES}

PLACE = {"vllm_cluster_network": "10.0.0.0/24", "vllm_cluster_interface": "eth1"}
DETECTED = {"model": "h100", "count": 8, "memory_mib": 81559, "driver_version": "580.1"}


class HostVars:
    """Stands for Ansible's hostvars: raw variables by host."""

    def __init__(self, hosts):
        self.hosts = hosts

    def raw_get(self, name):
        return {"inventory_hostname": name, "group_names": [], "groups": {"all": list(self.hosts)}, **self.hosts[name]}


class Planner:
    """Stands for plan_host and remembers what it was asked."""

    def __init__(self, problem=None):
        self.asked = []
        self.problem = problem

    def __call__(self, host, accelerator, settings):
        self.asked.append((host, accelerator, settings))
        if self.problem:
            raise PlanError(self.problem)
        return {name: {"host": host, "instance": name, "warnings": []} for name in settings["instances"]}


def fleet_of(hosts, planner=None):
    planner = planner or Planner()
    return plan_fleet(list(hosts), HostReader(HostVars(hosts), DataLoader()), planner), planner


def settings_of(**variables):
    """Return accelerator and settings that the planner is asked with for one host."""
    found, planner = fleet_of({"a": {**HOST, **variables}})
    found.check("nothing was done")
    return planner.asked[0][1:]


def problem_of(**variables):
    found, _planner = fleet_of({"a": {**HOST, **variables}})
    with pytest.raises(FleetError) as error:
        found.check("nothing was done")
    return str(error.value)
