# SPDX-License-Identifier: GPL-3.0-or-later
"""One instance over two hosts: what stands after site.yml, that it comes back as a whole after each fault, and that it
is one server for its gateway and for rollouts."""

from __future__ import annotations

import json
import os
import re
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
INVENTORY = str(TOP / ".config/molecule/inventory/group")
SUBNET = os.environ["LAB_SUBNET_PREFIX"]
URL, GATEWAY = f"http://{SUBNET}.12:8000", f"https://{SUBNET}.10"
ADDRESSES = {"head": f"{SUBNET}.12", "worker": f"{SUBNET}.14"}
ANSWER = "The fleet is ready."
# For two starts of vLLM that share the processors of one machine with whatever else runs there.
LONG = 600
# The scenario's vllm_group_stall.
STALL = 60


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
    """Wait until gateways send requests, and one is answered; return after how many seconds."""
    began, load = time.monotonic(), Load()
    while time.monotonic() - began < seconds:
        if health() == 200:
            load.ask()
            if load.rows[-1][1:3] == (200, ANSWER):
                return time.monotonic() - began
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


class Load(threading.Thread):
    """A chat through the gateway in each second: (start, status, answer, Retry-After); status 0: nothing answered."""

    def __init__(self):
        super().__init__(daemon=True)
        home = Path(os.environ["LAB_HOME"], os.environ["LAB_NAME"], "gateway")
        context = ssl.create_default_context(cafile=str(home / "ca/ca.crt"))
        handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        self.opener = urllib.request.build_opener(*handlers)
        self.key = (home / "load.key").read_text().strip()
        self.rows, self.asking, self.ended = [], [], threading.Event()

    def run(self):
        while not self.ended.wait(1):
            self.asking.append(threading.Thread(target=self.ask, daemon=True))
            self.asking[-1].start()

    def ask(self):
        began = time.time()
        body = {"model": "baremetal/gpt-oss-smoke", "messages": [{"role": "user", "content": "Is the fleet ready?"}]}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(f"{GATEWAY}/v1/chat/completions", json.dumps(body).encode(), headers)
        try:
            with self.opener.open(request, timeout=120) as answer:
                found = answer.status, json.load(answer)["choices"][0]["message"]["content"], None
        except urllib.error.HTTPError as exc:
            found = exc.code, exc.read().decode(), exc.headers["Retry-After"]
        except OSError as exc:
            found = 0, repr(exc), None
        self.rows.append((began, *found))

    def __enter__(self):
        self.start()
        wait_until(lambda: len(self.rows) > 2)
        return self

    def __exit__(self, *_exception):
        time.sleep(5)
        self.ended.set()
        for thread in self.asking:
            thread.join(120)
        self.rows.sort()

    def down(self):
        """Return the seconds from the first refused request to the next right answer; nothing else may have failed."""
        answered = [row for row in self.rows if row[1] == 200]
        refused = [row for row in self.rows if row[1] == 503]
        assert {row[2] for row in answered} == {ANSWER}
        assert len(answered) + len(refused) == len(self.rows), [row for row in self.rows if row[1] not in (200, 503)]
        assert {row[3] for row in refused} == {"5"}
        # All of them in one piece, and answers before and after it.
        between = [row for row in answered if refused[0][0] < row[0] < refused[-1][0]]
        assert not between and answered[0] < refused[0] and refused[-1] < answered[-1]
        return next(row[0] for row in answered if row[0] > refused[-1][0]) - refused[0][0]


def playbook(*arguments, name="site.yml"):
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    command = ["ansible-playbook", "-i", INVENTORY, name, *arguments]
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


def groups_checked(*arguments):
    """Try the network of the group, or its all-reduce; return the exit status and the output with single spaces."""
    run = playbook(*arguments, name="playbooks/check_groups.yml")
    return run.returncode, " ".join((run.stdout + run.stderr).split())


