# SPDX-License-Identifier: GPL-3.0-or-later
"""Replicas that follow the load, from site.yml and gateway.yml to a replica that stops and starts, with a real vLLM."""

from __future__ import annotations

import time

from tests.rollout.site import HOSTS, MODEL

# The gateway stops no replica before ten minutes without need, in which all hosts have answered. On a busy machine a
# start takes minutes.
QUIET, START = 2400, 900
SECRET = "scale-" + "0" * 40
INSTANCE = {
    "recipe": MODEL,
    "host": "0.0.0.0",
    "port": 8000,
    "args": {"kv-cache-memory-bytes": "192M", "distributed-executor-backend": "uni", "max-num-seqs": 2},
    "env": {"VLLM_CPU_KVCACHE_SPACE": None, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
    "scale": {"min": 2, "max": 3},
}


def play_both(site, **variables):
    for playbook, limit in (("site.yml", ",".join(HOSTS)), ("playbooks/gateway.yml", "mirror")):
        run = site.play(playbook, "--limit", limit, **variables)
        assert run.code == 0, run.output


def active(site):
    return {host for host in HOSTS if site.on(host, "systemctl is-active vllm@chat", check=False) == "active"}


def test_a_replica_that_is_not_needed_stops_and_starts_again_with_the_load(site):
    # Without a secret gateways have nothing to prove themselves to hosts with, and gateway.yml refuses.
    play_both(site, vllm_instances={"chat": INSTANCE}, gateway_secret=SECRET)
    site.until_up()
    site.until(lambda: len(active(site)) == 2, QUIET, lambda: active(site))
    (stopped,) = set(HOSTS) - active(site)
    began = time.monotonic()
    # More than two replicas compute at once.
    with site.load(12, 0.0) as load:
        site.until(lambda: stopped in active(site), START, lambda: active(site))
        print(f"{stopped} serves {time.monotonic() - began:.0f} s after the load came")
        site.until_up(seconds=START)
        load.wait(24)
    load.whole()
    assert "scale chat: start" in site.on("mirror", "journalctl -u gateway-agent --no-pager -o cat")
    # Without scale nothing starts or stops any more.
    play_both(site)
    assert site.on(HOSTS[0], "systemctl is-active vllm-scale || true") in ("inactive", "unknown")
    site.until_up()
