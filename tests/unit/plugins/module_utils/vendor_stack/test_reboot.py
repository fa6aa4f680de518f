# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.reboot import boot_mark, reboot_refusal

WHY = ("nouveau is loaded",)


@pytest.mark.parametrize(
    ("allowed", "controllers", "mark", "refusal"),
    [
        (True, "other", "", None),
        (False, "other", "", "cuda_reboot_allowed is false"),
        (True, "now", "", "this host is the controller or runs on its kernel"),
        # It came back, and nothing is better.
        (True, "other", boot_mark("before", WHY), "the host was already rebooted for this"),
        # It never went down, or another reason brought it down.
        (True, "other", boot_mark("now", WHY), None),
        (True, "other", boot_mark("before", ("another",)), None),
        (True, "other", "half", None),
    ],
)
def test_a_host_is_rebooted_once_for_a_reason(allowed, controllers, mark, refusal):
    found = reboot_refusal(WHY, allowed, "now", controllers, mark, "cuda")
    assert found is None if refusal is None else refusal in found
