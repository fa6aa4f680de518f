# SPDX-License-Identifier: GPL-3.0-or-later
"""The health service as a process of its own, with a file in the place of /dev/kmsg and a stand-in for systemctl."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

from tests.fakes.gateways import until
from tests.fakes.programs import installed
from tests.fakes.redfish_server import authority

TOP = Path(__file__).resolve().parents[4]
SERVICE = "plugins/module_utils/health/service_host.py"
CHIPS = ("0000:1b:00.0", "0000:5d:00.0")
REPORT = """<?xml version="1.0" ?><nvidia_smi_log>{gpus}</nvidia_smi_log>"""
GPU = """<gpu id="0000{chip}"><remapped_rows><remapped_row_failure>{bad}</remapped_row_failure></remapped_rows>
<utilization><gpu_util>37 %</gpu_util></utilization><temperature><gpu_temp>41 C</gpu_temp></temperature></gpu>"""
SYSTEMCTL = """#!/bin/sh
case "$1" in
show) cat {units} ;;
restart) echo "$*" >> {restarts} ;;
esac
"""
FATAL = "NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
COPY_ENGINE = "NVRM: Xid (PCI:0000:5d:00): 39, pid=7, CE0 exception"


class Engine(BaseHTTPRequestHandler):
    """Answers as vLLM does."""

    def do_GET(self):
        text = {"/v1/models": '{"data": [{"id": "m"}]}', "/metrics": self.server.metrics}.get(self.path, "")
        self.reply(self.server.health if self.path == "/health" else 200, text)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply(self.server.token, "{}")

    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program with its library, where nothing else of the collection is."""
    return installed("vllm-health", tmp_path_factory.mktemp("lib"))


class Host:
    """A host with two chips and an instance on each."""

    def __init__(self, directory, program):
        self.directory, self.program, self.process = directory, program, None
        self.numbers = itertools.count(1)
        for name in ("etc", "run/chat", "run/code", "lib", "bin"):
            (directory / name).mkdir(parents=True)
        self.engines = {}
        for name in ("chat", "code"):
            server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
            server.daemon_threads, server.health, server.token = True, 200, 200
            server.metrics = "vllm:num_requests_running 0\nvllm:generation_tokens_total 5\n"
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.engines[name] = server
            (directory / f"etc/{name}.yaml").write_text(f"host: 0.0.0.0\nport: {server.server_port}\n")
            (directory / f"run/{name}/ready").write_text("4.5\n")
        self.log = directory / "kmsg"
        self.boot("first")
        self.runs = {"chat": "a1", "code": "b1"}
        self.write_units()
        self.chips()
        self.tool("systemctl", SYSTEMCTL.format(units=directory / "units", restarts=directory / "restarts"))
        self.tool("nvidia-smi", f"#!/bin/sh\ncat {directory / 'report'}\n")
        self.configure()

    def tool(self, name, text):
        path = self.directory / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def boot(self, text):
        """Boot again: the kernel's log is empty."""
        (self.directory / "boot").write_text(f"{text}\n")
        self.log.write_text("")

    def chips(self, *present, bad=()):
        gpus = "".join(GPU.format(chip=chip, bad="Yes" if chip in bad else "No") for chip in present or CHIPS)
        (self.directory / "report").write_text(REPORT.format(gpus=gpus))

    def write_units(self):
        blocks = [
            f"Id=vllm@{name}.service\nActiveState=active\nInvocationID={run}\nNRestarts=2\n"
            "InactiveExitTimestampMonotonic=1000000\nActiveEnterTimestampMonotonic=9000000\n"
            for name, run in self.runs.items()
        ]
        (self.directory / "units").write_text("\n".join(blocks))

    def configure(self, **more):
        places = {
            "kernel_log": "kmsg", "state_dir": "lib", "config_dir": "etc", "run_dir": "run", "metrics": "health.prom",
            "boot_id": "boot", "scrub_report": "scrub.json",
        }  # fmt: skip
        settings = {
            "host": "gpu-01", "stack": "cuda", "vendor": "nvidia", "model": "h200", "faults": faults_of_host("cuda"),
            "addresses": CHIPS, "chips": {"chat": [CHIPS[0]], "code": [CHIPS[1]]}, "poll": 0.5,
            "look": 0.3, "prove": 1.0, "idle": 2.0, "stall": 1.5, "tick": 0.2,
            **{name: str(self.directory / place) for name, place in places.items()}, **more,
        }  # fmt: skip
        (self.directory / "health.json").write_text(json.dumps(settings))

    def start(self):
        environment = {"PATH": f"{self.directory / 'bin'}:/usr/bin:/bin"}
        self.output = (self.directory / "journal").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-I", self.program, "run", self.directory / "health.json"],
            env=environment, stdout=self.output, stderr=self.output,
        )  # fmt: skip
        return self

    def stop(self, sent=signal.SIGTERM):
        if self.process:
            self.process.send_signal(sent)
            self.process.wait(60)
            self.output.close()
            self.process = None

    def call(self, *words):
        done = subprocess.run(
            [sys.executable, "-I", self.program, *words, self.directory / "health.json"], text=True,
            capture_output=True, check=False, timeout=30,
        )  # fmt: skip
        return done.stdout + done.stderr

    def says(self, *lines):
        with self.log.open("a") as file:
            file.write("".join(f"3,{next(self.numbers)},99000000,-;{line}\n" for line in lines))

    def reason(self, name):
        path = self.directory / f"run/{name}/unhealthy"
        return path.read_text() if path.exists() else ""

    @property
    def journal(self):
        return (self.directory / "journal").read_text()

    @property
    def metrics(self):
        path = self.directory / "health.prom"
        return path.read_text() if path.exists() else ""

    @property
    def restarts(self):
        path = self.directory / "restarts"
        return path.read_text().splitlines() if path.exists() else []

    def watching(self):
        """Wait until the service reads the log."""
        until(lambda: "Watching" in self.journal and (self.directory / "lib/state.json").exists())
        return self

    def close(self):
        self.stop(signal.SIGKILL)
        for engine in self.engines.values():
            engine.shutdown()
            engine.server_close()


