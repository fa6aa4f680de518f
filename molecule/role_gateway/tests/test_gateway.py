# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving_host import playbook

from tests import lab_host

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/gateway"
ROUTES = (TOP / "tests/fixtures/vllm-routes/0.32.0.txt").read_text().split("\n")[:-1]
SERVED = {
    "GET /v1/models", "POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses", "POST /v1/messages",
    "POST /v1/messages/count_tokens",
}  # fmt: skip
WRONG = "wrong-" * 8
MODEL = "baremetal/gpt-oss-smoke"
LAB = os.environ.get("LAB_NAME") or "demo"
# The inventory has the sha256 of these.
DORA, OLD = f"planted-dora-{LAB}", f"planted-old-{LAB}"
DATABASE = "/var/lib/private/gateway-usage/usage.sqlite"
SHARED = f"{os.environ['LAB_SUBNET_PREFIX']}.100"
TELL = """
import socket, sys
admin = socket.socket(socket.AF_UNIX)
admin.connect("/run/haproxy/admin.sock")
admin.sendall(sys.argv[1].encode() + b"\\n")
print(b"".join(iter(lambda: admin.recv(65536), b"")).decode(), end="")
"""


@pytest.fixture(scope="module")
def address(host):
    return host.check_output("hostname -I").split()[0]


@pytest.fixture(scope="module")
def directory():
    return Path(os.environ.get("LAB_HOME") or TOP / ".lab") / LAB / "gateway"


@pytest.fixture(scope="module")
def keys(directory):
    return {name: (directory / f"{name}.key").read_text().strip() for name in ("alice", "bob", "carol")}


@pytest.fixture(scope="module")
def connect(address, directory):
    # The CA that the role has made is all that a client is given.
    context = ssl.create_default_context(cafile=str(directory / "ca/ca.crt"))
    return lambda: http.client.HTTPSConnection(address, 443, timeout=30, context=context)


@pytest.fixture(scope="module")
def ask(connect):
    def asked(route, key=None, body=b"{}"):
        method, path = route.replace("{response_id}", "resp_1").split(" ")
        connection = connect()
        try:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            connection.request(method, path, body if method == "POST" else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return asked


@pytest.fixture
def stream(connect, keys):
    """Begin an answer that does not end; what it returns lets it end, and gives the number of its tokens."""
    engines = [lab_host.connect(name) for name in ("cpu-12", "cpu-13")]
    connection = connect()

    def release():
        for engine in engines:
            engine.check_output("rm -f /run/engine/hold")

    def begin():
        for engine in engines:
            engine.check_output("touch /run/engine/hold")
        headers = {"Authorization": f"Bearer {keys['alice']}"}
        connection.request("POST", "/v1/chat/completions", b'{"stream":true}', headers)
        answer = connection.getresponse()

        def rest():
            release()
            return answer.read().count(b"data:")

        return rest

    yield begin
    release()
    connection.close()


def tell(host, command):
    return host.check_output("python3 -c %s %s", TELL, command)


def state(host, server):
    lines = [line.split(",") for line in tell(host, "show stat").splitlines() if line]
    return {line[1]: line[lines[0].index("status")] for line in lines[1:] if line[0] == "chat"}[server]


def until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.5)
    return found


def play(*arguments, name="gateway"):
    command = ["ansible-playbook", "-i", str(INVENTORY), str(TOP / f"playbooks/{name}.yml"), *arguments]
    done = subprocess.run(command, cwd=TOP, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def generate(ask, key, tokens):
    """Request an answer with a number of tokens; its prompt has ten."""
    return ask("POST /v1/completions", key, json.dumps({"model": MODEL, "max_tokens": tokens}).encode())


def counter(gateway, name):
    """Return one of the figures for Prometheus, None where there is none."""
    lines = gateway.check_output("curl -fs http://127.0.0.1:8404/metrics/usage").splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), None)


