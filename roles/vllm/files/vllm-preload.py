# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold the weights of an instance on its chips while it stops and starts.

    vllm-preload.py serve NAME     started by vllm-preload@NAME.service: runs `vllm preload`
    vllm-preload.py settle NAME    started by vllm@NAME.service before vLLM: waits until the weights are there

The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.instance.preload_host import run


def main() -> None:
    """Run the command of the command line."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("serve", "settle"):
        raise SystemExit(__doc__)
    raise SystemExit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