@pytest.mark.long
def test_the_network_between_the_hosts_is_tried(worker):
    """Both ways, with whole packets, and each fault with the pair that has it; the group runs on meanwhile."""
    status, said = groups_checked()
    assert status == 0, said[-3000:]
    for ours, theirs in (("cpu-12", "cpu-12b"), ("cpu-12b", "cpu-12")):
        assert f"{ours} to {theirs}: connected after " in said
    worker.check_output("nft add table inet cut")
    worker.check_output("nft 'add chain inet cut input { type filter hook input priority -20; }'")
    try:
        worker.check_output("nft add rule inet cut input udp dport 29499 meta length '>' 1400 drop")
        status, said = groups_checked()
        pair = f"cpu-12 ({ADDRESSES['head']}) to cpu-12b ({ADDRESSES['worker']})"
        assert status and f"do not get from {pair}; packets of 1400 bytes do" in said, said[-3000:]
        worker.check_output("nft flush chain inet cut input")
        worker.check_output("nft add rule inet cut input tcp dport 29499 drop")
        status, said = groups_checked()
        pair = f"cpu-12 ({ADDRESSES['head']}) does not reach cpu-12b ({ADDRESSES['worker']})"
        assert status and f"{pair} at port 29499: no answer" in said, said[-3000:]
    finally:
        worker.check_output("nft delete table inet cut")


@pytest.mark.long
def test_an_all_reduce_is_measured_and_one_without_a_host_ends(head, worker, record_property):
    status, said = groups_checked("-e", "check_all_reduce=true")
    assert status and "vllm@big is active, and it has the chips and ports that the all-reduce needs" in said
    for host in (worker, head):
        host.check_output("systemctl stop vllm@big")
    try:
        status, said = groups_checked("-e", "check_all_reduce=true")
        assert status == 0, said[-3000:]
        rates = re.findall(r"cpu-12b?: all-reduce over 2 processes: ([0-9.]+) GB/s", said)
        assert len(rates) == 2 and all(float(rate) > 0 for rate in rates)
        # The port of the check is open, the one at which the hosts meet is not.
        head.check_output("nft add table inet cut")
        head.check_output("nft 'add chain inet cut input { type filter hook input priority -20; }'")
        head.check_output("nft add rule inet cut input tcp dport 29501 ip saddr %s drop", ADDRESSES["worker"])
        began = time.monotonic()
        status, said = groups_checked("-e", "check_all_reduce=true", "-e", "vllm_group_check_timeout=20")
        report(record_property, "an all-reduce without the worker ends", time.monotonic() - began)
        assert status and f"hosts did not join: cpu-12b ({ADDRESSES['worker']})" in said, said[-3000:]
        for host in (head, worker):
            assert not host.run('pgrep -f \'"rounds"|"head": "\'').stdout
            assert not host.check_output("find /tmp -name 'vllm-all-reduce-*'")
    finally:
        head.run("nft delete table inet cut")
        for host in (head, worker):
            host.check_output("systemctl start --no-block vllm@big")


@pytest.mark.long
def test_the_worker_s_engine_dies(head, worker, record_property):
    before = [invocation(each) for each in (head, worker)]
    pids = worker.check_output("pgrep -f VLLM::Worker || pgrep -P $(systemctl show vllm@big -p MainPID --value)")
    worker.check_output("kill -9 %s", pids.split()[0])
    report(record_property, "gateways see it", wait_until(lambda: health() != 200))
    report(record_property, "right answer after the engine's death", wait_for_answer())
    assert all(now != then for now, then in zip([invocation(each) for each in (head, worker)], before, strict=True))


@pytest.mark.long
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


@pytest.mark.long
def test_a_short_cut_restarts_nothing(head, worker):
    before = [invocation(each) for each in (head, worker)]
    cut(worker, ADDRESSES["head"])
    time.sleep(10)
    worker.check_output("nft delete table inet cut")
    assert chat(120) == ANSWER
    time.sleep(15)
    assert [invocation(each) for each in (head, worker)] == before
    assert chat() == ANSWER


@pytest.mark.long
def test_a_power_loss(head, worker, record_property):
    """Nothing of the worker reaches the head any more, then it is gone; after 40 s it is back."""
    before = invocation(head)
    cut(worker, ADDRESSES["head"])
    worker.check_output("systemctl kill --signal=SIGKILL vllm@big")
    report(record_property, "the head ends", wait_until(lambda: invocation(head) != before, 60))
    time.sleep(15)
    worker.check_output("nft delete table inet cut")
    report(record_property, "right answer after the network is back", wait_for_answer())


