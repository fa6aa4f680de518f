#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gateway adds to the time to the first token and takes from the throughput, against vLLM asked directly.

The lab of tests/rollout; two of its three servers are drained, so that both ways lead to the same vLLM. They take turns
request by request for the first token, and stream at the same time for the throughput, so that what else the machine
does meets both. A client keeps its connection, as clients of the API do; what a new one costs is told beside it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))
os.environ.setdefault("LAB_NAME", "rollout")
os.environ.setdefault("LAB_SUBNET_PREFIX", "10.87.203")
os.environ.setdefault("LAB_HOME", str(TOP / ".lab"))

from tests.rollout.site import HOSTS, MODEL, OCTETS, Site

ADDED_MS, LOST_PERCENT = 2.0, 2.0
HOST = HOSTS[0]
WAYS = ("direct", "gateway")


class Client:
    """One connection that is kept, by one of the two ways."""

    def __init__(self, site: Site, way: str) -> None:
        self.site, self.way = site, way
        self.headers = {"Content-Type": "application/json"}
        if way == "gateway":
            self.headers["Authorization"] = f"Bearer {site.key()}"
        self.connect()

    def connect(self) -> None:
        """Have a new connection."""
        if self.way == "direct":
            address = f"{self.site.prefix}.{OCTETS[HOST]}"
            self.connection = http.client.HTTPConnection(address, 8000, timeout=60)
        else:
            address = f"{self.site.prefix}.{OCTETS['mirror']}"
            self.connection = http.client.HTTPSConnection(address, 443, timeout=60, context=self.site.trust())
        self.connection.connect()

    def models(self) -> float:
        """Return the seconds of a request that vLLM answers at once."""
        began = time.perf_counter()
        self.connection.request("GET", "/v1/models", headers=self.headers)
        answer = self.connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
        return time.perf_counter() - began

    def stream(self, tokens: int) -> float:
        """Return the seconds until the first chunk of a chat; the whole of it is read."""
        body = {
            "model": MODEL, "messages": [{"role": "user", "content": "Is the fleet ready?"}], "stream": True,
            "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
        }  # fmt: skip
        began = time.perf_counter()
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        first = 0.0
        done = False
        while line := answer.readline():
            if line.startswith(b"data: {") and b'"content":"' in line.replace(b" ", b"") and not first:
                first = time.perf_counter() - began
            done = done or line.startswith(b"data: [DONE]")
        assert answer.status == 200 and done, (answer.status, done)
        return first or time.perf_counter() - began


def by_turns(site: Site, number: int, ask) -> dict[str, list[float]]:
    """Return the seconds of so many requests by each way, which goes first by turns."""
    clients = {way: Client(site, way) for way in WAYS}
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(number + 5):
        for way in WAYS if turn % 2 else reversed(WAYS):
            seconds = ask(clients[way])
            if turn >= 5:
                found[way].append(seconds)
    return found


def throughput(site: Site, seconds: float, streams: int, tokens: int) -> dict[str, float]:
    """Return the tokens per second of so many streams by each way, all of them at the same time."""
    clients = [Client(site, way) for way in WAYS for _n in range(streams)]
    counts, lasted = [0] * len(clients), [0.0] * len(clients)
    begun = threading.Barrier(len(clients))

    def work(number: int) -> None:
        begun.wait()
        began = time.perf_counter()
        while lasted[number] < seconds:
            clients[number].stream(tokens)
            counts[number] += tokens
            lasted[number] = time.perf_counter() - began

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(clients))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rates = [count / took for count, took in zip(counts, lasted)]
    return {"direct": sum(rates[:streams]), "gateway": sum(rates[streams:])}


def fresh(client: Client) -> float:
    """Return the seconds of a request with its own connection."""
    began = time.perf_counter()
    client.connection.close()
    client.connect()
    client.models()
    return time.perf_counter() - began


def show(title: str, found: dict[str, list[float]]) -> float:
    """Print both medians in milliseconds, and what the gateway adds: the median of the differences of neighbours."""
    medians = {way: statistics.median(values) * 1000 for way, values in found.items()}
    added = statistics.median(after - before for before, after in zip(found["direct"], found["gateway"])) * 1000
    quarter = {way: statistics.quantiles(values, n=4)[0] * 1000 for way, values in found.items()}
    print(f"{title:44} direct {medians['direct']:8.2f} ms  gateway {medians['gateway']:8.2f} ms  added {added:6.2f} ms"
          f"  (at the first quartile {quarter['gateway'] - quarter['direct']:5.2f} ms)")  # fmt: skip
    return added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=200, help="requests by each way (default 200)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of throughput (default 10)")
    parser.add_argument("--seconds", type=float, default=6, help="seconds of a round (default 6)")
    options = parser.parse_args()
    site = Site()
    site.bring_up()
    for host in HOSTS[1:]:
        site.tell(f"set server chat/{host}--chat state drain")
    try:
        measure(site, options)
    finally:
        for host in HOSTS[1:]:
            site.tell(f"set server chat/{host}--chat state ready")


def measure(site: Site, options: argparse.Namespace) -> None:
    """Print both ways beside one another."""
    show(f"A list of models, {options.requests} times", by_turns(site, options.requests, Client.models))
    show("The same, a new connection each", by_turns(site, options.requests, fresh))
    added = show("The first token of a chat", by_turns(site, options.requests, lambda client: client.stream(8)))
    rounds = [throughput(site, options.seconds, 4, 64) for _n in range(options.rounds)]
    rates = {way: [found[way] for found in rounds] for way in WAYS}
    medians = {way: statistics.median(values) for way, values in rates.items()}
    lost = (1 - statistics.median(after / before for before, after in zip(rates["direct"], rates["gateway"]))) * 100
    rated = "  ".join(f"{way} {rate:8.1f}/s" for way, rate in medians.items())
    print(f"{'Tokens, 4 streams of 64 by each way':44} {rated}  lost {lost:6.1f} %")
    print(
        f"\nAdded to the first token {added:.2f} ms (goal at most {ADDED_MS:g}); "
        f"lost of the throughput {lost:.1f} % (goal at most {LOST_PERCENT:g})"
    )


if __name__ == "__main__":
    main()
