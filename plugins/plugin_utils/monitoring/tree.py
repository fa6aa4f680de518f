# SPDX-License-Identifier: GPL-3.0-or-later
"""Put together the directory that Prometheus and Grafana read."""

from pathlib import Path
from typing import Any, Mapping

from .dashboards import dashboards

SOURCE = Path(__file__).resolve().parents[3] / "playbooks/files/monitoring"
# What playbooks/files/monitoring has as files, by directory.
PARTS = ("rules", "exporters")
# The labels of the health service go before those of the target.
HONOR = "    honor_labels: true\n"
# The gateway serves the tokens of its clients, who waits in it, and how many replicas work, beside HAProxy's figures.
OF_GATEWAY = "    metrics_path: /metrics/{}\n"
JOBS = {
    "vllm": "",
    "haproxy": "",
    "usage": OF_GATEWAY.format("usage"),
    "admission": OF_GATEWAY.format("admission"),
    "scale": OF_GATEWAY.format("scale"),
    "node": HONOR,
}


# Series that a target may have, else Prometheus takes none of it and up is 0: an engine that makes new names at each
# scrape fills the memory of Prometheus. vLLM 0.33.0 has 906 for each engine, HAProxy about 90 for each server.
SERIES = {"vllm": 20_000, "node": 20_000}
SERIES_OF_GATEWAY = 200_000
# Bytes of an answer, labels of a series, and the characters of a name and a value.
_MOST = {"body_size_limit": "64MB", "label_limit": 40, "label_name_length_limit": 200, "label_value_length_limit": 2000}
BOUNDS = "".join(f"    {name}: {most}\n" for name, most in _MOST.items())


def entries(directory: str, targets: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return directories and files below ``directory`` as host_files takes them; ``targets`` are texts by name."""
    found: list[dict[str, Any]] = [
        {"path": f"{directory}{part}", "state": "directory", "mode": "0755"}
        for part in ("", "/targets", *(f"/{part}" for part in PARTS), "/dashboards")
    ]
    found += [_file(f"{directory}/targets/{name}", content=text) for name, text in targets.items()]
    found += [
        _file(f"{directory}/{part}/{path.name}", src=str(path))
        for part in PARTS
        for path in sorted((SOURCE / part).iterdir())
        if path.suffix == ".yml"
    ]
    boards = dashboards(SOURCE / "dashboards.yml")
    found += [_file(f"{directory}/dashboards/{name}", content=text) for name, text in boards.items()]
    found.append(_file(f"{directory}/scrape.yml", content=scrape(directory)))
    found.append(_file(f"{directory}/prometheus.yml", content=whole(directory)))
    return found


def _file(path: str, **more: str) -> dict[str, Any]:
    return {"path": path, "mode": "0644", **more}


def scrape(directory: str) -> str:
    """Return the file that ``scrape_config_files`` of Prometheus 2.43 and later includes."""
    return f"# Written by playbooks/monitoring.yml.\nscrape_configs:\n{_jobs(directory)}"


def whole(directory: str) -> str:
    """Return a whole configuration, for a Prometheus that has none yet, or that is older."""
    return (
        "# Written by playbooks/monitoring.yml: an example of a whole configuration.\n"
        "global:\n  scrape_interval: 15s\n  evaluation_interval: 15s\n"
        f"rule_files:\n  - {directory}/rules/*.yml\n"
        f"scrape_configs:\n{_jobs(directory)}"
    )


def _jobs(directory: str) -> str:
    return "".join(
        f"  - job_name: {job}\n{more}    sample_limit: {SERIES.get(job, SERIES_OF_GATEWAY)}\n{BOUNDS}"
        f"    file_sd_configs:\n      - files: [{directory}/targets/{job}.json]\n"
        for job, more in JOBS.items()
    )
