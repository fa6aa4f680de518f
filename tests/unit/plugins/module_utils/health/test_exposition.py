# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann import counters as cann
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.counters import parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.health.exposition import (
    SERIES,
    Labels,
    Sample,
    chip_samples,
    render,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

from tests.fakes.ascend import duo_table

TOP = Path(__file__).resolve().parents[5]
LABELS = Labels("gpu-01", "nvidia", "h200", {"chat": ["0000:1b:00.0"], "all": [], "other": ["0000:5d:00.0"]})


def recorded(name):
    """Return what nvidia-smi said on a real machine."""
    text = (TOP / "tests/fixtures" / name).read_text()
    return json.loads(text)["report"]["out"] if name.endswith(".json") else text


RECORDINGS = (
    "h200/nvidia-smi-q.xml", "h200/cuda-recording.json", "h200/cuda-recording-2.json", "h100/cuda-recording.json",
)  # fmt: skip


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_chip_has_the_whole_vocabulary_that_its_tool_reports(name):
    chip = parse_counters([CommandResult(0, recorded(name))], "").chips[-1]
    text = render(chip_samples(Labels("gpu-01", "nvidia", name[:4], {"chat": [chip.chip]}), [chip]))
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    # Energy is the only one of a chip's figures that nvidia-smi -q does not have.
    assert names >= {
        "accel_info", "accel_utilization_ratio", "accel_memory_used_bytes", "accel_memory_total_bytes",
        "accel_temperature_celsius", "accel_power_watts", "accel_power_limit_watts", "accel_clock_hertz",
        "accel_errors_total", "accel_power_capped", "accel_link_lanes", "accel_link_lanes_max",
        "accel_link_generation",
    }  # fmt: skip
    # Every one has the labels of the vocabulary.
    own = f'{{host="gpu-01",vendor="nvidia",model="{name[:4]}",chip="{chip.chip}",instance="chat"'
    assert all(own in line for line in text.splitlines() if not line.startswith("#"))


def test_the_figures_of_the_recorded_h200():
    chips = parse_counters([CommandResult(0, recorded("h200/nvidia-smi-q.xml"))], "").chips
    text = render(chip_samples(Labels("gpu-01", "nvidia", "h200", {}), chips))
    assert f'accel_memory_total_bytes{{host="gpu-01",vendor="nvidia",model="h200",chip="{chips[0].chip}"' in text
    assert "} 150754820096" in text and 'clock="sm"} 375000000' in text
    assert "accel_errors_total" in text and 'error="PCIe replays"} 1\n' in text and 'sensor="gpu"} 39\n' in text


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not here (Debian's package prometheus)")
@pytest.mark.parametrize("name", RECORDINGS)
def test_prometheus_can_read_what_a_recorded_chip_becomes(name):
    chips = parse_counters([CommandResult(0, recorded(name))], "").chips
    text = render(chip_samples(Labels("gpu-01", "nvidia", name[:4], {}), chips))
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_chips_behind_one_address_are_two_series():
    table = CommandResult(0, duo_table("one_card"))
    labels = Labels("npu-01", "ascend", "ascend_310p", {"chat": ["0000:01:00.0"]})
    lines = [
        line
        for line in render(chip_samples(labels, cann.parse_counters(table, {}).chips)).splitlines()
        if line.startswith("accel_info")
    ]
    assert lines == [
        'accel_info{host="npu-01",vendor="ascend",model="ascend_310p",chip="0000:01:00.0",instance="chat"} 1',
        'accel_info{host="npu-01",vendor="ascend",model="ascend_310p",chip="0000:01:00.0/1",instance="chat"} 1',
    ]


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
