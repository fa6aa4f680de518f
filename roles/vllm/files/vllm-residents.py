# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which of the instances that share chips is awake; the others sleep (vLLM's sleep mode).

    vllm-residents.py serve GROUP PATIENCE
    vllm-residents.py acquire GROUP NAME SECONDS

``serve`` is the service vllm-residents@GROUP. It asks each instance whose environment has ``RESIDENTS=GROUP`` who waits
there, and wakes the one whose requests have waited longest. ``acquire`` runs before vLLM starts. The directory beside
this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys
from typing import Sequence

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.residents.service_host import Service
from ansible_collections.baremetal.inference.plugins.module_utils.residents.start_host import acquire


def main(words: Sequence[str]) -> None:
    """Run the command of the command line."""
    if words[:1] == ["serve"] and len(words) == 3:
        Service(words[1], float(words[2])).run()
    elif words[:1] == ["acquire"] and len(words) == 4:
        acquire(words[1], words[2], float(words[3]))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