def test_what_a_client_gets_of_each_route_of_vllm(host, ask, keys):
    until(lambda: state(host, "cpu-12--chat") == "UP" and state(host, "cpu-13--chat") == "UP")
    found = {route: tuple(ask(route, key)[0] for key in (None, WRONG, keys["alice"])) for route in ROUTES}
    assert found == {route: (401, 401, 200) if route in SERVED else (404, 404, 404) for route in ROUTES}


def test_the_key_goes_no_further_and_a_long_prompt_does(ask, keys):
    status, body = ask("POST /v1/completions", keys["alice"], b"x" * 5_000_000)
    assert (status, json.loads(body)) == (200, {"path": "/v1/completions", "key": None, "bytes": 5_000_000})


def test_a_client_of_anthropics_api_gets_an_answer_and_errors_in_its_form(connect, keys):
    for key, status in ((keys["alice"], 200), (WRONG, 401)):
        connection = connect()
        connection.request("POST", "/v1/messages", b"{}", {"x-api-key": key, "anthropic-version": "2023-06-01"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        assert answer.status == status, said
        if status == 401:
            assert (said["type"], said["error"]["type"]) == ("error", "authentication_error")
        else:
            assert said["key"] is None


def test_a_key_with_a_right_to_the_model_is_served(ask, keys, directory):
    entry = {"key_file": str(directory / "alice.key"), "models": ["baremetal/gpt-oss-smoke"]}
    play("-t", "gateway_keys", "-e", json.dumps({"gateway_clients": {"alice": entry}}))
    assert ask("GET /v1/models", keys["alice"])[0] == 200 and ask("GET /v1/models", keys["bob"])[0] == 401
    play("-t", "gateway_keys")


def test_limits(ask, keys):
    assert [ask("GET /v1/models", keys["bob"])[0] for _n in range(4)] == [200, 200, 200, 429]


def test_an_expired_key_is_refused(ask):
    status, body = ask("GET /v1/models", OLD)
    assert status == 401 and b"The API key expired on 2026-02-01 at 00:00:00 UTC." in body


def test_tokens_are_counted_and_a_budget_ends_them(ask, connect, tmp_path):
    for _request in range(2):
        status, body = generate(ask, DORA, 20)
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 20
    # Within one request of each gateway that the service has told HAProxy.
    until(lambda: generate(ask, DORA, 20)[0] == 429, 20)
    connection = connect()
    connection.request("POST", "/v1/completions", b"{}", {"Authorization": f"Bearer {DORA}"})
    answer = connection.getresponse()
    error = json.loads(answer.read())["error"]
    connection.close()
    assert (answer.status, error["code"]) == (429, "token_budget_exceeded")
    assert error["message"] == "The team planners may use 50 tokens a day, and has used them."
    assert 0 < int(answer.headers["Retry-After"]) <= 86400
    # Everything else of the client goes on.
    assert ask("GET /v1/models", DORA)[0] == 200
    report = tmp_path / "usage.json"
    play("-e", "gateway_usage_format=json", "-e", f"gateway_usage_file={report}", name="gateway_usage")
    rows = [row for row in json.loads(report.read_text())["rows"] if row["client"] == "dora"]
    requests = sum(row["requests"] for row in rows)
    assert {(row["team"], row["model"]) for row in rows} == {("planners", MODEL)} and requests >= 2
    sums = {name: sum(row[name] for row in rows) for name in ("prompt", "completion", "aborted", "uncounted")}
    assert sums == {"prompt": 10 * requests, "completion": 20 * requests, "aborted": 0, "uncounted": 0}


def inference(*words):
    command = [sys.executable, "bin/inference", *words, "-i", str(INVENTORY), "--json"]
    done = subprocess.run(command, cwd=TOP, check=False, capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert (done.returncode, document["ok"]) == (0, True), done.stdout + done.stderr
    return document


def test_the_command_drains_a_host_and_returns_it(host):
    inference("drain", "cpu-12", "--reason", "new fans")
    try:
        assert state(host, "cpu-12--chat").startswith("DRAIN")
        assert "new fans" in inference("status")["text"]
    finally:
        inference("undrain", "cpu-12")
    until(lambda: state(host, "cpu-12--chat") == "UP", 60)
    assert "new fans" not in inference("status")["text"]


def test_the_command_lists_clients_and_tokens():
    listed = json.dumps(inference("key", "list")["messages"])
    assert all(name in listed for name in ("alice", "bob", "dora"))
    assert "planners" in json.dumps(inference("usage"))


def test_a_new_team_is_limited_by_the_command_that_makes_its_key(ask):
    key = f"planted-erin-{LAB}"
    gateway = lab_host.connect("mirror")
    worker = tell(gateway, "show info").split("Pid: ")[1].split()[0]
    made = {
        "gateway_teams": {"planners": {"tokens_per_day": 50}, "writers": {"tokens_per_day": 30}},
        "gateway_keys_make": "erin", "gateway_keys_team": "writers", "gateway_keys_tokens_per_month": 10**6,
        "gateway_keys_sha256": hashlib.sha256(key.encode()).hexdigest(),
    }  # fmt: skip
    file, began = INVENTORY / "20-gateway.yml", time.monotonic()
    text = file.read_text()
    try:
        play("-e", json.dumps(made), name="gateway_keys")
        assert "erin: {sha256: [" in file.read_text()
    finally:
        file.write_text(text)
    took = time.monotonic() - began
    print(f"a team with a budget after {took:.0f} s")
    assert took < 60
    assert generate(ask, key, 30)[0] == 200
    until(lambda: generate(ask, key, 30)[0] == 429, 20)
    status, body = generate(ask, key, 30)
    assert status == 429 and b"The team writers may use 30 tokens a day" in body
    # Without a reload, at both gateways.
    assert tell(gateway, "show info").split("Pid: ")[1].split()[0] == worker
    config = json.loads(lab_host.connect("cpu-13").check_output("cat /etc/haproxy/gateway-usage.json"))
    assert config["budgets"]["@writers"] == {"day": 30} and config["budgets"]["erin"] == {"month": 10**6}


def test_requests_go_on_while_the_store_is_read_only_and_count_afterwards(ask, keys):
    gateway = lab_host.connect("mirror")
    name = 'inference_usage_tokens_total{client="alice",team="",model="baremetal/gpt-oss-smoke",kind="completion"}'
    assert generate(ask, keys["alice"], 7)[0] == 200
    before = until(lambda: counter(gateway, name), 20)
    # A restart, because an open file stays writable.
    gateway.check_output(f"chmod 0444 {DATABASE}* && systemctl restart gateway-usage")
    try:
        assert [generate(ask, keys["alice"], 7)[0] for _request in range(3)] == [200] * 3
        until(lambda: counter(gateway, "inference_usage_store_up") == 0, 20)
        assert "; the records wait at the instances" in gateway.check_output(
            "journalctl -u gateway-usage --no-pager -n 20"
        )
    finally:
        gateway.check_output(f"chmod 0600 {DATABASE}*")
    # Its counters begin with the restart.
    until(lambda: counter(gateway, name) == 21, 20)
    assert before % 7 == 0 and counter(gateway, "inference_usage_store_up") == 1
    assert counter(gateway, "inference_usage_missing_records_total") == 0


def test_an_ended_key_is_refused_at_both_gateways(ask):
    declared = {"dora": {"sha256": [hashlib.sha256(DORA.encode()).hexdigest()], "team": "planners"}}
    words = ("-e", json.dumps({"gateway_clients": declared, "gateway_keys_end": "dora"}))
    said = play(*words, name="gateway_keys")
    assert "Remove dora from it" in said
    assert ask("GET /v1/models", DORA)[0] == 401
    for name in ("mirror", "cpu-13"):
        assert "dora" not in lab_host.connect(name).check_output("cat /etc/haproxy/maps/clients.map")


def test_a_planted_key_is_nowhere(host, keys):
    said = play("--diff", "-vvv")
    places = "/etc/haproxy /var/lib/haproxy /etc/systemd/system /usr/local/lib /run/haproxy /proc/[0-9]*/cmdline"
    # What is looked for like this is found where it is.
    assert "maps/clients.map" in host.run(f"echo alice | grep -rlsF -D skip -f - {places}").stdout
    assert [name for name, key in keys.items() if key in said] == []
    # Encoded, so that they are not found in the very commands that look for them.
    patterns = f"echo {base64.b64encode(chr(10).join(keys.values()).encode()).decode()} | base64 -d"
    # Its status says nothing: processes come and go while it looks.
    assert host.run(f"{patterns} | grep -rlsF -D skip -f - {places}").stdout == ""
    assert host.run(f"{patterns} > /run/pattern; journalctl --no-pager | grep -qF -f /run/pattern").rc == 1
    assert 'client="alice" service=chat server=cpu-1' in host.check_output("journalctl -u haproxy --no-pager")


def test_keys_change_without_a_reload_and_without_cutting_a_stream(host, ask, stream, keys, directory):
    worker = tell(host, "show info").split("Pid: ")[1].split()[0]
    rest = stream()
    wanted = {"carol": {"key_file": str(directory / "carol.key")}}
    play("-t", "gateway_keys", "-e", json.dumps({"gateway_clients": wanted}))
    assert ask("GET /v1/models", keys["alice"])[0] == 401 and ask("GET /v1/models", keys["carol"])[0] == 200
    assert rest() >= 100
    play("-t", "gateway_keys")
    assert ask("GET /v1/models", keys["alice"])[0] == 200
    assert tell(host, "show info").split("Pid: ")[1].split()[0] == worker


def test_an_engine_that_is_healthy_and_serves_nothing_is_taken_out(host, ask, keys):
    engine = lab_host.connect("cpu-12")
    engine.check_output("touch /run/engine/stuck")
    try:
        until(lambda: state(host, "cpu-12--chat") == "DOWN (agent)")
        assert state(host, "cpu-13--chat").startswith("UP")
        assert {ask("GET /v1/models", keys["alice"])[0] for _n in range(4)} == {200}
    finally:
        engine.check_output("rm /run/engine/stuck")
    until(lambda: state(host, "cpu-12--chat") == "UP")


def test_a_drained_server_stays_drained_over_reload_and_restart_and_a_stream_over_the_reload(host, stream):
    tell(host, "set server chat/cpu-12--chat state drain")
    rest = stream()
    host.check_output("systemctl reload haproxy")
    assert rest() >= 100
    assert state(host, "cpu-12--chat").startswith("DRAIN")
    host.check_output("systemctl restart haproxy")
    assert state(host, "cpu-12--chat").startswith("DRAIN")
    tell(host, "set server chat/cpu-12--chat state ready")
    host.check_output("systemctl restart haproxy")
    until(lambda: state(host, "cpu-12--chat") == "UP")


def test_the_gateway_says_how_it_is(host):
    assert host.check_output("curl -fs http://127.0.0.1:8404/health") == "ok"
    assert "haproxy_server_status" in host.check_output("curl -fs http://127.0.0.1:8404/metrics")
    listening = host.check_output("ss -Hltn").splitlines()
    addresses = {line.split()[3] for line in listening}
    assert {"0.0.0.0:443", "127.0.0.1:8404", "127.0.0.1:8405"} <= addresses


def test_all_of_it_starts_at_boot_and_the_agent_is_confined(host):
    for name in ("haproxy", "gateway-agent", "gateway-usage", "gateway-readers"):
        service = host.service(name)
        assert service.is_running, host.check_output(f"journalctl -u {name} --no-pager -n 30")
        assert service.is_enabled
        of_root = name in ("haproxy", "gateway-readers")
        assert of_root or host.check_output("systemctl show -P DynamicUser %s", name) == "yes"
    assert "failed" not in host.run("systemctl is-failed haproxy gateway-agent keepalived").stdout
    # It reads HAProxy without a fault, and tells the agent how many it has ended.
    assert "failed" not in host.check_output("journalctl -u gateway-readers -o cat --no-pager")
    assert "slow_readers_ended_total 0\n" in host.run("curl -fs http://127.0.0.1:8405/metrics").stdout


BIND = """
import os, socket, sys
os.setuid(65534)
with socket.socket() as taken:
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", int(sys.argv[1])))
    taken.listen()
"""


@pytest.mark.parametrize(
    ("name", "port", "page"), [("gateway-agent", 8405, "/metrics"), ("gateway-usage", 8406, "/metrics/usage")]
)
def test_no_user_takes_the_port_of_a_service_that_has_not_started_or_is_stopped(host, name, port, page):
    # What any user starts at boot comes after the sockets.
    assert host.service(f"{name}.socket").is_enabled
    assert "sockets.target" in host.check_output(f"systemctl show -P Before {name}.socket").split()
    host.check_output(f"systemctl stop {name}.service")
    assert "Address already in use" in host.run(f"python3 -c '{BIND}' {port}").stderr
    # Who connects starts it again.
    host.check_output(f"curl -fs -o /dev/null http://127.0.0.1:{port}{page}")
    assert host.service(name).is_running


def test_private_keys_belong_to_root_alone(host, directory):
    assert host.file("/etc/haproxy/certs").listdir() == ["gateway.pem"]
    assert (host.file("/etc/haproxy/certs/gateway.pem").mode, host.file("/etc/haproxy/certs").mode) == (0o600, 0o700)
    assert (host.file("/etc/haproxy/maps/clients.map").mode, host.file("/etc/haproxy/maps/clients.map").group) == (
        0o640,
        "haproxy",
    )
    assert all(path.stat().st_mode & 0o077 == 0 for path in (directory / "ca").glob("*.key"))


@pytest.fixture
def gateways():
    return {name: lab_host.connect(name) for name in ("mirror", "cpu-13")}


def holders(gateways):
    return [name for name, gateway in gateways.items() if f" {SHARED}/" in gateway.check_output("ip -o -4 address")]


@pytest.mark.long
def test_the_shared_address_moves_only_where_it_has_to(gateways, directory, keys):
    context = ssl.create_default_context(cafile=str(directory / "ca/ca.crt"))

    def answers():
        connection = http.client.HTTPSConnection(SHARED, 443, timeout=5, context=context)
        try:
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {keys['alice']}"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    until(lambda: len(holders(gateways)) == 1 and answers())
    (first,) = holders(gateways)
    second = next(name for name in gateways if name != first)
    gateways[first].check_output("systemctl stop haproxy")
    until(lambda: holders(gateways) == [second] and answers())
    gateways[first].check_output("systemctl start haproxy")
    # Longer than keepalived takes to see that it is well again and to ask for the address, if it did.
    until(lambda: gateways[first].run("curl -fs http://127.0.0.1:8404/health").rc == 0)
    for _look in range(5):
        time.sleep(2)
        assert holders(gateways) == [second]
        until(answers)
    # A gateway without a server runs, and gives way all the same.
    for name in ("cpu-12--chat", "cpu-13--chat"):
        tell(gateways[second], f"set server chat/{name} state maint")
    until(lambda: holders(gateways) == [first] and answers())
    for name in ("cpu-12--chat", "cpu-13--chat"):
        tell(gateways[second], f"set server chat/{name} state ready")
    assert "failed" not in gateways[second].run("systemctl is-failed haproxy gateway-agent keepalived").stdout


@pytest.mark.long
def test_an_instance_is_drained_at_every_gateway_before_it_is_removed():
    served = lab_host.connect("cpu-12")
    # All that remove.yml needs to find an instance; its unit has another name here and goes on.
    served.check_output("mkdir -p /etc/vllm && touch /etc/vllm/chat.yaml")
    words = ("-l", "cpu-12", "-e", json.dumps({"remove_instance": "chat"}))
    done = playbook("playbooks/remove.yml", *words, inventories=("-i", str(INVENTORY)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not served.file("/etc/vllm/chat.yaml").exists
    gateways = [lab_host.connect(name) for name in ("mirror", "cpu-13")]
    records = [json.loads(each.file("/var/lib/haproxy/drained.json").content_string) for each in gateways]
    assert all("cpu-12--chat" in json.dumps(record) for record in records)
    back = playbook("playbooks/undrain.yml", "-l", "cpu-12", inventories=("-i", str(INVENTORY)))
    assert back.returncode == 0, back.stdout + back.stderr
