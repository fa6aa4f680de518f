# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of an instance, as a gateway reads them."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_host import read_usage
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import Part

NOW = 1_764_077_502
FILE = "100.7-1.jsonl"


def record(number, at=NOW, **more):
    return {
        "number": number, "at": at, "gateway": "gw1", "client": "alice", "team": "research", "model": "m",
        "state": "complete", "prompt": 7, "cached": 3, "completion": 5, **more,
    }  # fmt: skip


def part(*records, file=FILE, end=100):
    return Part(file, end, list(records))


def rows(store):
    return read_usage(store.path, 0, NOW * 2)["rows"]
