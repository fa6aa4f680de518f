# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the hosts of an instance together: where one is lost, end this side too, so that all start again.

    vllm-group.py NAME

Started as vllm-group@NAME.service beside vllm@NAME.service on each host of the group. The directory beside this file
has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.host_group.watchdog_host import watch_group


def main() -> None:
    """Run the command of the command line."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    watch_group(sys.argv[1])


if __name__ == "__main__":
    main()
