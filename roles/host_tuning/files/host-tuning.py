# SPDX-License-Identifier: GPL-3.0-or-later
"""Set kernel, PCI and chip settings of this host.

    host-tuning.py apply [CONFIG]       set what the configuration requests
    host-tuning.py restore [CONFIG]     return to the values from before; the next boot sets the requested ones again
    host-tuning.py status [CONFIG]      show every setting; the exit status is 1 if one is not as configured

CONFIG defaults to the file that the role writes. The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.common.lines_host import write_error, write_line
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.program_host import apply, status
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.settings import TuningError

CONFIG = "/etc/host-tuning.json"


def main() -> int:
    """Run the command of the command line; return the exit status."""
    command, *words = sys.argv[1:] or [""]
    if command not in ("apply", "restore", "status") or len(words) > 1:
        print(__doc__, file=sys.stderr)
        return 2
    path = (words or [CONFIG])[0]
    try:
        if command == "status":
            differing, text = status(path)
            write_line(text)
            return min(differing, 1)
        write_line(apply(path, back=command == "restore"))
    except (TuningError, OSError) as exc:
        write_error(str(exc))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
