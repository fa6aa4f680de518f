# SPDX-License-Identifier: GPL-3.0-or-later
"""Every alert fires when it should and is quiet when it should, by promtool; every series that is asked for exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.health.exposition import SERIES

TOP = Path(__file__).resolve().parents[3]
FILES = TOP / "playbooks/files/monitoring"
RULES = FILES / "rules/inference.yml"
BOARDS = yaml.safe_load((FILES / "dashboards.yml").read_text())
TABLES = sorted((TOP / "catalog/metrics").glob("*.yml"))
PROMTOOL = shutil.which("promtool")

E = 'cluster="fra1",service="chat",host="gpu-01",instance="chat"'
U = 'host="gpu-01",instance="chat"'
C = 'host="gpu-01",vendor="nvidia",model="h200",chip="0000:5d:00.0",instance="chat"'
G = 'gateway="gw1",proxy="chat"'
B = 'gateway="gw1",kind="team",owner="ops",period="month"'
R = 'gateway="gw1",service="chat",team="product",decision="refused"'


def slow(name, limit, share):
    """Return the histogram of a latency of which a share of the requests is above a limit, for seven hours."""
    good = round(60 * (1 - share))
    return {
        f'vllm:{name}_bucket{{{E},le="{limit}"}}': f"0+{good}x420",
        f"vllm:{name}_count{{{E}}}": "0+60x420",
    }


TTFT, ITL = ("time_to_first_token_seconds", "2.5"), ("inter_token_latency_seconds", "0.1")

# Of each alert: series that make it fire, series that do not, and the minute in which both are looked at.
CASES = {
    "EngineDown": (
        {f'up{{job="vllm",{E}}}': "0x30", f"vllm_unit_scaled_down{{{U}}}": "0x30"},
        {f'up{{job="vllm",{E}}}': "0x30", f"vllm_unit_scaled_down{{{U}}}": "1x30",
         'up{job="vllm",host="gpu-02",instance="chat"}': "1x30"}, 10),
    "EngineStuck": (
        {f"vllm:num_requests_running{{{E}}}": "3x30", f"vllm:generation_tokens_total{{{E}}}": "9x30",
         f"vllm:prompt_tokens_total{{{E}}}": "9x30"},
        {f"vllm:num_requests_running{{{E}}}": "3x30", f"vllm:generation_tokens_total{{{E}}}": "9+1x30",
         f"vllm:prompt_tokens_total{{{E}}}": "9x30"}, 15),
    "QueueLong": (
        {f"vllm:num_requests_waiting{{{E}}}": "40x30", f"vllm:num_requests_running{{{E}}}": "20x30"},
        {f"vllm:num_requests_waiting{{{E}}}": "9x30", f"vllm:num_requests_running{{{E}}}": "2x30"}, 15),
    "KvCacheFull": (
        {f"vllm:kv_cache_usage_perc{{{E}}}": "0.97x30"},
        {f"vllm:kv_cache_usage_perc{{{E}}}": "0.9x30"}, 15),
    "PreemptionsMany": (
        {f"vllm:num_preemptions_total{{{E}}}": "0+30x60"}, {f"vllm:num_preemptions_total{{{E}}}": "0+1x60"}, 40),
    "FirstTokenSlowFast": (slow(*TTFT, 0.9), slow(*TTFT, 0.5), 120),
    "FirstTokenSlow": (slow(*TTFT, 0.4), slow(*TTFT, 0.2), 415),
    "TokensSlowFast": (slow(*ITL, 0.9), slow(*ITL, 0.5), 120),
    "TokensSlow": (slow(*ITL, 0.4), slow(*ITL, 0.2), 415),
    "AbortsMany": (
        {f'vllm:request_success_total{{{E},finished_reason="abort"}}': "0+5x60",
         f'vllm:request_success_total{{{E},finished_reason="stop"}}': "0+5x60"},
        {f'vllm:request_success_total{{{E},finished_reason="abort"}}': "0+1x60",
         f'vllm:request_success_total{{{E},finished_reason="stop"}}': "0+9x60"}, 45),
    "UnitNotActive": (
        {f"vllm_unit_active{{{U}}}": "0x30", f"vllm_unit_scaled_down{{{U}}}": "0x30"},
        {f"vllm_unit_active{{{U}}}": "0x30", f"vllm_unit_scaled_down{{{U}}}": "1x30",
         'vllm_unit_active{host="gpu-02",instance="chat"}': "0x10 1x20"}, 20),
    "UnitRestartsOften": (
        {f"vllm_unit_restarts_total{{{U}}}": "0+1x70"}, {f"vllm_unit_restarts_total{{{U}}}": "0x30 1x40"}, 65),
    "StartSlow": ({f"vllm_unit_start_seconds{{{U}}}": "1500x9"}, {f"vllm_unit_start_seconds{{{U}}}": "300x9"}, 5),
    "InstanceDrifted": ({f"vllm_instance_drift{{{U}}}": "1x90"}, {f"vllm_instance_drift{{{U}}}": "1x50 0x40"}, 80),
    "InstanceSick": (
        {f'vllm_instance_fault{{{U},fault="xid 79",chip="0000:5d:00.0",action="isolate_host"}}': "1x9"},
        {f"vllm_instance_healthy{{{U}}}": "1x9"}, 5),
    "InstanceSickLong": (
        {f"vllm_instance_healthy{{{U}}}": "0x1500"}, {f"vllm_instance_healthy{{{U}}}": "0x1000 1x500"}, 1450),
    "FaultReported": (
        {f'accel_faults_total{{{C},fault="xid 13",action="report"}}': "0x5 1x20"},
        {f'accel_faults_total{{{C},fault="xid 63",action="ignore"}}': "0+1x30"}, 10),
    "ChipStateBad": ({f'accel_state_fault{{{C},fault="ECC is off"}}': "1x30"}, {f"accel_info{{{C}}}": "1x30"}, 10),
    "EccErrorsNew": (
        {f'accel_errors_total{{{C},error="ECC DRAM uncorrectable"}}': "0x10 2x60"},
        {f'accel_errors_total{{{C},error="ECC DRAM correctable"}}': "0+1x70"}, 40),
    "ChipSlowed": (
        {f'accel_slowing{{{C},reason="hw_thermal_slowdown"}}': "1x30"},
        {f'accel_slowing{{{C},reason="hw_thermal_slowdown"}}': "1x5"}, 15),
    "LinkNarrow": (
        {f"accel_link_lanes{{{C}}}": "8x30", f"accel_link_lanes_max{{{C}}}": "16x30"},
        {f"accel_link_lanes{{{C}}}": "16x30", f"accel_link_lanes_max{{{C}}}": "16x30"}, 10),
    "LinkErrorsNew": (
        {f'accel_errors_total{{{C},error="XGMI correctable"}}': "0x10 40x60"},
        {f'accel_errors_total{{{C},error="NVLink CRC Errors"}}': "0x10 4x60",
         f'accel_errors_total{{{C},error="PCIe replays"}}': "0+9x70"}, 40),
    "ChipToolFails": ({'accel_tool_up{host="gpu-01"}': "0x30"}, {'accel_tool_up{host="gpu-01"}': "1x30"}, 10),
    "ChipToolSlow": ({'accel_tool_seconds{host="gpu-01"}': "45x30"}, {'accel_tool_seconds{host="gpu-01"}': "2x30"}, 15),
    "HealthSilent": (
        {'health_written_seconds{host="gpu-01"}': "0x30"}, {'health_written_seconds{host="gpu-01"}': "0+60x30"}, 10),
    "ServiceLoopFails": (
        {'health_worked_seconds{host="gpu-01",service="vllm-health",loop="tool"}': "0x30"},
        {'health_worked_seconds{host="gpu-01",service="vllm-health",loop="tool"}': "0+60x30"}, 15),
    "HealthStateDamaged": (
        {'health_state_damaged{host="gpu-01"}': "1x9"},
        {'health_state_damaged{host="gpu-01"}': "0x9"}, 5),
    "KernelLinesLost": (
        {'health_kernel_lines_lost_total{host="gpu-01"}': "0x5 4x20"},
        {'health_kernel_lines_lost_total{host="gpu-01"}': "4x30"}, 10),
    "DiskNearlyFull": (
        {'health_disk_free_ratio{host="gpu-01",directory="/var/lib/vllm"}': "0.05x30"},
        {'health_disk_free_ratio{host="gpu-01",directory="/var/lib/vllm"}': "0.4x30"}, 20),
    "WeightsDamaged": (
        {'health_weights_damaged_files{host="gpu-01"}': "1x9"},
        {'health_weights_damaged_files{host="gpu-01"}': "0x9"}, 5),
    "GatewayDown": ({'up{job="haproxy",gateway="gw1"}': "0x9"}, {'up{job="haproxy",gateway="gw1"}': "1x9"}, 5),
    "CertificateEnds": (
        {'probe_ssl_earliest_cert_expiry{job="tls",gateway="gw1"}': f"{29 * 86400}x30"},
        {'probe_ssl_earliest_cert_expiry{job="tls",gateway="gw1"}': f"{31 * 86400}x30"}, 20),
    "GatewayErrors": (
        {f'haproxy_frontend_http_responses_total{{{G},code="5xx"}}': "0+1x30",
         f'haproxy_frontend_http_responses_total{{{G},code="2xx"}}': "0+9x30"},
        {f'haproxy_frontend_http_responses_total{{{G},code="5xx"}}': "0+1x30",
         f'haproxy_frontend_http_responses_total{{{G},code="2xx"}}': "0+999x30",
         'haproxy_frontend_http_responses_total{gateway="gw1",proxy="gateway:status",code="5xx"}': "0+9x30"}, 20),
    "ServiceWithoutServer": (
        {f"haproxy_backend_active_servers{{{G}}}": "0x9"},
        {f"haproxy_backend_active_servers{{{G}}}": "1x9",
         'haproxy_backend_active_servers{gateway="gw1",proxy="gateway:limits"}': "0x9"}, 5),
    "ServiceWithoutSpare": (
        {f"haproxy_backend_active_servers{{{G}}}": "1x30",
         f'haproxy_server_status{{{G},server="a",state="UP"}}': "1x30",
         f'haproxy_server_status{{{G},server="b",state="UP"}}': "0x30"},
        # A service that has only one server is as its owner wants it.
        {f"haproxy_backend_active_servers{{{G}}}": "1x30",
         f'haproxy_server_status{{{G},server="a",state="UP"}}': "1x30"}, 20),
    "ServerDown": (
        {f'haproxy_server_status{{{G},server="a",state="DOWN"}}': "1x30"},
        {f'haproxy_server_status{{{G},server="a",state="DOWN"}}': "0x30"}, 20),
    "ServerDrainedLong": (
        {f'haproxy_server_status{{{G},server="a",state="DRAIN"}}': "1x10200"},
        {f'haproxy_server_status{{{G},server="a",state="DRAIN"}}': "1x9000 0x1200"}, 10100),
    "GatewayQueue": (
        {f"haproxy_backend_current_queue{{{G}}}": "3x30"},
        # What waits there on purpose.
        {f"haproxy_backend_current_queue{{{G}}}": "3x30", f"inference_gateway_admission_requests_total{{{R}}}": "0x30"},
        10),
    "GatewayRefuses": (
        {f"inference_gateway_admission_requests_total{{{R},class=\"gold\"}}": "0+9x30"},
        {f"inference_gateway_admission_requests_total{{{R},class=\"gold\"}}": "7x30",
         f"inference_gateway_admission_requests_total{{{R},class=\"batch\"}}": "0+9x30"}, 20),
    "GatewayScaleExhausted": (
        {'inference_gateway_scale_waiting{gateway="gw1",service="chat"}': "3x30",
         'inference_gateway_scale_replicas{gateway="gw1",service="chat",state="starting"}': "0x30"},
        {'inference_gateway_scale_waiting{gateway="gw1",service="chat"}': "3x30",
         'inference_gateway_scale_replicas{gateway="gw1",service="chat",state="starting"}': "1x30"}, 20),
    "GatewayBudgetNearEnd": (
        {f"inference_usage_budget_used_tokens{{{B}}}": "95x9", f"inference_usage_budget_tokens{{{B}}}": "100x9"},
        # A minute passes.
        {f"inference_usage_budget_used_tokens{{{B}}}": "80x9", f"inference_usage_budget_tokens{{{B}}}": "100x9",
         'inference_usage_budget_used_tokens{gateway="gw1",kind="client",owner="bob",period="minute"}': "99x9",
         'inference_usage_budget_tokens{gateway="gw1",kind="client",owner="bob",period="minute"}': "100x9"}, 5),
    "GatewayTokensMissing": (
        {'inference_usage_missing_records_total{gateway="gw1"}': "0x5 3x30"},
        {'inference_usage_missing_records_total{gateway="gw1"}': "3x30",
         'inference_usage_store_up{gateway="gw1"}': "1x30"}, 20),
    # promtool's clock begins in 1970.
    "MirrorStale": (
        {'mirror_content_written_seconds{host="depot"}': f"{-91 * 86400}x100"},
        {'mirror_content_written_seconds{host="depot"}': f"{-80 * 86400}x100"}, 90),
    "HostDown": ({'up{job="node",host="gpu-01"}': "0x30"}, {'up{job="node",host="gpu-01"}': "1x30"}, 10),
    "ClockWrong": (
        {'node_timex_offset_seconds{host="gpu-01"}': "-0.5x30"},
        {'node_timex_offset_seconds{host="gpu-01"}': "0.01x30"}, 15),
    "MemoryLow": (
        {'node_memory_MemAvailable_bytes{host="gpu-01"}': "4x30",
         'node_memory_MemTotal_bytes{host="gpu-01"}': "100x30"},
        {'node_memory_MemAvailable_bytes{host="gpu-01"}': "9x30",
         'node_memory_MemTotal_bytes{host="gpu-01"}': "100x30"}, 15),
    "FileSystemReadOnly": (
        {'node_filesystem_readonly{host="gpu-01",mountpoint="/",fstype="ext4"}': "1x30"},
        {'node_filesystem_readonly{host="gpu-01",mountpoint="/cd",fstype="iso9660"}': "1x30"}, 10),
}  # fmt: skip

# What the expressions ask of others than vLLM: the health service, HAProxy's own exporter, Debian's node exporter.
NODE = {
    "node_timex_offset_seconds", "node_timex_sync_status", "node_memory_MemAvailable_bytes",
    "node_memory_MemTotal_bytes", "node_filesystem_readonly",
}  # fmt: skip
# Of the service that counts tokens (module_utils/usage), of gateway-admission.lua, of scale, and of the role mirror.
OWN = {
    "inference_gateway_admission_requests_total", "inference_gateway_admission_requests",
    "inference_gateway_admission_first_answer_seconds_bucket",
    "inference_gateway_scale_replicas", "inference_gateway_scale_waiting", "inference_gateway_scale_actions_total",
    "inference_usage_tokens_total",
    "inference_usage_budget_tokens", "inference_usage_budget_used_tokens", "inference_usage_store_up",
    "inference_usage_missing_records_total", "mirror_content_written_seconds",
}  # fmt: skip
# Of the blackbox exporter, where a site has it.
BLACKBOX = {"probe_ssl_earliest_cert_expiry"}
HAPROXY = set((TOP / "tests/fixtures/haproxy/metrics-2.6.12.txt").read_text().split())
SUFFIXES = {"gauge": ("",), "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
NAME = re.compile(
    r"(?<![\w:.\"$])(?:vllm:|vllm_|accel_|health_|haproxy_|node_|inference_|mirror_|probe_|service:|model:|proxy:|host:|up\b)[\w:]*"
)


def rules():
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDED = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def expressions():
    yield from ((rule.get("alert") or rule["record"], rule["expr"]) for rule in rules())
    for name, board in BOARDS.items():
        for graph in board["graphs"]:
            yield from ((f"{name}: {graph['title']}", query) for query in graph["queries"].values())


def series_of(expression):
    """Return the names of series in an expression, without what stands in quotes and in grouping clauses."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\b(?:by|on|without|ignoring)\s*\([^)]*\)", "", bare)
    return set(NAME.findall(bare))


