# SPDX-License-Identifier: GPL-3.0-or-later
"""Take an instance out of service before systemd stops it.

    vllm-drain.py NAME DRAIN NOTICE

systemd runs this before it sends SIGTERM to vLLM. For NOTICE seconds gateways see that the instance is stopping, then
its requests get DRAIN seconds to finish. The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.instance.drain_host import drain


def main() -> None:
    """Run the command of the command line."""
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    line = drain(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
    if line:
        print(line, flush=True)


if __name__ == "__main__":
    main()
