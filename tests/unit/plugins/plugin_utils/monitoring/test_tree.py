# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.monitoring.tree import JOBS, entries, scrape, whole


def test_the_directory_has_everything_and_directories_come_first():
    found = entries("/srv/monitoring", {"vllm.json": "[]\n"})
    assert [entry["path"] for entry in found[:5]] == [
        "/srv/monitoring", "/srv/monitoring/targets", "/srv/monitoring/rules", "/srv/monitoring/exporters",
        "/srv/monitoring/dashboards",
    ]  # fmt: skip
    paths = {entry["path"].removeprefix("/srv/monitoring/") for entry in found[5:]}
    assert paths >= {"targets/vllm.json", "rules/inference.yml", "exporters/dcgm.yml", "scrape.yml", "prometheus.yml"}
    assert len([path for path in paths if path.startswith("dashboards/")]) == 5
    assert all(Path(entry["src"]).is_file() for entry in found if "src" in entry)


def test_the_configuration_is_what_prometheus_reads():
    config = yaml.safe_load(whole("/srv/monitoring"))
    assert config["rule_files"] == ["/srv/monitoring/rules/*.yml"]
    assert config["scrape_configs"] == yaml.safe_load(scrape("/srv/monitoring"))["scrape_configs"]
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert set(jobs) == set(JOBS)
    assert jobs["vllm"]["file_sd_configs"] == [{"files": ["/srv/monitoring/targets/vllm.json"]}]
    assert all(jobs[name]["metrics_path"] == f"/metrics/{name}" for name in ("usage", "admission", "scale"))
    # Else the instances that the health service names would be called exported_instance.
    assert jobs["node"]["honor_labels"] is True


def test_no_target_fills_the_memory_of_prometheus():
    """Else one engine that names its metrics anew at each scrape does (tests/hostile/test_prometheus.py)."""
    for job in yaml.safe_load(whole("/srv/monitoring"))["scrape_configs"]:
        assert 906 * 16 < job["sample_limit"] <= 200_000
        assert {"body_size_limit", "label_limit", "label_name_length_limit", "label_value_length_limit"} <= set(job)
