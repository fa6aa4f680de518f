# SPDX-License-Identifier: GPL-3.0-or-later
"""Print the part of a lock that one Python needs, without markers: pip judges them by the Python that it runs with.

python lock_for.py LOCK 3.13
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from packaging.markers import Marker


def main() -> None:
    text, version = Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2]
    environment = {"python_version": version, "python_full_version": f"{version}.9"}
    for entry in re.split(r"(?m)^(?=[a-z])", text):
        head = re.match(r"(\S+)(?: ; ([^\\]+))? \\\n", entry)
        if head and (not head[2] or Marker(head[2]).evaluate(environment)):
            print(head[1] + " \\\n" + entry[head.end() :], end="")


if __name__ == "__main__":
    main()
