# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that share chips, under a real systemd: the role's own units and programs, with all of their confinement.

    pytest -m lab tests/integration/test_residents_unit.py

It needs podman and root. vLLM is replaced by the engine of tests/fakes/sleeping_engine.py, behind the real middleware.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import h11
import pytest
import uvicorn

from tests.fakes.sleeping_engine import KEY, until

pytestmark = [pytest.mark.long, pytest.mark.lab]

ROOT = Path(__file__).resolve().parents[2]
PORTS = {"a": 8001, "b": 8002}
SERVICE = "vllm-residents@gpu0.service"
# The state of the chips. The units let vLLM's user write nowhere else that both instances see.
CHIPS = "/dev/shm/chips"
VARIABLES = {
    "ansible_managed": "Ansible managed",
    "vllm_start_timeout": 90,
    "vllm_drain_timeout": 10,
    "vllm_stop_notice": 0,
    "vllm_warmup": "no",
    "vllm_warmup_seconds": "0",
    "vllm_user": "vllm",
    "vllm_residents_patience": 1,
    "vllm_secrets": {name: {"VLLM_API_KEY": KEY} for name in PORTS},
    "__vllm_gateway_secret": {},
}

# The files that the role writes. Ansible finds the collection's filters only in a process that has not imported the
# collection otherwise.
RENDER = """
import json, sys
from pathlib import Path
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([sys.argv[1]])
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.module_utils.vllm import files
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.host_library import program_files
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.render import RoleTemplates
plans, variables = json.load(sys.stdin)
templates = RoleTemplates(DataLoader())
found = {}
names = ("vllm-wait-ready", "vllm-drain", "vllm-residents", "availability")
for program in [entry for name in names for entry in program_files(name) if "state" not in entry]:
    text = (Path(sys.argv[2]) / program["src"]).read_text() if "src" in program else program["content"]
    found[program["path"]] = {"owner": "root", "group": "root", "mode": program["mode"], "text": text}
for plan in plans:
    for entry in files.instance_files(plan, {"user": "vllm"}):
        text = templates.render(entry["template"], {**entry, "name": plan["instance"], "plan": plan}, variables)
        found[entry["path"]] = {**{key: entry[key] for key in ("owner", "group", "mode")}, "text": text}
print(json.dumps(found))
"""

# Writes them on the host.
WRITE = """
import json, os, pathlib, shutil, sys
for path, file in json.load(sys.stdin).items():
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(file["text"])
    shutil.chown(place, file["owner"], file["group"])
    place.chmod(int(file["mode"], 8))
"""

# What the host runs instead of vLLM. An engine that was killed has left its chips.
ENGINE = f"""
import contextlib, os, pathlib, re, sys
sys.path += ["/opt/site", "/opt/lab"]
from tests.fakes import sleeping_engine

class Engine(sleeping_engine.SleepingEngine):
    def take_chips(self):
        for path in (self.top / "chips").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if not pathlib.Path("/proc", path.read_text() or "self").exists():
                    path.unlink()
        super().take_chips()
        (self.top / "chips" / self.name).write_text(str(os.getpid()))

sleeping_engine.SleepingEngine = Engine
assert os.environ["VLLM_SERVER_DEV_MODE"] == "1" and sys.argv[2:4] == ["--middleware", "availability.Availability"]
port = re.search("(?m)^port: *([0-9]+)", pathlib.Path(sys.argv[5]).read_text())[1]
try:
    sleeping_engine.main(sys.argv[1], "{CHIPS}", port)
finally:
    pathlib.Path("{CHIPS}/chips", sys.argv[1]).unlink(missing_ok=True)
"""

# Sends a request, and prints status and body of its answer.
ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
connection.request(sys.argv[2], sys.argv[3], *sys.argv[4:5])
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""

# Clients of both instances until the file is there, one request after the other.
LOAD = """
import http.client, os, sys, threading, time
found = []
def client(port, number):
    count = 0
    while not os.path.exists("/run/enough"):
        count += 1
        text = f"{port}-{number}-{count}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", text)
            answer = connection.getresponse()
            body = answer.read().decode()
            good = answer.status == 200 and body.endswith(" " + text)
            found.append("answered" if good else f"{answer.status} {body}")
        except (OSError, http.client.HTTPException) as exc:
            found.append(repr(exc))
        connection.close()
threads = [threading.Thread(target=client, args=(int(port), number)) for port in sys.argv[1:] for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found), [text for text in found if text != "answered"][:5])
"""


def plan(name):
    """Return the plan of an instance, as far as its files need it."""
    env = {"HOME": f"/var/cache/vllm/{name}", "OPERATOR_GUARD": "1", "RESIDENTS": "gpu0", "VLLM_SERVER_DEV_MODE": "1"}
    env |= {"AVAILABILITY_DIRECTORY": f"/run/vllm/{name}", "PYTHONPATH": "/usr/local/lib/vllm"}
    return {
        "instance": name,
        "replica_of": name,
        "runtime": "venv",
        "stack": "cuda",
        "env": env,
        "config": {"host": "0.0.0.0", "port": PORTS[name]},
        "secrets": ["VLLM_API_KEY"],
        "venv": {},
        "container": None,
        "middleware": ["--middleware", "availability.Availability"],
        "launch": ["/usr/bin/python3", "/opt/engine.py", name],
        "residents": "gpu0",
    }


