# SPDX-License-Identifier: GPL-3.0-or-later
"""The rounds of the health service; tests/unit/roles/health/test_service.py runs it as a process."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health import service_host
from ansible_collections.baremetal.inference.plugins.module_utils.health.questions_host import Answer, Look
from ansible_collections.baremetal.inference.plugins.module_utils.health.service_host import Service
from ansible_collections.baremetal.inference.plugins.module_utils.health.settings_host import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.instance.systemd import Unit
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.counters import (
    ChipCounters,
    CountersAnswer,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

CHIP, NETWORK_CARD = "0000:5d:00.0", "0000:3a:00.0"
FATAL = "PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"


@pytest.fixture
def service(tmp_path, monkeypatch):
    settings = Settings(
        "gpu-01", "cuda", "nvidia", "h200", faults_of_host("cuda"), [CHIP], {"chat": [CHIP]}, restart=False,
        state_dir=str(tmp_path), config_dir=str(tmp_path), run_dir=str(tmp_path), boot_id=str(tmp_path / "boot"),
    )  # fmt: skip
    # The service knows the chips of chat; those of code may be any.
    for name in ("chat", "code"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.yaml").write_text("port: 8000\n")
    units = dict.fromkeys(("chat", "code"), Unit("active", "running", "a1"))
    monkeypatch.setattr(service_host, "read_units", lambda names: {name: units[name] for name in names})
    return Service(settings)


def logged(service, address):
    service.log._read(f"3,{service.log.last + 1},99000000,-;pcieport {address}: AER: {FATAL}")


def test_an_error_of_pcie_concerns_the_chips_of_this_host_alone(service):
    logged(service, NETWORK_CARD)
    service.tick(None, None)
    assert not service.ledger.marks
    logged(service, CHIP)
    service.tick(None, None)
    assert {mark.instance for mark in service.ledger.marks.values()} == {"chat", "code"}


def test_a_fault_is_saved_before_anybody_hears_of_it(service, monkeypatch):
    """A stop of the service between the two, and a boot, would forget it, and the gateways would be told: well."""
    heard = []

    def hear(*_words):
        heard.append(json.dumps(json.loads(Path(service.state.path).read_text())["ledger"]))
        return ""

    monkeypatch.setattr(service.instances, "tell", hear)
    monkeypatch.setattr(service.announcements, "new", lambda marks: [hear()])
    logged(service, CHIP)
    service.tick(None, None)
    assert len(heard) == 3 and all("aer_fatal" in saved for saved in heard)


def sick(service):
    return {mark.instance for mark in service.ledger.marks.values()}


def test_an_engine_that_still_starts_is_not_dead(service, tmp_path):
    """Its unit is active while vLLM loads the model, and /health says 503."""
    looks = {"chat": Look(503, {}), "code": Look(503, {})}
    (tmp_path / "code/ready").touch()
    for _time in range(3):
        service.tick(None, looks)
    assert sick(service) == {"code"}


def test_a_chip_that_is_missing_from_one_answer_is_still_there(service):
    """A driver that resets a chip lists it again with the next answer."""
    empty, whole = (Answer(CountersAnswer(chips), 0.1) for chips in ((), (ChipCounters(CHIP),)))
    for answer in (empty, whole, empty, whole):
        service.tick(answer, None)
        assert not sick(service)
    for answer in (empty, empty):
        service.tick(answer, None)
    assert "chat" in sick(service)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link away")
def test_metrics_go_through_a_link_of_root_and_not_through_one_of_another_user(service, tmp_path, capsys):
    """Prometheus's user owns the directory above that of the metrics, and can put a link in its place at any time."""
    for name in ("site", "others"):
        (tmp_path / f"{name}-metrics").mkdir()
        (tmp_path / name).symlink_to(f"{name}-metrics")
    os.lchown(tmp_path / "others", 65534, 65534)
    for name in ("site", "others"):
        service.settings = replace(service.settings, metrics=f"{tmp_path}/{name}/health.prom")
        service.write(changed=True)
    assert (tmp_path / "site-metrics/health.prom").is_file()
    assert not list((tmp_path / "others-metrics").iterdir())
    assert f"cannot be written: {tmp_path}/others is a link of another user (uid 65534)" in capsys.readouterr().out
