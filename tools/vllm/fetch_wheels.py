#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fill DIR/wheels with exactly the wheels of a lock, as playbooks/mirror.yml does, and report the progress.

Runs where the wheel index can be reached and asks it as pip is configured to (its index, find-links, CA, proxy). Every
file is checked against the lock before it gets its name. Nothing is removed; run it again to continue.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import VenvError  # noqa: E402
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.wheelhouse_host import (  # noqa: E402
    fill_wheelhouse,
    inspect_wheelhouse,
    is_complete,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path, help="the lock, as tools/vllm/lock_requirements.py makes it")
    parser.add_argument("dest", type=Path, metavar="DIR", help="the mirror's root; the wheels go to DIR/wheels")
    arguments = parser.parse_args()
    try:
        fetch(arguments.lock, arguments.dest / "wheels")
    except (OSError, VenvError) as exc:
        print(f"{arguments.lock}: {exc}", file=sys.stderr)
        return 1
    return 0


def fetch(lock: Path, wheels: Path) -> None:
    """Fetch what is missing."""
    house = inspect_wheelhouse(str(lock), str(wheels))
    total = len(house.lock.pins)
    if is_complete(house):
        print(f"{wheels}: up to date, {total} wheels of {lock.name}")
        return
    missing = len(house.missing)
    print(f"{wheels}: {total - missing} of {total} wheels of {lock.name} are there, {missing} to fetch", flush=True)
    full = fill_wheelhouse(house, lambda text: print(text, flush=True))
    size = sum(file.size for file in full.files.values())
    print(f"{wheels}: complete, {total} wheels of {lock.name}, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