class Host:
    def __init__(self, name, environment):
        self.name, self.environment = name, environment

    def sh(self, script, check=True, **options):
        command = ["podman", "exec", "-i", self.name, "sh", "-ec", script]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=150, check=False, **options
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr + self.journal()
        return done.stdout

    def copy(self, source, path):
        self.sh(f"mkdir -p {Path(path).parent}")
        subprocess.run(["podman", "cp", str(source), f"{self.name}:{path}"], env=self.environment, check=True)

    def install(self):
        """Write the files of the role, and what stands in for vLLM."""
        command = [sys.executable, "-c", RENDER, str(ROOT / ".collections"), str(ROOT / "roles/vllm/files")]
        given = json.dumps([[plan(name) for name in PORTS], VARIABLES])
        done = subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True)
        self.sh("useradd --system --home-dir /var/lib/vllm --shell /usr/sbin/nologin vllm")
        self.sh(f"python3 -c '{WRITE}'", input=done.stdout)
        for package in (uvicorn, h11, click):
            place = Path(package.__file__).parent
            self.copy(place, f"/opt/site/{place.name}")
        self.copy(ROOT / "tests/fakes/sleeping_engine.py", "/opt/lab/tests/fakes/sleeping_engine.py")
        for path, text in (("/opt/engine.py", ENGINE), ("/opt/ask.py", ASK), ("/opt/load.py", LOAD)):
            self.sh(f"cat > {path}", input=text)
        self.sh(f"mkdir -m 1777 {CHIPS} {CHIPS}/chips; install -m 666 /dev/null {CHIPS}/faults")
        for name in PORTS:
            self.sh(f"mkdir /var/lib/vllm/{name}/model; echo '{{}}' > /var/lib/vllm/{name}/model/config.json")
        self.sh("systemctl daemon-reload")

    def show(self, unit, field):
        return self.sh(f"systemctl show -P {field} {unit}").strip()

    def awake(self):
        return self.sh(f"ls {CHIPS}/chips").split()

    def ask(self, name, method, path, body="", user="root"):
        """Return status and body of an answer to a user of the host."""
        words = f"python3 /opt/ask.py {PORTS[name]} {method} {path} {body}"
        status, _space, text = self.sh(f"runuser -u {user} -- {words}").partition(" ")
        return int(status), text.strip()

    def complete(self, name, text="x"):
        return self.ask(name, "POST", "/v1/completions", text)

    def journal(self, *units):
        words = " ".join(f"-u {unit}" for unit in units or ("vllm@a", "vllm@b", SERVICE))
        return self.sh(f"journalctl -o short-precise --no-pager {words}", check=False)


class Load:
    """Clients of both instances, on the host, in the background."""

    def __init__(self, host):
        self.host, self.found = host, ""
        host.sh("rm -f /run/enough")
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        self.found = self.host.sh("timeout 120 python3 /opt/load.py 8001 8002")

    def end(self):
        """Return the number of requests, and what was not answered."""
        self.host.sh("touch /run/enough")
        self.thread.join(130)
        number, _space, failed = self.found.partition(" ")
        return int(number), failed.strip()


@pytest.fixture(scope="module")
def host():
    """Two instances that have been started at once."""
    lab = {**os.environ, "LAB_NAME": "residents", "LAB_SUBNET_PREFIX": "10.87.233"}
    subprocess.run([ROOT / "bin/lab", "up", "cpu-12"], env=lab, check=True)
    try:
        home = Path(os.environ.get("LAB_HOME", ROOT / ".lab"))
        host = Host("bminf-residents-cpu-12", {**lab, "CONTAINERS_CONF": str(home / "containers.conf")})
        host.install()
        host.sh("systemctl start vllm@a vllm@b")
        yield host
    finally:
        subprocess.run([ROOT / "bin/lab", "down"], env=lab, check=True)


def test_two_that_start_at_once_start_one_after_the_other(host):
    for unit in ("vllm@a", "vllm@b", SERVICE):
        assert host.show(unit, "ActiveState") == "active"
        assert host.show(unit, "NRestarts") == "0"
    assert len(host.awake()) == 1