@pytest.fixture
def host(tmp_path, program):
    host = Host(tmp_path, program)
    yield host
    host.close()


def test_a_fatal_line_marks_the_instance_of_its_chip_within_seconds(host):
    host.start().watching()
    host.says("usb 1-1: new device", FATAL)
    until(lambda: host.reason("code"))
    assert host.reason("code") == "isolate_host xid 79 of 0000:5d:00.0: The chip has fallen off the bus"
    assert host.reason("chat") == ""
    assert "code is sick: xid 79 of 0000:5d:00.0" in host.journal
    assert "code: xid 79 of 0000:5d:00.0" in host.call("status")
    until(lambda: 'vllm_instance_healthy{host="gpu-01",instance="code"} 0' in host.metrics)
    assert 'fault="xid 79",action="isolate_host"} 1' in host.metrics


@pytest.mark.parametrize("line", [
    "NVRM: Xid (PCI:0000:5d:00): 13, Graphics Exception", "NVRM: Xid (PCI:0000:5d:00): 31, MMU Fault",
    "NVRM: Xid (PCI:0000:5d:00): 43, pid=1, Ch 00000008", "NVRM: Xid (PCI:0000:5d:00): 45, pid=1, Ch 00000008",
    "NVRM: Xid (PCI:0000:5d:00): 94, pid=1, Contained", "NVRM: Xid (PCI:0000:5d:00): 4711, new",
])  # fmt: skip
def test_an_error_of_a_program_and_an_unknown_code_are_only_reported(host, line):
    host.start().watching()
    host.says(line)
    until(lambda: "(report)" in host.journal)
    assert host.reason("code") == host.reason("chat") == ""


def test_after_a_boot_the_proof_brings_the_instance_back(host):
    host.start().watching()
    host.says(FATAL)
    until(lambda: host.reason("code"))
    host.stop()
    host.boot("second")
    host.chips(CHIPS[0])
    host.start()
    until(lambda: "the proof failed: the vendor's tool does not list 0000:5d:00.0" in host.journal)
    assert host.reason("code")
    host.stop()
    host.chips()
    host.start()
    until(lambda: not host.reason("code"))
    assert "code is well again: xid 79" in host.journal


