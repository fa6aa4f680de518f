# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.host_library import (
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


@pytest.mark.slow
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


# What systemd runs before a unit is active or has stopped: how many modules of the collection it loads, and which of
# Python's, with what those load. Each one costs up to 5 ms at every start and stop.
PYTHON = "contextlib dataclasses errno fcntl grp hashlib http.client ipaddress json os re socket ssl threading"
AT_START_OR_STOP = {
    "vllm-drain": (13, PYTHON),
    "vllm-wait-ready": (14, f"{PYTHON} concurrent.futures.thread random"),
    "vllm-preload": (10, f"{PYTHON} subprocess"),
    "vllm-residents": (23, f"{PYTHON} concurrent.futures.thread subprocess traceback uuid"),
}


def loaded_by(code: str) -> set[str]:
    """Return the modules that code loads in a Python without site-packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.parametrize("name", AT_START_OR_STOP)
def test_a_start_or_stop_loads_few_modules(name, tmp_path):
    path = installed(name, tmp_path)
    number, python = AT_START_OR_STOP[name]
    found = loaded_by(f"import runpy; runpy.run_path({str(path)!r}, run_name='door')")
    own = {module for module in found if module.startswith("ansible_collections.") and module.count(".") > 5}
    allowed = loaded_by(f"import runpy, {python.replace(' ', ', ')}, typing, datetime, __future__, pkgutil")
    others = {module for module in found - allowed if not module.startswith("ansible_collections")}
    assert (len(own), others) == (number, set()), sorted(own)
