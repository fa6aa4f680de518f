# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.host_library import (
    LEFT_BEHIND,
    TOP,
    modules,
    program_files,
)

from tests.fakes.programs import installed

SERVICE = "plugins/module_utils/health/service_host.py"
# The programs that import modules of the collection; those of the ramdisk have the packages of its build beside them.
DOORS = sorted(
    path
    for path in TOP.glob("roles/*/files/*.py")
    if "ansible_collections." in path.read_text() and "provisioner" not in path.parts
)
TUNING = "plugins/module_utils/host_tuning/program_host.py"


def test_the_library_holds_what_the_service_imports():
    needed = {SERVICE, "plugins/module_utils/health/ledger.py", "plugins/module_utils/cuda/counters.py"}
    assert needed <= set(modules(SERVICE))


@pytest.mark.parametrize("module", [SERVICE, TUNING])
def test_the_library_holds_nothing_of_the_controller(module):
    assert module in modules(module)
    assert all(name.startswith("plugins/module_utils/") for name in modules(module))


def test_one_program_does_not_carry_the_other():
    assert not any("/health/" in name for name in modules(TUNING))


def test_the_layout_is_that_of_the_collection():
    entries = program_files("vllm-health")
    top = "/usr/local/lib/vllm-health/ansible_collections/baremetal/inference"
    entry = next(entry for entry in entries if entry["path"].endswith("/vendor_stack/faults.py"))
    assert entry == {
        "path": f"{top}/plugins/module_utils/vendor_stack/faults.py",
        "src": str(TOP / "plugins/module_utils/vendor_stack/faults.py"),
        "mode": "0644",
    }


def test_the_program_comes_last_because_it_may_start_at_any_time():
    entry = {
        "path": "/usr/local/lib/vllm-health.py",
        "src": str(TOP / "roles/health/files/vllm-health.py"),
        "mode": "0644",
    }
    assert program_files("vllm-health")[-1] == entry


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_what_an_earlier_release_left_is_removed_after_what_no_longer_imports_it(name):
    entries = program_files(name)
    absent = [{"path": path, "state": "absent"} for path in LEFT_BEHIND[name]]
    assert absent and entries[-len(absent) :] == absent
    assert not {entry["path"] for entry in entries[: -len(absent)]} & set(LEFT_BEHIND[name])


@pytest.mark.parametrize("program", DOORS, ids=lambda path: path.stem)
def test_a_program_runs_from_its_own_modules_beside_another_ansible(program, tmp_path):
    """A host's own Ansible has a package of the same name, which has an __init__.py."""
    foreign = tmp_path / "site/ansible_collections"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    path = installed(program.stem, tmp_path / "lib")
    code = f"import runpy; runpy.run_path({str(path)!r}, run_name='door')"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True, text=True, check=False, cwd="/", env={"PYTHONPATH": f"{path.parent}:{tmp_path / 'site'}"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", DOORS, ids=lambda path: path.stem)
def test_what_a_program_runs_lies_in_module_utils(program):
    assert len(program.read_text().splitlines()) <= 50
