# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One instance over two hosts: what stands after site.yml, and that it comes back as a whole after each fault."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.lab_host import connect

TOP = Path(__file__).resolve().parents[3]
INVENTORY = str(TOP / ".config/molecule/inventory/group")
SUBNET = os.environ["LAB_SUBNET_PREFIX"]
URL = f"http://{SUBNET}.12:8000"
ADDRESSES = {"head": f"{SUBNET}.12", "worker": f"{SUBNET}.14"}
ANSWER = "The fleet is ready."
# For two starts of vLLM that share the processors of one machine with whatever else runs there.
LONG = 600


@pytest.fixture(scope="module")
def head():
    return connect("cpu-12")


@pytest.fixture(scope="module")
def worker():
    return connect("cpu-12b")


@pytest.fixture(autouse=True)
def serving(head, worker):
    """Each test begins with an instance that answers."""
    wait_for_answer()
    assert state(worker)["complete"] and state(head)["complete"]


def chat(timeout=60):
    """Return the answer of the instance."""
    body = {"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": "Is the fleet ready?"}]}
    request = urllib.request.Request(
        f"{URL}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def health():
    """Return what a gateway sees; 0 where nothing answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{URL}/health", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as exc:
        return exc.code
    except OSError:
        return 0


def wait_for_answer(seconds=LONG):
    """Wait until gateways would send requests, and one is answered; return after how many seconds."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        try:
            if health() == 200 and chat() == ANSWER:
                return time.monotonic() - began
        except OSError:
            pass
        time.sleep(1)
    pytest.fail(f"no answer within {seconds} s")


def wait_until(condition, seconds=60):
    """Wait for something; return after how many seconds it was so."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not so after {seconds} s"
        time.sleep(0.5)
    return time.monotonic() - began


def state(host):
    return json.loads(host.check_output("cat /run/vllm-group/big/state"))


def invocation(host):
    return host.check_output("systemctl show vllm@big --property=InvocationID --value")


def watchdog(host):
    return host.check_output("journalctl -u vllm-group@big --no-pager")


def playbook(*arguments):
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    command = ["ansible-playbook", "-i", INVENTORY, "site.yml", *arguments]
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def report(record_property, what, seconds):
    """Put a figure into the log of the run."""
    record_property(what, round(seconds, 1))
    print(f"{what}: {seconds:.1f} s")


def test_who_is_who(head, worker):
    assert head.service("vllm@big").is_enabled and worker.service("vllm@big").is_enabled
    assert "Joined the head" in worker.check_output("journalctl -u vllm@big --no-pager")
    assert "as head of big" in watchdog(head) and "as worker of big" in watchdog(worker)
    # The worker has no port for requests.
    assert not worker.socket("tcp://0.0.0.0:8000").is_listening


def test_a_third_host_reaches_requests_only(head):
    """Try every port that the head listens on, from the mirror."""
    rows = head.check_output("ss -Hltn").splitlines()
    ports = sorted({int(row.split()[3].rsplit(":", 1)[1]) for row in rows})
    assert 29501 in ports and len([port for port in ports if port >= 32768]) > 5
    code = (
        "import socket, sys\n"
        "for port in map(int, sys.argv[1:]):\n"
        "    try:\n"
        f"        socket.create_connection(('{ADDRESSES['head']}', port), 1).close()\n"
        "        print(port)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    found = connect("mirror").check_output(f"python3 -c %s {' '.join(map(str, ports))}", code)
    assert set(map(int, found.split())) <= {22, 8000}


def test_a_part_of_the_group_is_refused():
    run = playbook("-l", "cpu-12", "--check")
    assert run.returncode
    assert "vllm_instances.big spans hosts that this run leaves out: cpu-12b" in run.stdout + run.stderr


def test_the_worker_s_engine_dies(head, worker, record_property):
    before = [invocation(each) for each in (head, worker)]
    pids = worker.check_output("pgrep -f VLLM::Worker || pgrep -P $(systemctl show vllm@big -p MainPID --value)")
    worker.check_output("kill -9 %s", pids.split()[0])
    report(record_property, "gateways see it", wait_until(lambda: health() != 200))
    report(record_property, "right answer after the engine's death", wait_for_answer())
    assert all(now != then for now, then in zip([invocation(each) for each in (head, worker)], before, strict=True))


def test_the_head_is_stopped_and_started(head, worker, record_property):
    before = invocation(worker)
    head.check_output("systemctl stop vllm@big")
    report(record_property, "the worker ends", wait_until(lambda: invocation(worker) != before))
    head.check_output("systemctl start --no-block vllm@big")
    report(record_property, "right answer after the head's start", wait_for_answer())


def cut(host, address):
    """Drop everything between a host and another one."""
    host.check_output("nft add table inet cut")
    for hook, side in (("input", "saddr"), ("output", "daddr")):
        host.check_output(f"nft 'add chain inet cut {hook} {{ type filter hook {hook} priority -20; }}'")
        host.check_output(f"nft add rule inet cut {hook} ip {side} {address} drop")


def test_a_short_cut_restarts_nothing(head, worker):
    before = [invocation(each) for each in (head, worker)]
    cut(worker, ADDRESSES["head"])
    time.sleep(10)
    worker.check_output("nft delete table inet cut")
    assert chat(120) == ANSWER
    time.sleep(15)
    assert [invocation(each) for each in (head, worker)] == before
    assert chat() == ANSWER


def test_a_power_loss(head, worker, record_property):
    """Nothing of the worker reaches the head any more, then it is gone; after 40 s it is back."""
    before = invocation(head)
    cut(worker, ADDRESSES["head"])
    worker.check_output("systemctl kill --signal=SIGKILL vllm@big")
    report(record_property, "the head ends", wait_until(lambda: invocation(head) != before, 60))
    time.sleep(15)
    worker.check_output("nft delete table inet cut")
    report(record_property, "right answer after the network is back", wait_for_answer())


def test_a_changed_flag_restarts_all_and_a_second_run_nothing(head, worker):
    before = [invocation(each) for each in (head, worker)]
    changed = ("-e", json.dumps({"lab_args": {"max-num-seqs": 3}}))
    run = playbook(*changed)
    assert run.returncode == 0, run.stdout[-3000:]
    after = [invocation(each) for each in (head, worker)]
    assert all(now != then for now, then in zip(after, before, strict=True))
    second = playbook(*changed)
    assert second.returncode == 0 and second.stdout.count("changed=0") >= 3, second.stdout[-3000:]
    assert [invocation(each) for each in (head, worker)] == after
