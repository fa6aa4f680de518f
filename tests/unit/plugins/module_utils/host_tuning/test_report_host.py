# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace

from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.report_host import diff_of, refusal_of


def refusal(reasons, running=(), allowed=True):
    host = SimpleNamespace(running_instances=lambda: list(running))
    return refusal_of({"reboot_allowed": allowed, "controllers_boot": ""}, host, reasons)


def test_without_a_reason_nothing_is_refused():
    assert refusal([], ["chat"]) is None


def test_a_host_that_serves_is_not_rebooted():
    text = refusal(["iommu=pt is not active"], ["chat"])
    assert "iommu=pt is not active" in text and "chat serves requests" in text


def test_a_reboot_needs_permission():
    assert "host_tuning" in refusal(["iommu=pt is not active"], allowed=False)


def test_the_diff_has_the_value_before_and_after():
    step = SimpleNamespace(setting="governor", place="cpu0", before="powersave\n", after="")
    found = diff_of(SimpleNamespace(changes=[step]))
    assert (found["before"], found["after"]) == ("governor of cpu0: powersave\n", "governor of cpu0: none\n")
