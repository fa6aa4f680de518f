# SPDX-License-Identifier: GPL-3.0-or-later
"""The series of the vendors' exporters under the names of the health service, by promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.health.exposition import SERIES

TOP = Path(__file__).resolve().parents[3]
FILES = sorted((TOP / "playbooks/files/monitoring/exporters").glob("*.yml"))
PROMTOOL = shutil.which("promtool")
D = 'gpu="0",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",modelName="NVIDIA H200",Hostname="gpu-01"'
A = 'gpu_id="0",card_model="MI300X",hostname="gpu-02"'
N = 'id="3",model_name="910B3",vdie_id="1",host="npu-01"'
# Of each exporter: a scrape in its form, and what the rules have to make of it: series, labels, value.
CASES = {
    "dcgm": (
        {
            f"DCGM_FI_DEV_GPU_TEMP{{{D}}}": 41, f"DCGM_FI_DEV_MEMORY_TEMP{{{D}}}": 52,
            f"DCGM_FI_DEV_GPU_UTIL{{{D}}}": 37, f"DCGM_FI_DEV_FB_USED{{{D}}}": 1024,
            f"DCGM_FI_DEV_FB_FREE{{{D}}}": 3072, f"DCGM_FI_DEV_POWER_USAGE{{{D}}}": 305.5,
            f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{D}}}": 5000, f"DCGM_FI_DEV_SM_CLOCK{{{D}}}": 1980,
            f"DCGM_FI_DEV_MEM_CLOCK{{{D}}}": 2619, f"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{{{D}}}": 1,
            f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{{{D}}}": 2, f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{D}}}": 3,
            f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{D}}}": 1,
        },
        {
            "accel_info": 1, "accel_utilization_ratio": 0.37, "accel_memory_used_bytes": 2**30,
            "accel_memory_total_bytes": 2**32, 'accel_temperature_celsius{sensor="gpu"}': 41,
            'accel_temperature_celsius{sensor="memory"}': 52, "accel_power_watts": 305.5,
            "accel_energy_joules_total": 5, 'accel_clock_hertz{clock="sm"}': 1.98e9,
            'accel_clock_hertz{clock="mem"}': 2.619e9, 'accel_errors_total{error="remapped rows (correctable)"}': 1,
            'accel_errors_total{error="remapped rows (uncorrectable)"}': 2,
            'accel_errors_total{error="PCIe replays"}': 3,
            'accel_state_fault{fault="a bad row of memory could not be replaced"}': 1,
        },
        {"vendor": "nvidia", "chip": "0000:1B:00.0", "model": "NVIDIA H200", "host": "gpu-01"},
    ),
    "amd": (
        {
            f"gpu_total_vram{{{A}}}": 4096, f"gpu_used_vram{{{A}}}": 1024, f"gpu_gfx_activity{{{A}}}": 50,
            f"gpu_junction_temperature{{{A}}}": 60, f"gpu_memory_temperature{{{A}}}": 55,
            f"gpu_power_usage{{{A}}}": 500, f"gpu_energy_consumed{{{A}}}": 7e6,
            f"gpu_ecc_correct_total{{{A}}}": 1, f"gpu_ecc_uncorrect_total{{{A}}}": 2, f"pcie_replay_count{{{A}}}": 3,
        },
        {
            "accel_info": 1, "accel_utilization_ratio": 0.5, "accel_memory_used_bytes": 2**30,
            "accel_memory_total_bytes": 2**32, 'accel_temperature_celsius{sensor="hotspot"}': 60,
            'accel_temperature_celsius{sensor="mem"}': 55, "accel_power_watts": 500, "accel_energy_joules_total": 7,
            'accel_errors_total{error="ECC correctable"}': 1, 'accel_errors_total{error="ECC uncorrectable"}': 2,
            'accel_errors_total{error="PCIe replays"}': 3,
        },
        {"vendor": "amd", "chip": "0", "model": "MI300X", "host": "gpu-02"},
    ),
    "npu": (
        {
            f"npu_chip_info_health_status{{{N}}}": 0, f"npu_chip_info_utilization{{{N}}}": 25,
            f"npu_chip_info_hbm_used_memory{{{N}}}": 1024, f"npu_chip_info_hbm_total_memory{{{N}}}": 65536,
            f"npu_chip_info_temperature{{{N}}}": 46, f"npu_chip_info_power{{{N}}}": 73.5,
        },
        {
            "accel_info": 1, "accel_utilization_ratio": 0.25, "accel_memory_used_bytes": 2**30,
            "accel_memory_total_bytes": 2**36, 'accel_temperature_celsius{sensor="chip"}': 46,
            "accel_power_watts": 73.5, 'accel_state_fault{fault="the NPU is not healthy"}': 1,
        },
        {"vendor": "ascend", "chip": "3", "model": "910B3", "host": "npu-01"},
    ),
}  # fmt: skip


def document_of(name):
    """Return a document for promtool: what each selector of a case gives, summed by the labels that it has to have."""
    scraped, made, labels = CASES[name]
    by = ", ".join(labels)
    sample = "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
    return {
        "rule_files": [str(next(path for path in FILES if path.stem == name))],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": f"{value}x5"} for key, value in scraped.items()],
                "promql_expr_test": [
                    {"expr": f"sum by ({by}) ({series})", "eval_time": "3m",
                     "exp_samples": [{"labels": sample, "value": value}]}
                    for series, value in made.items()
                ],
            }
        ],
    }  # fmt: skip


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here (Debian's package prometheus)")
@pytest.mark.parametrize("name", CASES)
def test_a_scrape_becomes_the_series_of_the_health_service(name, tmp_path):
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(document_of(name), sort_keys=False))
    done = subprocess.run([PROMTOOL, "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_rule_has_its_case_and_a_known_name(path):
    rules = [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]
    assert {rule["record"] for rule in rules} <= set(SERIES)
    source = re.compile(r"\b(?:DCGM_FI_|gpu_(?!id)|pcie_|npu_chip_)\w+")
    asked = {name for rule in rules for name in source.findall(rule["expr"])}
    scraped, made, _labels = CASES[path.stem]
    assert asked == {key.partition("{")[0] for key in scraped}
    assert len(rules) == len(made)
