# SPDX-License-Identifier: GPL-3.0-or-later
"""Module, action plugin and role as a user runs them, on this machine with PCI trees of other hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from tests.fakes.actions import ACTIONS, read_result, run_action
from tests.fakes.own_chip import ACME
from tests.fakes.sysfs import ASPEED, line, lines, write_procfs, write_sysfs, x86

ROOT = Path(__file__).parents[4]

# Each host: its PCI functions, and what its inventory says.
HOSTS = {
    "hgx": (lines("10de:2335", 8), {"accelerator": "h200", "accelerator_count": 8}),
    "undeclared": (lines("1002:74a1", 8, pci_class="1200"), {}),
    "plain": ([ASPEED], {"accelerator": "cpu"}),
    "mixed": ([*lines("10de:2335", 8), *lines("10de:26b9", 2, first=0x60)], {"accelerator": "h200"}),
    "missing_one": (lines("10de:2335", 7), {"accelerator": "h200", "accelerator_count": 8}),
    "empty": ([ASPEED], {"accelerator": "h200"}),
    "misspelt": (lines("10de:2335", 8), {"accelerator": "h20O"}),
    "unknown": (lines("10de:9999", 1), {"accelerator": "h200"}),
    "old_gpu": (lines("10de:1db5", 2), {}),
    "old_cpu": ([ASPEED], {}),
    "own_chip": ([line("abcd:0001", 1, "1200")], {"accelerator": "rocket", "accelerator_catalog_path": ["OWN"]}),
    "own_catalogue_is_missing": ([ASPEED], {"accelerator_catalog_path": ["/nope"]}),
    "no_sysfs": (None, {}),
}
# Hosts for which a run of ansible-playbook runs the role; for the others its action is run in this process.
BY_THE_ROLE = ("hgx", "mixed", "missing_one", "own_chip")
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - block:
        - ansible.builtin.include_role:
            name: baremetal.inference.accelerator
          vars:
            accelerator_sysfs_root: "{{ tree }}/sys"
            accelerator_proc_root: "{{ tree }}/proc"
      rescue:
        - ansible.builtin.set_fact:
            failure: "{{ ansible_failed_result.msg }}"
    - keep_result:
        value:
          failure: "{{ failure | default(none) }}"
          fact: "{{ ansible_facts.accelerator_detected | default(none) }}"
        dest: "{{ tree }}/result.json"
"""


def write_host(tree, name, functions, variables):
    if functions is not None:
        write_sysfs(tree / "sys", functions)
    write_procfs(tree / "proc", x86("fpu sse4_2") if name == "old_cpu" else None)
    paths = [
        str(tree.parent / "own") if path == "OWN" else path for path in variables.get("accelerator_catalog_path", [])
    ]
    return {**variables, **({"accelerator_catalog_path": paths} if paths else {}), "tree": str(tree)}


