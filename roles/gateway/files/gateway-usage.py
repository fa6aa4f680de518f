# SPDX-License-Identifier: GPL-3.0-or-later
"""Store how many tokens the clients of the gateways used.

    gateway-usage.py CONFIG

CONFIG is JSON: ``gateway`` (the name of this gateway), ``servers`` (``ADDRESS:PORT`` -> name), ``database`` (a file of
SQLite), ``months`` to keep, ``port`` for Prometheus on the loopback address (GET /metrics/usage), ``budgets`` (the
tokens for ``minute``, ``day`` and ``month`` of clients, and of teams with @ in front), ``stats`` (a socket of HAProxy),
``map``, where HAProxy looks up whose budget is used up, and ``secret``, a map of HAProxy with what instances ask for.
With ``log`` each answer of this gateway is a line of JSON with the id of its request.

The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.usage.service_host import serve


def main() -> None:
    """Follow all instances until the unit stops."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        serve(json.load(file))


if __name__ == "__main__":
    main()
