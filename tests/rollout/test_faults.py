# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong in a rollout, with requests all the while: none of them fails, and the next run ends well."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import threading
import time

import pytest

from tests.rollout.site import FLEET, GATEWAY, HOSTS, HUB_TOKEN, OCTETS, steps

CANARY, OTHERS = HOSTS[0], HOSTS[1:]
DIES = {"lab_args": {"kv-cache-memory-bytes": 4096}, "vllm_start_timeout": 120}
# What the lab's inventory leaves out of a rollout for want of time.
EXACT = {
    "rollout_measure": {"streams": 2, "prompts": 2, "max_tokens": 32, "ignore_eos": True},
    "rollout_throughput_share": 0.8,
    "rollout_first_token_share": 0.8,
}
# Each piece of an answer comes three seconds late. vLLM puts the tokens that wait into one piece, so a stream has about
# six: four tokens per second. These hosts have 400 on an idle machine, and were seen to have 18 on a very busy one.
SLOW_CODE = """
import asyncio

class Slow:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        async def later(message):
            if message["type"] == "http.response.body" and scope["path"].startswith("/v1/"):
                await asyncio.sleep(3)
            await send(message)
        await self.app(scope, receive, later)
"""
SLOW = {"lab_args": {"middleware": ["slow.Slow"]}, "lab_env": {"PYTHONPATH": "/srv/slow"}}
# A flag that no host is ever given.
NEVER = {"max-num-seqs": 15}
LONG = {"ignore_eos": True, "max_tokens": 300}


@pytest.fixture
def changing(site):
    """The site with a flag that is to change on every host."""
    site.change_flag()
    return site


@pytest.fixture
def started(changing):
    """Starts a rollout and waits until a host is at a step; ended however the test ends."""
    site, began, playing = changing, changing.journals(), []

    def start(host, step):
        playing.append(site.begin())

        def there():
            assert not playing[0].ended(), playing[0].end().output
            return site.journals() > began and step in steps(site.journal(), host)

        site.until(there, 600)
        return playing[0]

    yield start
    for process in playing:
        process.kill()


# A change that does not work


@pytest.mark.parametrize("bad", ["dies", "wrong", "slow"])
def test_what_does_not_work_stops_at_the_canary(site, bad):
    variables = {
        "dies": DIES,
        "wrong": {**site.crew(), "lab_sentence": FLEET},
        "slow": {**SLOW, **EXACT},
    }[bad]
    if bad == "slow":
        for host in HOSTS:
            site.on(host, f"mkdir -p /srv/slow && cat > /srv/slow/slow.py <<'END'\n{SLOW_CODE}\nEND")
    before = site.looks()
    # Where the processors have no time left, nobody's speed can be told.
    with site.load(workers=1, pause=3) if bad == "slow" else site.load() as load:
        run = site.rollout(**variables)
        load.wait(10)
    assert run.code != 0, run.output
    load.whole()
    assert load.texts() == {FLEET}
    after = site.looks()
    assert after[CANARY].runs() == before[CANARY].runs()
    assert {host: after[host] for host in OTHERS} == {host: before[host] for host in OTHERS}
    assert steps(site.journal(), CANARY)[-1] == "rolled_back"
    assert [steps(site.journal(), host) for host in OTHERS] == [[], []]
    assert {event["result"] for event in site.journal() if event["event"] == "ended"} <= {"stopped", "failed"}
    if bad == "slow":
        verdicts = [event["verdicts"] for event in site.journal() if event["event"] == "gate"][-1]
        assert {verdict["name"] for verdict in verdicts if not verdict["ok"]} >= {"throughput"}, verdicts
    assert {site.ask(host) for host in HOSTS} == {FLEET}
    site.until_up()


# What goes wrong around it


