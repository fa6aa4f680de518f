# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.host_library import TOP, library, modules

SERVICE = "plugins/module_utils/health/service_host.py"
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
    entries = library("/usr/local/lib/vllm-health", SERVICE)
    top = "/usr/local/lib/vllm-health/ansible_collections/baremetal/inference"
    entry = next(entry for entry in entries if entry["path"].endswith("/vendor_stack/faults.py"))
    assert entry == {
        "path": f"{top}/plugins/module_utils/vendor_stack/faults.py",
        "src": str(TOP / "plugins/module_utils/vendor_stack/faults.py"),
        "mode": "0644",
    }
