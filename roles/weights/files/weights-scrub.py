# SPDX-License-Identifier: GPL-3.0-or-later
"""Read all weights below a root and compare them with the sha256 in their stamps, the oldest check first.

Exits with 1 if any file is damaged. The directory beside this file has what it imports of the collection.
"""

from __future__ import annotations

import argparse
import os
import sys

sys.path.insert(0, os.path.splitext(os.path.abspath(__file__))[0])

from ansible_collections.baremetal.inference.plugins.module_utils.weights.scrub import REPORT
from ansible_collections.baremetal.inference.plugins.module_utils.weights.scrub_run_host import scrub


def main(arguments: list[str] | None = None) -> int:
    """Run the scrub; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", required=True, help="directory that contains ORGANISATION/NAME/REVISION")
    parser.add_argument("--report", default=REPORT, help="JSON file")
    parser.add_argument(
        "--bandwidth", type=int, default=0, help="limit of reading in megabits per second; 0 means no limit"
    )
    options = parser.parse_args(arguments)
    return scrub(options.root, options.report, options.bandwidth)


if __name__ == "__main__":
    sys.exit(main())
