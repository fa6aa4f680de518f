# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands for the gateway's systemd unit and for keepalived.

gateway-tool.py save SOCKET FILE CONFIG   save the server states, so that a drained server stays drained
gateway-tool.py fit FILE CONFIG           adapt a saved state to a configuration that has changed since
gateway-tool.py replace SOCKET MASTER     make HAProxy's master start a new worker, and wait for it
gateway-tool.py health ADDRESS PORT       exit with 0 if the gateway answers and has servers
gateway-tool.py arrived FILE              count that the shared address has come to this gateway

The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys
from typing import Callable

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.gateway.tool_host import (
    arrived,
    fit,
    health,
    replace,
    save,
)

COMMANDS: dict[str, tuple[Callable[..., bool | None], int]] = {
    "save": (save, 3),
    "fit": (fit, 2),
    "replace": (replace, 2),
    "health": (health, 2),
    "arrived": (arrived, 1),
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
