# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.counters import parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.health.exposition import (
    SERIES,
    Labels,
    Sample,
    chip_samples,
    render,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

TOP = Path(__file__).resolve().parents[5]
LABELS = Labels("gpu-01", "nvidia", "h200", {"chat": ["0000:1b:00.0"], "all": [], "other": ["0000:5d:00.0"]})


def test_the_recorded_h200_has_the_whole_vocabulary_that_its_tool_reports():
    report = (TOP / "tests/fixtures/h200/nvidia-smi-q.xml").read_text()
    chips = parse_counters([CommandResult(0, report)], "").chips
    text = render(chip_samples(Labels("gpu-01", "nvidia", "h200", {}), chips))
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    # Energy is the only one of a chip's figures that nvidia-smi -q does not have.
    assert names >= {
        "accel_info", "accel_utilization_ratio", "accel_memory_used_bytes", "accel_memory_total_bytes",
        "accel_temperature_celsius", "accel_power_watts", "accel_power_limit_watts", "accel_clock_hertz",
        "accel_errors_total", "accel_power_capped", "accel_link_lanes", "accel_link_lanes_max",
        "accel_link_generation",
    }  # fmt: skip
    assert f'accel_memory_total_bytes{{host="gpu-01",vendor="nvidia",model="h200",chip="{chips[0].chip}"' in text
    assert "} 150754820096" in text and 'clock="sm"} 375000000' in text


def test_the_labels_of_a_chip_name_the_instances_that_use_it():
    assert LABELS.of_chip("0000:1b:00.0")["instance"] == "all,chat"
    assert LABELS.of_instance("chat", fault="xid 79") == {"host": "gpu-01", "instance": "chat", "fault": "xid 79"}


def test_series_come_together_with_their_type_and_values_are_quoted():
    samples = [
        Sample("accel_info", {"chip": "a"}, 1),
        Sample("vllm_unit_active", {"instance": 'x"\\\n'}, 0),
        Sample("accel_info", {"chip": "b"}, 1),
    ]
    assert render(samples).splitlines() == [
        f"# HELP accel_info {SERIES['accel_info'][1]}",
        "# TYPE accel_info gauge",
        'accel_info{chip="a"} 1',
        'accel_info{chip="b"} 1',
        f"# HELP vllm_unit_active {SERIES['vllm_unit_active'][1]}",
        "# TYPE vllm_unit_active gauge",
        'vllm_unit_active{instance="x\\"\\\\\\n"} 0',
    ]


def test_no_series_without_a_type():
    with pytest.raises(KeyError):
        render([Sample("accel_invented", {}, 1)])


def test_counters_end_as_prometheus_wants_it():
    assert all(name.endswith("_total") is (kind == "counter") for name, (kind, _text) in SERIES.items())
    assert len([name for name in SERIES if name.startswith("accel_")]) >= 12
