# SPDX-License-Identifier: GPL-3.0-or-later
"""instance_bench and instance_bench_info in processes of their own, with an engine on loopback and a fake benchmark."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.bench_host import KEY, BenchHost
from tests.fakes.wheelhouse import run_module

MEASUREMENT = {"dataset": "random", "input_tokens": 16, "output_tokens": 4, "requests": 2, "concurrency": 1, "seed": 7}
USER = pwd.getpwuid(os.geteuid()).pw_name
# What systemctl prints from the file of its state; the journal has one reason.
SYSTEMCTL = '#!/bin/sh\ncat "$(dirname "$0")/state"\n'
JOURNALCTL = '#!/bin/sh\ncase "$*" in *--sync*) ;; *) echo "RuntimeError: the chip has fallen off the bus";; esac\n'
ACTIVE = (
    "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\nNRestarts=0\nInvocationID=one\n"
    "InactiveExitTimestampMonotonic=1000000\nActiveEnterTimestampMonotonic=48100000\n"
)


class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        if self.path == "/others":
            server.metrics = (0, 108)
        elif self.headers["Authorization"] != f"Bearer {KEY}":
            return self.send_error(401)
        if self.path == "/v1/models":
            text = json.dumps({"data": [{"id": "m", "max_model_len": 640}]})
        else:
            running, finished = server.metrics
            text = (
                f"vllm:num_requests_running{{}} {running}\nvllm:num_requests_waiting{{}} 0\n"
                f'vllm:request_success_total{{finished_reason="length"}} {finished}\n'
            )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
        return None

    def log_message(self, *_args):
        pass


@contextlib.contextmanager
def engine(running, finished):
    """Serve an instance with so many running and finished requests; /others is what others send to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    server.metrics = (running, finished)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def host(tmp_path, monkeypatch):
    with engine(0, 100) as port:
        yield make(tmp_path, monkeypatch, port)


def make(tmp_path, monkeypatch, port):
    found = BenchHost(tmp_path, port)
    found.program("systemctl", SYSTEMCTL)
    found.program("journalctl", JOURNALCTL)
    (found.bin / "state").write_text(ACTIVE)
    monkeypatch.setenv("PATH", str(found.bin), prepend=":")
    return found


def bench(host, **options):
    arguments = {"instance": "chat", "measurement": MEASUREMENT, "user": USER, "root": str(host.root), **options}
    return run_module("instance_bench", **arguments)


def test_a_measurement(host):
    result = bench(host)
    assert result["rc"] == 0 and not result["changed"]
    assert result["result"]["completed"] == 2 and result["power"] == {} and result["other_requests"] == 0


def test_power_is_measured_with_the_vendors_tool(host):
    host.program("nvidia-smi", "#!/bin/sh\necho 0, 400.00, 700.00\n")
    host.behave(duration=2.2)
    assert bench(host, stack="cuda", chips=[0])["power"]["watts"] == 400.0


# Between the two reports of the tool the counter of one chip rises.
SMI = """#!/bin/sh
[ "$1" = -q ] || exit 0
n=$(cat {count} 2>/dev/null || echo 0); echo $((n + 250)) >{count}
report() {{ echo "<gpu id='00000000:$1:00.0'><clocks_event_reasons_counters>"
  echo "<clocks_event_reasons_counters_hw_therm_slowdown>$2 us</clocks_event_reasons_counters_hw_therm_slowdown>"
  echo "</clocks_event_reasons_counters></gpu>"; }}
echo "<nvidia_smi_log>"; report 1B 0; report 43 "$n"; echo "</nvidia_smi_log>"
"""


@pytest.mark.parametrize(("chip", "slowed"), [(0, []), (1, ["0000:43:00.0 (hw_therm_slowdown)"])])
def test_a_chip_that_is_slowed_down_meanwhile_is_named(host, chip, slowed):
    host.program("nvidia-smi", SMI.format(count=host.bin / "count"))
    result = bench(host, stack="cuda", chips=[chip])
    assert (result["rc"], result["slowed"]) == (0, slowed)


