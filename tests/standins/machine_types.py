# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the drivers of each machine type; `python -m tests.standins.machine_types` writes the page of the docs."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from ansible_collections.baremetal.inference.plugins.action.driver_plan import ActionModule
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import read_cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import read_functions
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import (
    Catalogue,
    Detected,
    match,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.chips import flavour_of, hardware_of
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.packages import is_fabric
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import DriverPlan, branch_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_release
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.runtime import devices_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.vendor_stack.action import StackInputs

from tests.fakes.wheelhouse import run_module
from tests.standins.build import main as build
from tests.standins.place import MACHINES, Machine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "machine-types.md"


@dataclass(frozen=True)
class System:
    """What a machine of a vendor runs in the table: an operating system, a kernel of it, a release of vLLM."""

    title: str
    os_release: str
    kernel: str
    release: str
    options: tuple[tuple[str, Any], ...] = ()


UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'
OPENEULER = 'ID="openEuler"\nVERSION_ID="22.03"\n'
SYSTEMS = {
    "nvidia": System("Ubuntu 24.04", UBUNTU, "6.8.0-50-generic", "0.33.0"),
    "amd": System("Ubuntu 24.04", UBUNTU, "6.8.0-50-generic", "0.33.0"),
    "huawei": System(
        "openEuler 22.03",
        OPENEULER,
        "5.10.0-216.0.0.115.oe2203sp4.aarch64",
        "0.23.0",
        (("licence_accepted", True),),
    ),
}

NAMES = {"nvidia": "NVIDIA", "amd": "AMD", "huawei": "Huawei"}
# What every host gets that builds kernel modules.
COMMON = ("linux-headers-", "linux-modules-extra-", "kernel-", "dkms", "gcc", "make", "net-tools")
STACKS = {"rocm": "amdgpu", "cann": "Huawei's (davinci)"}

REPOSITORY = "https://github.com/baremetal-inference/baremetal.inference/tree/main"
HEAD = """\
# Machine types

The packages, services and devices that each type of machine gets from the roles `cuda`, `rocm` and `cann`.

Each machine is a folder of data in
[`tests/standins/machines/`]({repository}/tests/standins/machines). Tests build from it
what the kernel shows in `/sys` and `/proc`. The role `accelerator` finds the chips there as on a real host, and the
role of their stack makes a plan for a
fresh system:
{systems}.
The table leaves out what every host gets that builds kernel modules (headers, DKMS). `*` stands for one exact version
from the repositories, the same for all packages of a driver.

The column "Containers" has the names of all chips for an instance: CDI names where it is no path, else device nodes
and groups.

In a checkout, this page is made by `PYTHONPATH=.collections .venv/bin/python -m tests.standins.machine_types`.

| Machine | Found | Modules | Packages | Fabric manager | Services | Containers |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """A machine and what is made of it."""

    machine: Machine
    detected: Detected
    accelerator: Accelerator
    catalogue: Catalogue
    manager: str
    plan: DriverPlan
    more: dict[str, Any]


def row(name: str) -> Row:
    """Build a machine, find its accelerators, and plan for them."""
    machine = Machine.load(name)
    system = SYSTEMS[machine.vendor]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "etc").mkdir()
        (root / "etc/os-release").write_text(system.os_release)
        (root / "etc/group").touch()
        build(["--root", directory, "tree", name, "--kernel", system.kernel])
        return _row(machine, system, root)


def _row(machine: Machine, system: System, root: Path) -> Row:
    catalogue = load_catalogue([])
    sysfs, procfs = str(root / "standin/sys"), str(root / "standin/proc")
    detected = match(read_functions(sysfs), catalogue, read_cpu(procfs, sysfs, machine.architecture))
    accelerator = declared_accelerator(catalogue, detected.model, detected.count)
    stack = detected.stack
    planner = ActionModule.STACKS[stack]
    options = {name: spec.get("default") for name, spec in ActionModule.ARGUMENT_SPEC.items()}
    options |= {"release": system.release, **dict(system.options)}
    release = load_release(system.release, [])["stacks"][stack]
    trees = {"root": str(root), "sysfs_root": sysfs, "proc_root": procfs}
    state = _state(stack, {**trees, **{name: options[name] for name in planner.state_options}})
    state["host"]["architecture"] = machine.architecture  # the tests' own is what the module has seen
    inputs = StackInputs(planner.request(options, release), state, detected.as_dict(), catalogue)
    plan, more = planner.plan(inputs, None), planner.further_results(inputs)
    return Row(machine, detected, accelerator, catalogue, inputs.host.manager, plan, more)


def _state(stack: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what a host says on which no tool is installed."""
    before = os.environ["PATH"]
    os.environ["PATH"] = "/nowhere"
    try:
        return run_module("driver_state", stack=stack, **options)
    finally:
        os.environ["PATH"] = before


def line(found: Row) -> str:
    """Return a machine's line of the table."""
    switches = f", {len(found.detected.switches)} switches" if found.detected.switches else ""
    cells = (
        found.machine.title,
        f"{found.detected.model} x {found.detected.count}{switches}",
        modules_of(found),
        listed(packages_of(found)),
        fabric_of(found),
        listed(found.plan.services),
        listed(containers_of(found)),
    )
    return "| " + " | ".join(cells) + " |\n"


def listed(names: Sequence[str]) -> str:
    """Return names as a cell, a line each."""
    return "<br>".join(f"`{name}`" for name in names) or "none"


def packages_of(found: Row) -> list[str]:
    """Return the vendor's packages and installers, with their versions."""
    specs = [package.spec(found.manager) for package in found.plan.packages if not is_common(package.name)]
    return [*specs, *(installer.name for installer in found.plan.installers)]


def is_common(name: str) -> bool:
    """Return whether a package is what every host needs that builds kernel modules."""
    return name.startswith(COMMON)


def modules_of(found: Row) -> str:
    """Return which kernel modules serve the chips."""
    if found.detected.stack != "cuda":
        return STACKS[found.detected.stack]
    gpus = hardware_of(found.detected.as_dict(), found.catalogue, found.more["fabric"] == "nvlink5").gpus
    (branch,) = {branch_of(package.version) for package in found.plan.packages if package.name == "nvidia-open"} or {0}
    return f"nvidia, {flavour_of(gpus, branch)[0]}"


def fabric_of(found: Row) -> str:
    """Return whether a fabric manager comes, and why."""
    there = [package for package in found.plan.packages if is_fabric(package.name)]
    assert len(there) == (found.more.get("fabric", "none") != "none"), found
    return {"nvswitch": "yes: NVSwitches on PCI", "nvlink5": "yes: NVLink 5", "none": "no"}[
        found.more.get("fabric", "none")
    ]


def containers_of(found: Row) -> list[str]:
    """Return the names by which containers are given all chips; runs of device nodes in short."""
    names = devices_of(found.accelerator, ())
    nodes = [name for name in names if re.search(r"\d$", name)]
    rest = [name for name in names if name not in nodes]
    short = [f"{nodes[0]} to {nodes[-1]}"] if nodes else []
    return [*short, *rest, *(f"group {name}" for name in found.accelerator.groups)]


def page() -> str:
    """Return the text of the page."""
    names = sorted(path.name for path in MACHINES.iterdir())
    rows = sorted(
        (row(name) for name in names), key=lambda found: (list(SYSTEMS).index(found.machine.vendor), found.machine.name)
    )
    systems = "; ".join(
        f"{system.title} with vLLM {system.release} on {NAMES[name]}" for name, system in SYSTEMS.items()
    )
    return HEAD.format(systems=systems, repository=REPOSITORY) + "".join(map(line, rows))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
