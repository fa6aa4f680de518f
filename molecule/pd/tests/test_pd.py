# SPDX-License-Identifier: GPL-3.0-or-later
"""A prefill host and a decode host: who computes what, what a client sees of each fault, that they are one instance."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.lab_host import connect

TOP = Path(__file__).resolve().parents[3]
INVENTORY = str(TOP / ".config/molecule/inventory/pd")
SUBNET = os.environ["LAB_SUBNET_PREFIX"]
GATEWAY = f"https://{SUBNET}.10"
ADDRESSES = {"decode": f"{SUBNET}.12", "prefill": f"{SUBNET}.14"}
QUESTION, ANSWER = "Is the fleet ready?", "The fleet is ready."
# For a start of vLLM that shares the processors of one machine with whatever else runs there.
LONG = 600


@pytest.fixture(scope="module")
def decode():
    return connect("cpu-12")


@pytest.fixture(scope="module")
def prefill():
    return connect("cpu-12b")


@pytest.fixture(autouse=True)
def serving():
    """Each test begins with an instance whose prompts are computed on the prefill host."""
    wait_for("remote")


def chat(timeout=60):
    """Return status, answer, and the headers ``prefill`` and ``Retry-After`` of a chat through the gateway."""
    home = Path(os.environ["LAB_HOME"], os.environ["LAB_NAME"], "gateway")
    context = ssl.create_default_context(cafile=str(home / "ca/ca.crt"))
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    body = {"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": QUESTION}]}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {(home / 'load.key').read_text().strip()}"}
    request = urllib.request.Request(f"{GATEWAY}/v1/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
            return answer.status, text, answer.headers["prefill"], None
    except urllib.error.HTTPError as exc:
        return exc.code, exc.read().decode(), None, exc.headers["Retry-After"]
    except OSError as exc:
        return 0, repr(exc), None, None


def wait_for(who="", seconds=LONG):
    """Wait for a right answer whose prompt ``who`` computed; return after how many seconds."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        status, text, computed, _after = chat()
        if (status, text) == (200, ANSWER) and computed == (who or computed):
            return time.monotonic() - began
        time.sleep(1)
    pytest.fail(f"no answer ({who}) within {seconds} s")


def wait_until(condition, seconds=60):
    """Wait for something; return after how many seconds it was so. A host too busy for SSH is asked again."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(RuntimeError):
            if condition():
                return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"not so after {seconds} s"
        time.sleep(0.5)


class Load(threading.Thread):
    """
    A chat in each second: (start, status, answer, prefill, Retry-After), in the order of their starts.

    No more than four wait at a time: NIXL keeps the processors busy, and behind many chats no SSH would get through.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.rows, self.asking, self.ended = [], [], threading.Event()

    def run(self):
        while not self.ended.wait(1):
            if len(self.asking) - len(self.rows) >= 4:
                continue
            self.asking.append(threading.Thread(target=self.ask, daemon=True))
            self.asking[-1].start()

    def ask(self):
        began = time.time()
        self.rows.append((began, *chat(120)))

    def __enter__(self):
        self.start()
        wait_until(lambda: len(self.rows) > 2, LONG)
        return self

    def __exit__(self, *_exception):
        time.sleep(5)
        self.ended.set()
        for thread in self.asking:
            thread.join(120)
        self.rows.sort()

    def failed(self):
        """Return the requests that got neither the right answer nor 503 with ``Retry-After``."""
        assert {row[2] for row in self.rows if row[1] == 200} <= {ANSWER}
        return [row for row in self.rows if row[1] != 200 and (row[1], row[4]) != (503, "5")]

    def down(self):
        """Return the seconds from the first refused request to the last one; 0 where none was refused."""
        refused = [row[0] for row in self.rows if row[1] == 503]
        return refused[-1] - refused[0] + 1 if refused else 0.0


def invocation(host):
    return host.check_output("systemctl show vllm@big --property=InvocationID --value")


def active(host):
    return host.check_output("systemctl show vllm@big --property=ActiveState --value")


def kill(host):
    """Kill the engine of vLLM, as the kernel would without memory."""
    pids = host.check_output("pgrep -f VLLM::EngineCore || systemctl show vllm@big -p MainPID --value")
    host.check_output("kill -9 %s", pids.split()[0])


def playbook(*arguments, name="site.yml"):
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    command = ["ansible-playbook", "-i", INVENTORY, name, *arguments]
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def report(record_property, what, figure):
    """Put a figure into the log of the run."""
    record_property(what, round(figure, 1))
    print(f"{what}: {figure:.1f}")


def transfers(host):
    """Return the lines in which vLLM reports the caches that it has fetched."""
    return host.check_output("journalctl -u vllm@big --no-pager | grep -c 'KV Transfer metrics' || true")


def test_who_computes_what(decode, prefill):
    count = "journalctl -u vllm@big --no-pager | grep -c 'POST /routed/v1/chat/completions' || true"
    before = prefill.check_output(count)
    assert chat()[:3] == (200, ANSWER, "remote")
    after = prefill.check_output(count)
    assert int(after) > int(before)
    wait_until(lambda: int(transfers(decode)) > 0, 60)
    said = decode.check_output("journalctl -u vllm@big --no-pager")
    assert "Num failed transfers=0" in said


