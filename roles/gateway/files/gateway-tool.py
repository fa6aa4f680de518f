# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands for the gateway's systemd unit and for keepalived.

gateway-tool.py save SOCKET FILE CONFIG   save the server states, so that a drained server stays drained
gateway-tool.py fit FILE CONFIG           adapt a saved state to a configuration that has changed since
gateway-tool.py replace SOCKET MASTER     make HAProxy's master start a new worker, and wait for it
gateway-tool.py health ADDRESS PORT       exit with 0 if the gateway answers and has servers
gateway-tool.py arrived FILE              count that the shared address has come to this gateway
gateway-tool.py readers SOCKET MASTER FILE end requests whose clients hardly read, and count them in FILE

The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys
from typing import Callable

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.gateway import tool_host as tool
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.readers_host import watch

COMMANDS: dict[str, tuple[Callable[..., bool | None], int]] = {
    "save": (tool.save, 3),
    "fit": (tool.fit, 2),
    "replace": (tool.replace, 2),
    "health": (tool.health, 2),
    "arrived": (tool.arrived, 1),
    "readers": (watch, 3),
}


def main() -> None:
    """Run the command of the command line."""
    command, wanted = COMMANDS.get((sys.argv[1:] or [""])[0], (None, 0))
    if command is None or len(sys.argv) != wanted + 2:
        raise SystemExit(__doc__)
    if command(*sys.argv[2:]) is False:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