@pytest.mark.parametrize("moment", ["before it stops vLLM", "while vLLM starts"])
def test_a_controller_that_is_killed_in_the_middle_of_a_wave(site, started, moment):
    before = site.looks()
    with site.load() as load:
        playing = started(OTHERS[0], "apply")
        if moment == "while vLLM starts":
            site.until(lambda: site.starts(OTHERS[0]) > before[OTHERS[0]].starts)
        playing.kill()
        # systemd goes on with what it was told; nothing else does.
        time.sleep(5)
        run = site.rollout()
        load.wait(10)
    assert run.code == 0, run.output
    load.whole()
    after = site.looks()
    assert {host: after[host].starts - before[host].starts for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    assert all(after[host].files != before[host].files for host in HOSTS)
    site.until_up()


def test_a_host_that_is_cut_off_in_the_middle_of_its_turn(site, started):
    before = site.looks()
    # The controller's packets to it go nowhere, those of the connections that it has too.
    rule = ["OUTPUT", "-d", f"{site.prefix}.{OCTETS[OTHERS[0]]}", "-p", "tcp", "--dport", "22", "-j", "DROP"]
    with site.load() as load:
        playing = started(OTHERS[0], "apply")
        subprocess.run(["iptables", "-I", *rule], check=True)
        try:
            broken = playing.end()
        finally:
            subprocess.run(["iptables", "-D", *rule], check=True)
        run = site.rollout()
        load.wait(10)
    assert broken.code != 0 and OTHERS[0] in broken.output, broken.output
    assert run.code == 0, run.output
    load.whole()
    after = site.looks()
    assert {host: after[host].starts - before[host].starts for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    site.until_up()


def test_a_gateway_that_is_restarted_during_a_wave(site, started):
    with site.load() as load:
        playing = started(OTHERS[0], "apply")
        restarted = time.time()
        site.on(GATEWAY, "systemctl restart haproxy")
        whole = time.time()
        run = playing.end()
        load.wait(10)
    assert run.code == 0, run.output
    # Those that were on their way through it are lost with it, and no others.
    lost = load.failed()
    assert [row for row in lost if row["start"] > whole or row["start"] + row["seconds"] < restarted] == []
    assert len(load.rows) > 20 + len(lost)
    site.until_up()


def test_a_host_that_an_admin_has_drained_stays_drained(changing):
    site = changing
    server = f"chat/{OTHERS[1]}--chat"
    site.tell(f"set server {server} state drain")
    try:
        with site.load() as load:
            run = site.rollout()
            load.wait(10)
        assert run.code == 0, run.output
        load.whole()
        assert site.servers()[OTHERS[1]].startswith("DRAIN")
        assert f"max-num-seqs: {site.flag()}" in site.on(OTHERS[1], "cat /etc/vllm/chat.yaml")
    finally:
        site.tell(f"set server {server} state ready")


def test_two_rollouts_at_once(site, started):
    playing = started(CANARY, "drain")
    identity = site.journal()[0]["id"]
    second = site.rollout()
    assert second.code != 0 and identity in second.output, second.output
    first = playing.end()
    assert first.code == 0, first.output


# What else a turn brings


def test_an_engine_of_containers_comes_in_the_turn_of_its_host(site):
    podman = {"container_runtime_engine": "podman", "container_runtime_source": "distro"}
    engine = {"site_container_runtime": True, **podman}
    before = site.looks()
    with site.load() as load:
        run = site.rollout(**engine)
        load.wait(10)
    assert run.code == 0 and run.said("container engine"), run.output
    load.whole()
    assert all("driver" in steps(site.journal(), host) for host in HOSTS)
    assert all(site.on(host, "podman --version") for host in HOSTS)
    # What serves is the same process as before.
    assert site.looks() == before
    again = site.rollout(**engine)
    assert again.code == 0 and again.said("Nothing to do"), again.output


# A change that cannot be made


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rollout_waves": [3]}, "rollout_min_available"),
        ({"rollout_waves": [4]}, "rollout_waves[0] is 4, and the cluster has 3 hosts"),
        ({"rollout_min_available": 3}, "rollout_min_available is 3"),
    ],
)
def test_waves_that_would_leave_nobody_are_refused_before_anything(site, options, message):
    before, number = site.looks(), site.journals()
    run = site.rollout(**{"lab_args": NEVER, "rollout_canaries": 0, **options})
    assert run.code != 0 and run.said(message), run.output
    assert (site.looks(), site.journals()) == (before, number)