def test_an_instance_with_other_requests_is_refused(tmp_path, monkeypatch):
    with engine(3, 100) as port:
        host = make(tmp_path, monkeypatch, port)
        result = bench(host, idle_timeout=0.3)
        assert result["rc"] and "has 3 running and 0 waiting requests, expected none; drain the host" in result["msg"]
        assert not host.calls()
        assert bench(host, shared=True)["rc"] == 0


def test_requests_of_others_during_the_measurement_spoil_it(tmp_path, monkeypatch):
    with engine(0, 100) as port:
        host = make(tmp_path, monkeypatch, port)
        host.behave(f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/others')")
        result = bench(host)
        # Eight more than before: two of the benchmark, its test, and five of others.
        assert result["rc"] and "chat answered 5 requests of others during the measurement" in result["msg"]


def test_requests_of_others_are_counted_where_they_are_allowed(tmp_path, monkeypatch):
    with engine(0, 100) as port:
        host = make(tmp_path, monkeypatch, port)
        host.behave(f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/others')")
        assert bench(host, shared=True)["other_requests"] == 5


def test_an_instance_that_dies_is_reported_with_its_reason(host):
    state = ACTIVE.replace("ActiveState=active", "ActiveState=failed").replace("success", "exit-code")
    host.behave(f"open({str(host.bin / 'state')!r}, 'w').write({state!r}); sys.exit(1)")
    result = bench(host)
    assert (
        result["rc"]
        and "instance chat did not survive the measurement: unit vllm@chat.service has failed" in result["msg"]
    )
    assert "the chip has fallen off the bus" in result["msg"] and "vllm bench serve failed" not in result["msg"]


def test_an_instance_that_was_started_again_is_reported(host):
    state = ACTIVE.replace("InvocationID=one", "InvocationID=two")
    host.behave(f"open({str(host.bin / 'state')!r}, 'w').write({state!r}); sys.exit(1)")
    result = bench(host)
    assert result["rc"] and "did not survive the measurement: systemd has started it again" in result["msg"]


def test_a_benchmark_that_fails_while_the_instance_lives(host):
    host.behave("raise ValueError('Initial test run failed')")
    result = bench(host)
    assert result["rc"] and result["msg"].startswith(
        "instance chat: vllm bench serve failed with exit status 1: ValueError"
    )


def test_bad_options_are_refused_before_anything_runs(host):
    assert "seed: found -1" in bench(host, measurement={**MEASUREMENT, "seed": -1})["msg"]
    assert "timeout: found 0, expected more than 0 seconds" in bench(host, timeout=0)["msg"]
    assert "instance talk is not installed" in bench(host, instance="talk")["msg"]
    assert not host.calls()


def test_check_mode_measures_nothing(host):
    assert bench(host, _ansible_check_mode=True)["skipped"] and not host.calls()


def info(host, **options):
    return run_module("instance_bench_info", instance="chat", root=str(host.root), **options)


def test_what_a_benchmark_has_to_know(host):
    host.program("nvidia-smi", "#!/bin/sh\necho 0, 80.00, 650.00\n")
    result = info(host, stack="cuda", chips=[0])
    assert result["rc"] == 0 and not result["changed"]
    keys = ("model", "max_model_len", "running", "waiting", "start_seconds", "power_limit_watts", "has_power")
    assert [result[key] for key in keys] == ["m", 640, 0, 0, 47.1, 650.0, True]
    assert not info(host)["has_power"]


def test_an_instance_that_does_not_serve_is_refused(host):
    (host.bin / "state").write_text(ACTIVE.replace("=active", "=inactive"))
    assert "instance chat does not serve: vllm@chat.service is inactive" in info(host)["msg"]


def test_a_key_that_is_not_accepted_is_named(host):
    (host.root / "etc/vllm/chat.secrets").write_text("VLLM_API_KEY=another-key\n")
    result = info(host)
    assert result["rc"] and "GET /v1/models answered 401" in result["msg"]