def test_an_instance_starts_again_when_its_gateways_have_let_it_go_and_returns_after_a_token(host, monkeypatch):
    host.engines["code"].metrics = "vllm:num_requests_running 1\nvllm:generation_tokens_total 5\n"
    host.configure(stall=600.0)
    host.start().watching()
    host.says(COPY_ENGINE)
    until(lambda: host.reason("code").startswith("restart_instance xid 39"))
    time.sleep(4)
    # A gateway still sends requests, so it stays as it is.
    assert host.restarts == []
    host.engines["code"].metrics = "vllm:num_requests_running 0\nvllm:generation_tokens_total 6\n"
    until(lambda: host.restarts == ["restart --no-block vllm@code.service"])
    host.engines["code"].token = 500
    host.runs["code"] = "b2"
    host.write_units()
    until(lambda: "the proof failed: the request for a token was answered with HTTP 500" in host.journal)
    assert host.reason("code") and len(host.restarts) == 1
    host.stop()
    host.engines["code"].token = 200
    host.start()
    until(lambda: not host.reason("code"))


def test_a_chip_that_comes_and_goes_stays_out_of_service_longer(host):
    host.start().watching()
    host.says(COPY_ENGINE)
    until(lambda: host.restarts)
    host.runs["code"] = "b2"
    host.write_units()
    until(lambda: not host.reason("code"))
    host.says(COPY_ENGINE)
    until(lambda: host.reason("code"))
    assert "it has come back within a day, so it is out of service for 5 minutes at least" in host.reason("code")
    until(lambda: len(host.restarts) == 2)
    host.runs["code"] = "b3"
    host.write_units()
    # The proof would pass by now, as it did the first time.
    time.sleep(5)
    assert host.reason("code") and host.journal.count("code is well again") == 1
    # A new start of the service forgets nothing of it.
    host.stop(signal.SIGKILL)
    host.start()
    until(lambda: host.journal.count("Watching") == 2)
    time.sleep(2)
    assert "it has come back within a day" in host.reason("code")


def test_an_instance_that_was_idle_before_its_fault_waits_for_its_gateways(host):
    host.configure(idle=4.0)
    host.start().watching()
    time.sleep(5)
    began = time.monotonic()
    host.says(COPY_ENGINE)
    until(lambda: host.restarts)
    assert host.reason("code") and time.monotonic() - began >= 4


def test_a_fault_that_needs_a_person_stays_until_a_person_has_spoken_and_the_proof_has_passed(host):
    host.start().watching()
    host.chips(bad=CHIPS[:1])
    until(lambda: host.reason("chat").startswith("isolate_host state a bad row of memory could not be replaced"))
    host.chips()
    assert "nearest: '0000:1b:00.0'" in host.call("clear", "0000:1c:00.0")
    assert host.reason("chat")
    assert "Told the service" in host.call("clear", "0000:1B:00.0")
    until(lambda: not host.reason("chat"))


def test_a_fault_of_a_switch_takes_every_instance_out(host):
    host.start().watching()
    host.says("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 22003, Fatal, Link 27 Minion Halt")
    until(lambda: host.reason("code") and host.reason("chat"))


