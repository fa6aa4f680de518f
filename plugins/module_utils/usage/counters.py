# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus and the log of answers get of a gateway's tokens."""

from __future__ import annotations

import json
import threading
from typing import Any

from .budgets import escaped


class Counters:
    """What Prometheus reads: counters since the start, of the requests that this gateway served."""

    def __init__(self, gateway: str) -> None:
        self.gateway = gateway
        self.lock = threading.Lock()
        self.tokens: dict[tuple[str, str, str], list[int]] = {}
        self.missing = 0
        # Why a server is not counted, by its name; empty for one that is.
        self.servers: dict[str, str] = {}
        # When it was read last.
        self.read_at: dict[str, float] = {}

    def add(self, rows: list[dict[str, Any]], missing: int) -> None:
        """Add rows of the store."""
        with self.lock:
            self.missing += missing
            for row in rows:
                if row["gateway"] == self.gateway:
                    key = row["client"], row["team"], row["model"]
                    sums = self.tokens.setdefault(key, [0, 0, 0, 0])
                    for number, value in enumerate((1, row["prompt"], row["cached"], row["completion"])):
                        sums[number] += value

    def text(self, store_works: bool) -> str:
        """Return the page."""
        with self.lock:
            tokens, servers = {key: list(sums) for key, sums in self.tokens.items()}, dict(self.servers)
            read_at = dict(self.read_at)
            missing = self.missing
        lines = ["# TYPE inference_usage_requests_total counter", "# TYPE inference_usage_tokens_total counter"]
        for (client, team, model), sums in sorted(tokens.items()):
            labels = f'client="{escaped(client)}",team="{escaped(team)}",model="{escaped(model)}"'
            lines.append(f"inference_usage_requests_total{{{labels}}} {sums[0]}")
            for kind, value in zip(("prompt", "cached", "completion"), sums[1:]):
                lines.append(f'inference_usage_tokens_total{{{labels},kind="{kind}"}} {value}')
        lines += ["# TYPE inference_usage_missing_records_total counter"]
        lines += [f"inference_usage_missing_records_total {missing}"]
        lines += ["# TYPE inference_usage_store_up gauge", f"inference_usage_store_up {int(store_works)}"]
        lines += ["# TYPE inference_usage_server_counted gauge"]
        lines += [
            f'inference_usage_server_counted{{server="{escaped(name)}"}} {int(not why)}'
            for name, why in sorted(servers.items())
        ]
        lines += ["# TYPE inference_usage_server_read_timestamp_seconds gauge"]
        lines += [
            f'inference_usage_server_read_timestamp_seconds{{server="{escaped(name)}"}} {at:.0f}'
            for name, at in sorted(read_at.items())
        ]
        return "\n".join([*lines, ""])


def log_lines(rows: list[dict[str, Any]], gateway: str) -> str:
    """Return a line of JSON for each answer of a gateway to a request that has an id."""
    names = ("id", "client", "team", "model", "aborted", "uncounted", "prompt", "cached", "completion")
    return "".join(
        json.dumps({name: row[name] for name in names}) + "\n"
        for row in rows
        if row["id"] and row["gateway"] == gateway
    )
