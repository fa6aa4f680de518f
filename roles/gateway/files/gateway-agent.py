# SPDX-License-Identifier: GPL-3.0-or-later
"""Report to HAProxy which instances of vLLM are sick although they answer /health.

    gateway-agent.py CONFIG

CONFIG is JSON: ``port`` to answer on (loopback), ``interval``, ``stuck_after`` and ``probe_after`` in seconds,
``error_limit``, ``min_available`` (servers that each service keeps, however sick), ``stats`` (HAProxy's socket with
its counters), ``readers`` (a file of gateway-tool.py with the number of requests that it has ended), ``unusable`` (a
file for keepalived, or nothing), and ``servers``: ``ADDRESS:PORT`` -> ``name``,
``service``, ``model``, ``group`` where several are one instance, and ``places`` (requests at once of this gateway, and
the most of all gateways) where the agent corrects them. HAProxy connects, sends ADDRESS:PORT and a newline, and reads
``up``, ``down #reason``, or an empty line while the state is unknown, which changes nothing; ``maxconn:PLACES`` may
follow.

``down #hangs: ...`` means that its running requests never end; gateway-hanging.lua ends them. ``GET /metrics`` tells
when each check last worked. The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.agent_host import serve


def main() -> None:
    """Answer until the unit stops."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        serve(json.load(file))


if __name__ == "__main__":
    main()