def test_weights_that_one_host_cannot_get(site):
    before, number = site.looks(), site.journals()
    crew = (site.home / "made/manifests/baremetal/gpt-oss-smoke.yml").read_text().split("revision: ")[1].split()[0]
    directory = f"/srv/models/baremetal/gpt-oss-smoke/{crew}"
    site.on(OTHERS[1], f"! test -e {directory} || mv {directory} /srv/away")
    site.on(GATEWAY, "systemctl stop nginx")
    try:
        run = site.rollout(**site.crew())
    finally:
        site.on(GATEWAY, "systemctl start nginx")
        site.on(OTHERS[1], f"! test -e /srv/away || mv /srv/away {directory}")
    assert run.code != 0 and OTHERS[1] in run.output and "mirror" in run.output, run.output
    assert (site.looks(), site.journals()) == (before, number)


@pytest.fixture
def talks(site):
    """Answers of the host that goes first, asked past the gateway, one long one after the other until the test ends."""
    said: list[str] = []
    over = threading.Event()

    def talk():
        while not over.is_set():
            try:
                said.append(site.chat(f"http://{site.prefix}.{OCTETS[CANARY]}:8000", **LONG))
            except (OSError, http.client.HTTPException) as exc:
                said.append(f"cut: {exc}")
                return

    threads = [threading.Thread(target=talk) for _n in range(3)]
    for thread in threads:
        thread.start()
    yield said
    over.set()
    for thread in threads:
        thread.join(timeout=300)


def test_a_host_that_does_not_become_idle_is_left_as_it_was(site, talks):
    before = site.looks()
    with site.load() as load:
        run = site.rollout(lab_args=NEVER, rollout_drain_timeout=3)
        load.wait(5)
    assert run.code != 0 and run.said("still busy after 3 s"), run.output
    load.whole(least=5)
    assert site.looks() == before and [text for text in talks if text.startswith("cut")] == []
    assert steps(site.journal(), CANARY)[-1] == "skipped"
    site.until_up()


def test_a_host_that_does_not_become_idle_is_cut_off_where_that_is_wanted(changing, talks):
    site = changing
    before = site.looks()
    with site.load() as load:
        run = site.rollout(rollout_drain_timeout=3, rollout_busy="cut")
        load.wait(5)
    assert run.code == 0, run.output
    # What comes through the gateway is short, and none of it was cut.
    load.whole()
    after = site.looks()
    assert {host: after[host].starts - before[host].starts for host in HOSTS} == dict.fromkeys(HOSTS, 1)
    site.until_up()


# Secrets


def test_planted_keys_are_nowhere(changing):
    site = changing
    run = site.rollout("-vvv", "--diff")
    assert run.code == 0, run.output
    kept = "".join(path.read_text(errors="replace") for path in site.rollouts.rglob("*") if path.is_file())
    for secret in (site.key(), HUB_TOKEN):
        assert secret not in run.output and secret not in kept
        # Encoded, so that it is not found in the very commands that look for it.
        pattern = f"echo {base64.b64encode(secret.encode()).decode()} | base64 -d"
        for host in (GATEWAY, *HOSTS):
            places = "/etc /run /var/lib /usr/local /var/log /tmp /root /proc/[0-9]*/cmdline"
            found = site.on(host, f"{pattern} | grep -rlsF -D skip --exclude-dir=journal -f - {places}", check=False)
            # Where it belongs: in the file that root alone reads, and in what is kept of that.
            wanted = {"/etc/vllm/chat.secrets"} if secret == HUB_TOKEN and host != GATEWAY else set()
            others = {path for path in found.splitlines() if "/slots/" not in path}
            assert others == wanted, host
            assert (
                site.on(
                    host,
                    f"{pattern} > /run/pattern; journalctl --no-pager | grep -cF -f /run/pattern; rm /run/pattern",
                    check=False,
                )
                == "0"
            )
    assert "max-num-seqs" in json.dumps(site.journal())
