# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.health.program import SERVICE, TOP, library, modules


def test_the_library_holds_what_the_service_imports_and_nothing_of_the_controller():
    assert {SERVICE, "plugins/module_utils/health/ledger.py", "plugins/module_utils/cuda/counters.py"} <= set(modules())
    assert all(name.startswith("plugins/module_utils/") for name in modules())


def test_the_layout_is_that_of_the_collection():
    entries = library("/usr/local/lib/vllm-health")
    top = "/usr/local/lib/vllm-health/ansible_collections/baremetal/inference"
    entry = next(entry for entry in entries if entry["path"].endswith("/health/faults.py"))
    assert entry == {
        "path": f"{top}/plugins/module_utils/health/faults.py",
        "src": str(TOP / "plugins/module_utils/health/faults.py"),
        "mode": "0644",
    }
