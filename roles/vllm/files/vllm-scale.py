# SPDX-License-Identifier: GPL-3.0-or-later
"""Let gateways start, stop, wake and put to sleep the instances that have ``scale``, and do nothing else.

    vllm-scale.py CONFIG
    vllm-scale.py --wake | --start

CONFIG is JSON: ``host`` (the name in the inventory), ``listen`` (an address) and ``instances``: name -> ``resident``,
true for one that sleeps instead of stopping. A gateway proves that it has the key of the host, which
/etc/vllm/scale.key has too. --wake wakes all instances of the host and prints which; site.yml runs it. --start also
begins to start those that gateways have stopped; a rollout runs it, and so may a person. The directory beside this file
has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.instance.scale_door_host import (
    serve,
    start_all,
    wake_all,
)


def main() -> None:
    """Serve until the unit stops, or wake and start the instances."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if sys.argv[1] in ("--wake", "--start"):
        started = start_all() if sys.argv[1] == "--start" else []
        print("".join([*(f"woke {name}\n" for name in wake_all()), *(f"started {name}\n" for name in started)]), end="")
        return
    serve(sys.argv[1])


if __name__ == "__main__":
    main()