def test_a_third_host_reaches_the_requests_of_clients_only(decode, prefill):
    code = (
        "import socket, sys\n"
        "for port in map(int, sys.argv[2:]):\n"
        "    try:\n"
        "        socket.create_connection((sys.argv[1], port), 1).close()\n"
        "        print(port)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    for host, address, allowed in (
        (decode, ADDRESSES["decode"], {22, 8000, 8300}),
        (prefill, ADDRESSES["prefill"], {22}),
    ):
        rows = host.check_output("ss -Hltn").splitlines()
        ports = sorted({int(row.split()[3].rsplit(":", 1)[1]) for row in rows})
        assert {5600, 8000} <= set(ports)
        found = connect("mirror").check_output(f"python3 -c %s {address} {' '.join(map(str, ports))}", code)
        assert set(map(int, found.split())) <= allowed


def test_the_prefill_host_s_engine_dies(prefill, record_property):
    before = invocation(prefill)
    with Load() as load:
        kill(prefill)
        wait_until(lambda: invocation(prefill) != before, 120)
        report(record_property, "prefill killed: answers with remote prompts again after", wait_for("remote"))
    failed = load.failed()
    report(record_property, "prefill killed: requests that failed", len(failed))
    report(record_property, "prefill killed: seconds with 503", load.down())
    # Those whose cache was on its way.
    assert len(failed) <= 2, failed
    assert "local" in {row[3] for row in load.rows}


def test_the_decode_host_s_engine_dies(decode, prefill, record_property):
    before = [invocation(host) for host in (decode, prefill)]
    with Load() as load:
        kill(decode)
        wait_until(lambda: invocation(decode) != before[0], 120)
        report(record_property, "decode killed: right answer after", wait_for())
    failed = load.failed()
    report(record_property, "decode killed: requests that failed", len(failed))
    report(record_property, "decode killed: seconds with 503", load.down())
    assert load.down() > 0
    # Those that ran, and those that arrived before the gateway saw it.
    assert len(failed) <= 8, failed
    assert invocation(prefill) == before[1]


def test_the_prefill_host_is_stopped_and_the_decode_host_serves_alone(decode, prefill, record_property):
    before = invocation(decode)
    with Load() as load:
        prefill.check_output("systemctl stop vllm@big")
        assert wait_for("local", 60) < 60
        time.sleep(5)
        verified = playbook("-l", "cpu-12", name="playbooks/verify.yml")
        assert verified.returncode and "no prefill host computed the prompt" in verified.stdout
        prefill.check_output("systemctl start --no-block vllm@big")
        report(record_property, "prefill started: answers with remote prompts after", wait_for("remote"))
    assert load.failed() == [] and load.down() == 0
    assert invocation(decode) == before


def test_the_network_between_them_is_cut(prefill, record_property):
    """Packets are dropped, so that nothing is closed: the request that waits is repeated when the host is silent."""
    # On the other host: a program whose own packets are dropped gets an error at once.
    prefill.check_output("nft add table inet cut")
    for hook, side in (("input", "saddr"), ("output", "daddr")):
        prefill.check_output(f"nft 'add chain inet cut {hook} {{ type filter hook {hook} priority -20; }}'")
        prefill.check_output(f"nft add rule inet cut {hook} ip {side} {ADDRESSES['decode']} drop")
    try:
        began = time.monotonic()
        assert chat(timeout=60)[:3] == (200, ANSWER, "local")
        report(record_property, "cut: the request that waited was answered after", time.monotonic() - began)
        report(record_property, "cut: later ones answered by the decode host alone after", wait_for("local", 120))
    finally:
        prefill.check_output("nft delete table inet cut")
    report(record_property, "cut healed: answers with remote prompts after", wait_for("remote"))


def test_a_part_of_the_hosts_is_refused():
    run = playbook("-l", "cpu-12", "--check")
    assert run.returncode
    assert "vllm_instances.big spans hosts that this run leaves out: cpu-12b" in run.stdout + run.stderr


def test_a_drain_of_the_prefill_host_drains_the_instance():
    drained = playbook("-l", "cpu-12b", "-e", "drain_min_available=0", name="playbooks/drain.yml")
    assert drained.returncode == 0, drained.stdout[-3000:]
    assert chat()[0] == 503
    returned = playbook("-e", "drain_instance=big", name="playbooks/undrain.yml")
    assert returned.returncode == 0, returned.stdout[-3000:]


def flag(number, **more):
    """Return the options of a playbook that give the instance another argument."""
    return ("-e", json.dumps({"lab_args": {"max-num-seqs": number, **more}}))


def files(*hosts):
    """Return what each host runs with."""
    return [host.check_output("cat /etc/vllm/big.yaml /etc/vllm/big.group.json") for host in hosts]


def test_a_rollout_changes_both_sides_and_a_rollback_takes_it_back(decode, prefill, record_property):
    before = files(decode, prefill)
    with Load() as load:
        run = playbook(*flag(2), name="playbooks/rollout.yml")
    assert run.returncode == 0 and "2 of 2 hosts are done" in run.stdout, run.stdout[-3000:]
    report(record_property, "rollout: seconds with 503", load.down())
    assert load.failed() == []
    assert all("max-num-seqs: 2" in text for text in files(decode, prefill))
    run = playbook("-e", "rollout_undo=last", name="playbooks/rollback.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    assert files(decode, prefill) == before