def run(command, *arguments):
    environment = {
        **os.environ,
        "ANSIBLE_ACTION_PLUGINS": str(ACTIONS),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }
    program = Path(sys.executable).with_name(command)
    return subprocess.run(
        [program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Run the role over some hosts in check mode, and its action over the others; return output and what each got."""
    root = tmp_path_factory.mktemp("fleet")
    (root / "own").mkdir()
    (root / "own" / "acme.yml").write_text(ACME)
    hosts = {name: write_host(root / name, name, *HOSTS[name]) for name in HOSTS}
    connection = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    listed = {"hosts": {name: hosts.pop(name) for name in BY_THE_ROLE}, "vars": connection}
    (root / "hosts.json").write_text(json.dumps({"all": listed}))
    (root / "play.yml").write_text(PLAYBOOK)
    done = run("ansible-playbook", "-i", root / "hosts.json", "--forks=4", "--check", root / "play.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {name: read_result(root / name / "result.json") for name in BY_THE_ROLE}
    return done, {**found, **{name: inspected(name, variables) for name, variables in hosts.items()}}


def inspected(name, variables):
    """Run the action as the role does."""
    options = {
        "declared": variables.get("accelerator"),
        "declared_count": variables.get("accelerator_count"),
        "require_usable": True,
        "catalog_path": variables.get("accelerator_catalog_path", []),
        "sysfs_root": f"{variables['tree']}/sys",
        "proc_root": f"{variables['tree']}/proc",
    }
    try:
        result = run_action("accelerator_info", options, {"inventory_hostname": name, **variables})
    except AnsibleActionFail as exc:
        return {"failure": str(exc), "fact": None}
    if result.get("failed"):
        return {"failure": result["msg"], "fact": None}
    return {"failure": None, "fact": result["ansible_facts"]["accelerator_detected"]}


@pytest.mark.parametrize(
    ("host", "model", "stack", "count"),
    [
        ("hgx", "h200", "cuda", 8),
        ("undeclared", "mi300x", "rocm", 8),
        ("plain", "cpu", "cpu", 1),
        ("mixed", "h200", "cuda", 8),
        ("own_chip", "rocket", "acme", 1),
    ],
)
def test_a_good_host_gets_its_fact(fleet, host, model, stack, count):
    result = fleet[1][host]
    assert result["failure"] is None
    assert (result["fact"]["model"], result["fact"]["stack"], result["fact"]["count"]) == (model, stack, count)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("missing_one", "missing_one: declared h200 x 8, found h200 x 7 at 0000:10:00.0, "),
        (
            "empty",
            "empty: declared h200, found no accelerator (processor: Intel(R) Xeon(R) 6980P); correct accelerator",
        ),
        ("misspelt", "misspelt: accelerator 'h20O' of the inventory is in no file of the catalogue; nearest: 'h20'"),
        ("unknown", "unknown: unknown accelerator of NVIDIA: 10de:9999 (class 0302) at 0000:10:00.0 is not in "),
        ("old_gpu", "old_gpu: nothing can be served on NVIDIA V100: vLLM needs compute capability 7.5, "),
        ("old_cpu", "old_cpu: found no accelerator, and the processor (Intel(R) Xeon(R) 6980P) has no AVX2"),
        ("own_catalogue_is_missing", "own_catalogue_is_missing: accelerator_catalog_path: /nope is not a directory"),
    ],
)
def test_a_bad_host_gets_one_sentence_and_no_fact(fleet, host, message):
    result = fleet[1][host]
    assert result["failure"].startswith(message)
    assert result["fact"] is None


def test_a_host_without_sysfs_is_an_error_and_not_a_host_without_accelerators(fleet):
    assert "no_sysfs/sys: no sysfs there" in fleet[1]["no_sysfs"]["failure"]


def test_a_mixed_host_is_warned_about(fleet):
    output = " ".join((fleet[0].stdout + fleet[0].stderr).split())
    assert "mixed: several accelerators (h200 x 8, l40s x 2); models are planned for h200 only" in output


def test_the_role_reaches_each_host_once_and_changes_nothing(fleet):
    recap = next(row for row in fleet[0].stdout.splitlines() if row.startswith("hgx "))
    # These stay on the controller: include_role, validated arguments, the test's result.
    assert "ok=4 " in recap
    assert "changed=0 " in recap


def test_the_module_alone_says_what_is_there_and_judges_nothing(tmp_path):
    write_host(tmp_path, "unknown", lines("10de:9999", 1), {})
    roots = {"sysfs_root": str(tmp_path / "sys"), "proc_root": str(tmp_path / "proc")}
    module = ("ansible", "-i", "localhost,", "localhost", "-c", "local", "-m", "baremetal.inference.accelerator_info")
    done = run(*module, "-a", json.dumps(roots))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "model: unknown" in done.stdout
    done = run(*module, "-a", json.dumps({**roots, "require_usable": True}))
    assert done.returncode == 2
    assert "10de:9999 (class 0302) at 0000:10:00.0" in " ".join((done.stdout + done.stderr).split())


def test_rdma_devices_are_those_near_the_chips_that_serve(tmp_path):
    entries = [*lines("10de:2335", 2), *lines("10de:26b9", 1, first=0x60)]
    variables = write_host(tmp_path, "near", entries, {})
    devices = tmp_path / "sys/bus/pci/devices"
    chips = sorted(path.name for path in devices.iterdir())
    for number, address in enumerate([*chips, "0000:18:00.0"]):
        # The first chip, the chip of another model and the card are below one root port.
        real = tmp_path / f"sys/devices/pci0000:00/0000:00:0{1 if number != 1 else 2}.0" / address
        real.parent.mkdir(parents=True, exist_ok=True)
        if (devices / address).exists():
            (devices / address).rename(real)
        else:
            real.mkdir()
            (real / "vendor").write_text("0x15b3\n")
        (devices / address).symlink_to(real)
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port.parents[1] / "device").symlink_to(devices / "0000:18:00.0")
    fact = inspected("near", variables)["fact"]
    assert fact["model"] == "h200"
    assert fact["rdma"] == [{"name": "mlx5_0", "address": "0000:18:00.0", "near": {chips[0]: 1}}]
    (port / "state").write_text("1: DOWN\n")
    assert "rdma" not in inspected("near", variables)["fact"]