def test_the_confinement_of_the_service_is_in_force(host):
    status = host.sh(f"cat /proc/{host.show(SERVICE, 'MainPID')}/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    # CAP_DAC_OVERRIDE alone, no_new_privs, a filter of system calls.
    assert (fields["CapBnd"], fields["CapEff"]) == ("0000000000000002", "0000000000000002")
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    pid = host.show(SERVICE, "MainPID")
    assert "/etc" not in host.sh(
        f"nsenter -t {pid} -m sh -c 'for each in /etc /usr /run; do test -w $each && echo $each; done'"
    )


def test_a_request_to_the_sleeping_one_wakes_it(host):
    for _turn in range(2):
        for name in PORTS:
            assert host.complete(name, "hello") == (200, f"{name} hello")
            assert host.awake() == [name]
    told = host.journal(SERVICE)
    for name in PORTS:
        assert f"{name} is awake after" in told and f"{name} sleeps after" in told


def test_what_needs_no_chips_wakes_nobody(host):
    awake = host.awake()
    for name in PORTS:
        for path in ("/health", "/metrics", "/v1/models"):
            assert host.ask(name, "GET", path)[0] == 200
    assert host.awake() == awake


@pytest.mark.parametrize("user", ["nobody", "vllm"])
def test_the_endpoints_for_operators_are_closed(host, user):
    for method, path in (
        ("POST", "/sleep"),
        ("POST", "/wake_up"),
        ("GET", "/is_sleeping"),
        ("GET", "/residents"),
        ("POST", "/collective_rpc"),
    ):
        assert host.ask("a", method, path, user=user)[0] == 404


def test_the_token_and_the_socket_are_closed(host):
    for name in PORTS:
        assert host.sh(f"stat -c '%U:%G %a' /run/vllm/{name}/operator") == "root:vllm 640\n"
    assert host.sh("stat -c '%U %a' /run/vllm-residents/gpu0") == "root 700\n"
    nobody = "runuser -u nobody --"
    assert host.sh(f"{nobody} cat /run/vllm/a/operator || echo closed") == "closed\n"
    assert host.sh(f"{nobody} ls /run/vllm-residents/gpu0 || echo closed") == "closed\n"


@pytest.mark.parametrize("kind", ["mkfifo", "ln -s /etc/shadow"])
def test_the_user_of_one_instance_cannot_hold_up_the_service(host, kind):
    assert [host.complete(name)[0] for name in PORTS] == [200, 200]
    operator = "/run/vllm/a/operator"
    host.sh(f"runuser -u vllm -- sh -c 'rm -f {operator}; {kind} {operator}'")
    assert [host.complete(name)[0] for name in PORTS] == [200, 200]
    assert host.sh(f"stat -c '%U:%G %a %F' {operator}") == "root:vllm 640 regular file\n"


def test_no_request_fails_when_the_service_is_killed(host):
    load = Load(host)
    for number in (1, 2):
        time.sleep(2)
        host.sh(f"systemctl kill -s KILL {SERVICE}")
        until(lambda number=number: host.show(SERVICE, "NRestarts") == str(number))
    time.sleep(3)
    number, failed = load.end()
    assert failed == "[]" and number > 20
    assert host.show(SERVICE, "ActiveState") == "active"


def test_a_newer_program_takes_over(host):
    before = host.show(SERVICE, "InvocationID")
    host.sh("touch /usr/local/lib/vllm-residents.py")
    until(lambda: host.show(SERVICE, "ActiveState") == "active" and host.show(SERVICE, "InvocationID") != before)
    assert [host.complete(name)[0] for name in PORTS] == [200, 200]


def test_one_restarts_while_the_other_is_asked(host):
    before, answers = host.show("vllm@a", "InvocationID"), []
    asking = threading.Thread(target=lambda: answers.extend(host.complete("b", f"x{number}") for number in range(12)))
    asking.start()
    host.sh("systemctl restart vllm@a")
    asking.join(100)
    assert host.show("vllm@a", "ActiveState") == "active" and host.show("vllm@a", "InvocationID") != before
    assert answers == [(200, f"b x{number}") for number in range(12)]
    assert host.complete("a") == (200, "a x")


def test_one_that_dies_is_started_again(host):
    before = host.show("vllm@b", "InvocationID")
    host.sh("systemctl kill -s KILL vllm@b")
    assert host.complete("a", "meanwhile") == (200, "a meanwhile")
    until(lambda: host.show("vllm@b", "ActiveState") == "active" and host.show("vllm@b", "InvocationID") != before)
    assert host.complete("b") == (200, "b x")


def test_the_service_ends_with_the_last_instance(host):
    began = time.monotonic()
    host.sh("systemctl stop vllm@a")
    # It does not wait for the request of the service, which is open for up to 20 s.
    assert time.monotonic() - began < 12
    assert host.show(SERVICE, "ActiveState") == "active" and host.complete("b") == (200, "b x")
    host.sh("systemctl stop vllm@b")
    until(lambda: host.show(SERVICE, "ActiveState") == "inactive")
    for unit in ("vllm@a", "vllm@b", SERVICE):
        assert host.show(unit, "Result") == "success"
    host.sh("systemctl start vllm@a")
    assert host.show(SERVICE, "ActiveState") == "active" and host.complete("a") == (200, "a x")


def test_nothing_has_gone_wrong_on_the_way(host):
    assert host.sh(f"cat {CHIPS}/faults") == ""
    told = host.journal()
    for bad in ("Traceback", "Permission denied", "not permitted", "Read-only", "does not answer", "does not tell"):
        assert bad not in told, told
    for bad in ("does not wake up", "does not go to sleep", "did not start", "Failed to"):
        assert bad not in host.journal(SERVICE), told