def test_ten_thousand_lines_a_second_are_read_and_memory_stays_small(host):
    host.start().watching()
    noise = [f"audit: type=1400 audit(1.1:{number}): NVRM nothing" for number in range(10_000)]
    for _second in range(5):
        host.says(*noise, *[COPY_ENGINE] * 100)
    host.says(FATAL)
    until(lambda: "xid 79" in host.reason("code"))
    until(lambda: 'fault="xid 39",action="restart_instance"} 500' in host.metrics)
    pages = int(Path(f"/proc/{host.process.pid}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < 100 * 1024 * 1024
    # Not a line for each of them.
    assert len(host.journal.splitlines()) < 20


def test_a_killed_service_knows_what_it_knew(host):
    host.start().watching()
    host.says(FATAL)
    until(lambda: host.reason("code") and "xid 79" in (host.directory / "lib/state.json").read_text())
    host.stop(signal.SIGKILL)
    assert host.reason("code")
    # The directory of a unit that starts again is new.
    (host.directory / "run/code/unhealthy").unlink()
    host.log.write_text("")
    host.start()
    until(lambda: host.reason("code"))


@pytest.mark.parametrize(
    "damage",
    ["", "{", '{"ledger": {"schema": 9}}', '{"boot": "first", "ledger": {"schema": 1, "marks": [{}], "returns": {}}}'],
)
def test_after_damage_to_its_state_it_reads_the_log_since_the_boot(host, damage):
    record = "3,{},5000000,-;{}\n"
    host.log.write_text(record.format(1, "usb 1-1") + record.format(2, FATAL))
    host.start()
    until(lambda: host.reason("code"))
    host.stop()
    (host.directory / "lib/state.json").write_text(damage)
    host.start()
    until(lambda: host.journal.count("code is sick: xid 79") == 2)
    assert ("was damaged" in host.journal) is bool(damage)
    assert host.reason("code")


def test_records_that_were_read_before_are_not_read_again(host):
    record = "3,{},99000000,-;{}\n"
    host.log.write_text(record.format(1, "NVRM: Xid (PCI:0000:5d:00): 13, Graphics Exception"))
    host.start()
    until(lambda: "xid 13" in host.journal)
    host.watching()
    until(lambda: '"record": 1' in (host.directory / "lib/state.json").read_text())
    host.stop()
    host.start()
    until(lambda: host.journal.count("Watching") == 2)
    time.sleep(2)
    assert host.journal.count("xid 13") == 1


def test_a_restart_since_the_line_makes_an_old_line_harmless(host):
    # The unit began 1 s after the boot, the line is from half a second.
    host.log.write_text(f"3,1,500000,-;{COPY_ENGINE}\n3,2,600000,-;{FATAL}\n")
    host.start()
    until(lambda: host.reason("code"))
    assert "xid 39" not in host.call("status")


def test_an_engine_that_gives_no_tokens_is_started_again(host):
    host.engines["chat"].metrics = "vllm:num_requests_running 3\nvllm:generation_tokens_total 5\n"
    host.start()
    until(lambda: host.reason("chat").startswith("restart_instance vllm no_tokens"))
    assert host.reason("code") == ""
    until(lambda: host.restarts == ["restart --no-block vllm@chat.service"])


def test_a_site_may_keep_the_restart_for_itself(host):
    host.configure(restart=False)
    host.engines["chat"].metrics = "vllm:num_requests_running 3\nvllm:generation_tokens_total 5\n"
    host.start()
    until(lambda: host.reason("chat"))
    time.sleep(2)
    assert host.restarts == []


def test_a_tool_that_hangs_does_not_keep_the_log_from_being_read(host):
    host.tool("nvidia-smi", "#!/bin/sh\nexec sleep 80\n")
    host.start().watching()
    host.says(FATAL)
    until(lambda: host.reason("code"), 60)
    assert host.reason("chat") == ""


def test_a_log_that_is_replaced_is_followed(host):
    host.start().watching()
    host.says("usb 1-1: new device")
    host.log.unlink()
    host.log.write_text("")
    host.says(FATAL)
    until(lambda: host.reason("code"))


def test_what_the_scrub_of_the_weights_has_found_is_among_the_metrics(host):
    (host.directory / "scrub.json").write_text('{"version": 1, "finished": 1790000000, "damaged": {"a": {}}}')
    host.start()
    until(lambda: 'health_weights_damaged_files{host="gpu-01"} 1\n' in host.metrics)
    assert 'health_weights_scrubbed_seconds{host="gpu-01"} 1790000000' in host.metrics


AMD_SMI = """#!/bin/sh
case "$*" in
metric*) echo '[{{"gpu": 0}}, {{"gpu": 1}}]' ;;
static*) echo '[{{"gpu": 0, "bus": {{"bdf": "{0}"}}}}, {{"gpu": 1, "bus": {{"bdf": "{1}"}}}}]' ;;
"ras --cper --severity fatal --folder "*) test -d "$6" && cat {2} ;;
esac
"""
RECORD = "2026/11/25 10:45:{:02}  1       FATAL                fatal-1.cper      {}\n"


def test_an_error_record_of_amd_takes_the_chips_instance_out_by_its_afid(host):
    records = host.directory / "records"
    records.write_text(RECORD.format(13, "24 34"))
    host.tool("amd-smi", AMD_SMI.format(*CHIPS, records))
    host.configure(stack="rocm", vendor="amd", model="mi300x", faults=faults_of_host("rocm"))
    host.start().watching()
    until(lambda: "afid 34 of 0000:5d:00.0: An error that AMD has no identifier for (report)" in host.journal)
    assert host.reason("code") == ""
    records.write_text(RECORD.format(13, "24 34") + RECORD.format(14, 30))
    until(lambda: host.reason("code"))
    assert host.reason("code") == "reset_chip afid 30 of 0000:5d:00.0: Other fatal error within the chip"
    assert host.reason("chat") == ""
    until(lambda: 'fault="afid 24",action="ignore"} 1' in host.metrics)
    # The driver keeps the record: neither the next answer nor a new start of the service takes it again.
    assert "Told the service" in host.call("clear", CHIPS[1])
    until(lambda: not host.reason("code"))
    host.stop()
    host.start()
    until(lambda: host.journal.count("Watching") == 2)
    time.sleep(3)
    assert host.reason("code") == "" and host.journal.count("code is sick") == 1


def test_an_amd_smi_without_records_is_said_once(host):
    host.tool("amd-smi", AMD_SMI.format(*CHIPS, "/nowhere").replace("metric*)", "ras*) exit 2 ;;\nmetric*)"))
    host.configure(stack="rocm", vendor="amd", model="mi300x", faults=faults_of_host("rocm"))
    host.start().watching()
    until(lambda: "amd-smi ras --cper fails" in host.journal)
    time.sleep(2)
    assert host.journal.count("amd-smi ras --cper fails") == 1


class Hook(BaseHTTPRequestHandler):
    """A webhook that answers with the statuses that its server has, one after the other, then with 204."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.found.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def hook(host):
    """A webhook with TLS and an authority of its own; ``use`` writes the file that the role would write."""
    ca_file, context = authority(host.directory, ["127.0.0.1"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads, server.found, server.statuses = True, [], []
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def use(**more):
        url = f"https://127.0.0.1:{server.server_port}/hooks/key?room=1"
        target = {"url": url, "token": "t0ken", "ca_file": str(ca_file), "per_hour": 20, **more}
        (host.directory / "webhook.json").write_text(json.dumps(target))
        host.configure(webhook=str(host.directory / "webhook.json"))
        return host.start().watching()

    server.use = use
    yield server
    server.shutdown()
    server.server_close()


def test_a_webhook_hears_when_a_fault_appears_and_when_it_has_ended(host, hook):
    hook.use()
    host.says(FATAL, FATAL)
    until(lambda: hook.found)
    host.stop()
    host.boot("second")
    host.start()
    until(lambda: len(hook.found) > 1)
    (path, token, began), (_path, _token, ended) = hook.found
    assert (path, token) == ("/hooks/key?room=1", "Bearer t0ken")
    assert (began["state"], began["instances"], began["action"]) == ("began", ["code"], "isolate_host")
    assert began["text"] == ("gpu-01: xid 79 of 0000:5d:00.0: The chip has fallen off the bus; out of service: code")
    assert (ended["state"], ended["fault"], ended["chip"]) == ("ended", "xid 79", "0000:5d:00.0")
    assert "t0ken" not in host.journal and "hooks" not in host.journal


def test_a_webhook_that_refuses_is_asked_again_and_no_redirect_is_followed(host, hook):
    hook.statuses = [302]
    hook.use()
    host.says(FATAL)
    until(lambda: len(hook.found) > 1)
    assert {path for path, _token, _message in hook.found} == {"/hooks/key?room=1"}
    assert hook.found[0] == hook.found[1]
    assert "The webhook failed, and is tried again: RefusedError: it answered 302" in host.journal


def test_a_webhook_gets_so_many_messages_an_hour(host, hook):
    hook.use(per_hour=1)
    host.says(FATAL)
    until(lambda: hook.found)
    host.says(FATAL.replace("5d", "1b"))
    until(lambda: "The webhook has had 1 messages within an hour; not sent: gpu-01: xid 79 of 0000:1b" in host.journal)
    assert len(hook.found) == 1


def test_a_webhook_with_the_certificate_of_another_authority_gets_nothing(host, hook):
    hook.use(ca_file="")
    host.says(FATAL)
    until(lambda: "CERTIFICATE_VERIFY_FAILED" in host.journal)
    assert host.reason("code") and hook.found == []


def test_wrong_words_show_how_it_is_called(host):
    assert "vllm-health.py clear CHIP" in host.call("clera")
