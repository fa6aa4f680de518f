# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until an instance serves at full speed, or fail if its process ends.

    vllm-wait-ready.py NAME [SECONDS]

Started by vllm@NAME.service after vLLM, so that the unit is active only when it serves; systemd's TimeoutStartSec is
the deadline. When vLLM answers /health, this program warms it up for about SECONDS, by default not at all, and tells
gateways. Of an instance on several hosts, only the workers accept no requests. The directory beside this file has what
it imports of the collection.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import InstanceError
from ansible_collections.baremetal.inference.plugins.module_utils.instance.listener_host import StrangerError
from ansible_collections.baremetal.inference.plugins.module_utils.instance.wait_ready_host import (
    EndedError,
    wait_ready,
)


def main() -> None:
    """Run the command of the command line."""
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    try:
        line = wait_ready(sys.argv[1], os.environ["MAINPID"], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    except (EndedError, InstanceError, StrangerError) as exc:
        raise SystemExit(str(exc)) from exc
    if line:
        print(line, flush=True)


if __name__ == "__main__":
    main()
