# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.exposition import Labels
from ansible_collections.baremetal.inference.plugins.module_utils.health.figures_host import (
    drift_figures,
    weights_figures,
    worked_figures,
)
from ansible_collections.baremetal.inference.plugins.module_utils.slots.host import Slots
from ansible_collections.baremetal.inference.plugins.module_utils.slots.installed_host import Host

from tests.fakes.systemd import FakeInstances

LABELS = Labels("gpu-01", "nvidia", "h200", {})


@pytest.fixture
def there(tmp_path):
    """The files of the instance chat, with a kept good state."""
    made = FakeInstances(tmp_path / "root")
    made.template("chat")
    slots = Slots(Host(str(made.root), lambda _engine, ref: f"sha256:{ref}"), "chat")
    with slots.locked():
        slots.keep(slots.host.state("chat"), {}, None, 2)
    return made


def drift(there):
    return [(sample.labels["instance"], sample.value) for sample in drift_figures(LABELS, ["chat"], str(there.root))]


def test_a_file_that_somebody_has_changed_is_drift(there):
    assert drift(there) == [("chat", 0.0)]
    path = there.root / "etc/vllm/chat.yaml"
    before = path.read_text()
    path.write_text(f"{before}# by hand\n")
    assert drift(there) == [("chat", 1.0)]
    path.write_text(before)
    assert drift(there) == [("chat", 0.0)]


def test_a_missing_file_is_drift(there):
    (there.root / "etc/vllm/chat.env").unlink()
    assert drift(there) == [("chat", 1.0)]


def test_an_instance_without_a_kept_state_has_no_figure(there):
    assert drift_figures(LABELS, ["other"], str(there.root)) == []


def test_a_damaged_slot_has_no_figure(there):
    for path in (there.root / "var/lib/vllm/chat/slots").glob("*/slot.json"):
        path.write_text("{")
    assert drift(there) == []


def test_a_missing_report_of_the_scrub_gives_no_figure(tmp_path):
    path = tmp_path / "report.json"
    assert weights_figures({"host": "gpu-01"}, str(path)) == []
    path.write_text(json.dumps({"damaged": ["a"], "finished": 7}))
    assert [sample.value for sample in weights_figures({"host": "gpu-01"}, str(path))] == [1.0, 7.0]


def test_the_loops_of_services_of_instances_are_figures_too(tmp_path):
    for name, text in {
        "gpu0": '{"turns": 5, "chat": 7.5}',
        "odd": "[]",
        "cut": '{"turns"',
        "words": '{"turns": "x"}',
    }.items():
        (tmp_path / "vllm-residents" / name).mkdir(parents=True)
        (tmp_path / "vllm-residents" / name / "worked").write_text(text)
    found = worked_figures({"host": "h"}, {"tool": 3.0}, [f"{tmp_path}/vllm-residents/*/worked"])
    assert [(each.labels["service"], each.labels["loop"], each.value) for each in found] == [
        ("vllm-health", "tool", 3.0),
        ("vllm-residents@gpu0", "chat", 7.5),
        ("vllm-residents@gpu0", "turns", 5.0),
    ]