def of_release(path):
    """Return the series of a release: a counter has the ending _total, whether its name has it or not."""
    found = set()
    for name, kind in yaml.safe_load(path.read_text())["metrics"].items():
        bare = name.removesuffix("_total") if kind == "counter" else name
        found.update(f"{bare}{suffix}" for suffix in SUFFIXES[kind])
    return found


def promtool(directory, which):
    """Run the cases of all alerts, expecting no alert; return for each what promtool found, empty for none."""
    found = {}
    for step, minutes in (("1m", range(1000)), ("10m", range(1000, 20000))):
        tests = [
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": values} for key, values in case[which].items()],
                "alert_rule_test": [{"eval_time": f"{case[2]}m", "alertname": name}],
            }
            for name, case in CASES.items()
            if case[2] in minutes
        ]
        path = directory / f"cases-{step}.yml"
        document = {"rule_files": [str(RULES)], "evaluation_interval": step, "tests": tests}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        done = subprocess.run([PROMTOOL, "test", "rules", path], capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        pattern = r"(?s)alertname: ?(\w+), time: .*?got:(.*?)(?=alertname: ?\w+, time:|\Z)"
        told = dict(re.findall(pattern, said))
        assert ("SUCCESS" in said) is not bool(told), said
        found.update(told)
    return found


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here (Debian's package prometheus)")
class TestPromtool:
    def test_every_alert_fires(self, tmp_path):
        found = promtool(tmp_path, 0)
        assert set(CASES) - set(found) == set()
        for name, text in found.items():
            assert f'severity="{ALERTS[name]["labels"]["severity"]}"' in text, name

    def test_every_alert_is_quiet(self, tmp_path):
        assert promtool(tmp_path, 1) == {}

    def test_the_rules_are_valid(self):
        subprocess.run([PROMTOOL, "check", "rules", RULES], check=True, capture_output=True)


def test_every_alert_has_its_cases_and_there_are_enough_of_them():
    assert set(CASES) == set(ALERTS)
    assert len(ALERTS) >= 25 and len(RECORDED) <= 40


def test_every_alert_has_a_section_that_says_what_to_do():
    page = (TOP / "docs/reference/alerts.md").read_text()
    sections = dict(re.findall(r"(?ms)^### (\w+)\n(.+?)(?=^##|\Z)", page))
    assert set(sections) == set(ALERTS)
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook"] == f"docs/reference/alerts.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert len(sections[name].split()) >= 12, name


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_expression_lives_in_every_release_of_vllm(path):
    known = of_release(path) | set(SERIES) | HAPROXY | NODE | OWN | BLACKBOX | set(RECORDED) | {"up"}
    dead = {where: sorted(names) for where, text in expressions() if (names := series_of(text) - known)}
    assert dead == {}


def test_every_catalogued_release_has_a_table():
    releases = {path.stem for path in (TOP / "catalog/releases").glob("*.yml")}
    assert {path.stem for path in TABLES} == releases
    for path in TABLES:
        assert yaml.safe_load(path.read_text())["version"] == path.stem


def test_a_planted_dead_expression_is_found():
    names = series_of('sum by (host_x) (rate(vllm:gpu_cache_usage_perc{service="accel_no"}[5m])) > 1')
    assert names == {"vllm:gpu_cache_usage_perc"}
    assert not names & of_release(TOP / "catalog/metrics/0.33.0.yml")