@pytest.mark.long
def test_an_engine_hangs(head, worker, record_property):
    """The worker's processes stay, its connections too, and no token comes: vLLM's own figures then stand still."""
    before = [invocation(each) for each in (head, worker)]
    pids = worker.check_output("pgrep -f VLLM::Worker || pgrep -P $(systemctl show vllm@big -p MainPID --value)")
    worker.check_output("kill -STOP %s", pids.split()[0])
    asking = threading.Thread(target=Load().ask, daemon=True)
    asking.start()
    report(record_property, "the head ends", wait_until(lambda: invocation(head) != before[0], STALL + 60))
    assert "without a token: ended vLLM" in watchdog(head)
    report(record_property, "the worker ends", wait_until(lambda: invocation(worker) != before[1], 60))
    report(record_property, "right answer after that", wait_for_answer())


@pytest.mark.long
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


def flag(number, **more):
    """Return the options of a playbook that give the instance another argument."""
    return ("-e", json.dumps({"lab_args": {"max-num-seqs": number, **more}}))


def files(*hosts):
    """Return what each host runs with."""
    return [host.check_output("cat /etc/vllm/big.yaml /etc/vllm/big.group.json") for host in hosts]


@pytest.mark.long
def test_a_drain_of_the_worker_drains_the_head_s_server():
    drained = playbook("-l", "cpu-12b", "-e", "drain_min_available=0", name="playbooks/drain.yml")
    assert drained.returncode == 0, drained.stdout[-3000:]
    assert "big is one instance over cpu-12, cpu-12b" in drained.stdout
    assert "cpu-12--big (with cpu-12b)  drained" in drained.stdout
    load = Load()
    load.ask()
    assert load.rows[0][1] == 503 and load.rows[0][3] == "5"
    returned = playbook("-e", "drain_instance=big", name="playbooks/undrain.yml")
    assert returned.returncode == 0, returned.stdout[-3000:]


def test_a_part_of_the_group_is_not_rolled_out():
    run = playbook("-e", "target_hosts=cpu-12", *flag(2), "--check", name="playbooks/rollout.yml")
    assert run.returncode and "vllm_instances.big spans hosts that this run leaves out: cpu-12b" in run.stdout


@pytest.mark.long
def test_a_rollout_changes_both_hosts_as_one_and_a_rollback_takes_it_back(head, worker, record_property):
    before = files(head, worker)
    with Load() as load:
        run = playbook(*flag(2), name="playbooks/rollout.yml")
    assert run.returncode == 0 and "2 of 2 hosts are done" in run.stdout, run.stdout[-3000:]
    assert "wave 1 of 1 (canary): cpu-12, cpu-12b" in run.stdout
    report(record_property, "a rollout: the service is down for", load.down())
    assert all("max-num-seqs: 2" in text for text in files(head, worker))
    part = playbook("-e", "target_hosts=cpu-12b", name="playbooks/rollback.yml")
    assert part.returncode and "big spans hosts that this run leaves out: cpu-12;" in " ".join(part.stdout.split())
    with Load() as load:
        run = playbook("-e", "rollout_undo=last", name="playbooks/rollback.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    report(record_property, "a rollback: the service is down for", load.down())
    assert files(head, worker) == before


@pytest.mark.long
def test_a_flag_that_ends_vllm_is_taken_back_on_both_hosts(head, worker, record_property):
    before = files(head, worker)
    with Load() as load:
        run = playbook(*flag(2, **{"kv-cache-memory-bytes": 4096}), name="playbooks/rollout.yml")
    said = " ".join(run.stdout.split())
    assert run.returncode and "0 of 2 hosts are done" in said, run.stdout[-3000:]
    assert "cpu-12: restored to its earlier state" in said and "cpu-12b: restored to its earlier state" in said
    report(record_property, "a bad flag: the service is down for", load.down())
    assert files(head, worker) == before
    assert chat() == ANSWER
