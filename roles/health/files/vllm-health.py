# SPDX-License-Identifier: GPL-3.0-or-later
"""Watch the chips of this host, and take instances of vLLM on sick ones out of service.

    vllm-health.py run [CONFIG]         the service
    vllm-health.py status [CONFIG]      what keeps instances out of service
    vllm-health.py boot-faults [CONFIG] the faults that only a new start of the host ends, as JSON
    vllm-health.py clear CHIP [CONFIG]  the chip with this PCI address, or all, was repaired: prove it, then return

CONFIG defaults to the file that the role writes. The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys
import time

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.common.lines_host import write_line
from ansible_collections.baremetal.inference.plugins.module_utils.health.commands_host import boot_faults, clear, status
from ansible_collections.baremetal.inference.plugins.module_utils.health.service_host import Service
from ansible_collections.baremetal.inference.plugins.module_utils.health.settings_host import Settings

CONFIG = "/etc/vllm-health.json"


def main() -> int:
    """Run the command of the command line; return the exit status."""
    command, *words = sys.argv[1:] or [""]
    if command == "run" and len(words) <= 1:
        Service(Settings.read((words or [CONFIG])[0])).run()
    elif command == "status" and len(words) <= 1:
        write_line(status(Settings.read((words or [CONFIG])[0])))
    elif command == "boot-faults" and len(words) <= 1:
        write_line(boot_faults(Settings.read((words or [CONFIG])[0])))
    elif command == "clear" and 1 <= len(words) <= 2:
        write_line(clear(Settings.read((words[1:] or [CONFIG])[0]), words[0], f"{time.time_ns()}-{os.getpid()}"))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
