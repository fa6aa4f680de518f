#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the picture of the fleet page in the docs, docs/images/fleet.png: a made-up fleet that has every state.

    PYTHONPATH=.collections .venv/bin/python tools/drawing/fleet.py    # needs chromium

The page itself is the one of playbooks/status.yml.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.page import page
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.reader import page_parts

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/fleet.png"
SIZE = (1180, 780)
CHAT, CODE = ("chat", "openai/gpt-oss-120b"), ("code", "Qwen/Qwen3-Coder-30B-A3B-Instruct")
# Of each cluster: site, model, chips of a host, number of hosts, what they serve, and the hosts that are not well.
CLUSTERS = {
    "fra1": ("frankfurt", "h200", 8, 6, CHAT, {
        0: ("serves", ""), 3: ("serves", ""),
        1: ("sick", "chat: down: sick: isolate_host xid 79 of 0000:5d:00.0"),
        2: ("drained", "chat: drained by admin:alice since 2026-11-24 09:12: new fans"),
        4: ("drifted", "chat: vLLM 0.32.0 is installed, 0.33.0 is planned"),
        5: ("conflict", "declared h200 x 8, found h200 x 7"),
    }),
    "hel1": ("helsinki", "mi300x", 8, 5, CODE, {
        1: ("unknown", "a chip that no file of the catalogue lists"), 2: ("stale", "no answer within 10 s"),
        3: ("declared", ""), 4: ("unseen", "no accelerator is declared or detected"),
    }),
}  # fmt: skip


def fleet() -> list[Line]:
    """Return the lines of the hosts, in the order of fleet_lines()."""
    lines = []
    # The page says how long ago that was.
    seen_at = int(time.time()) - 20 * 60
    for cluster, (site, model, chips, hosts, serves, unwell) in CLUSTERS.items():
        for number in range(hosts):
            state, why = unwell.get(number, ("seen", ""))
            known = () if state == "unseen" else ((model, chips),)
            lines.append(
                Line(f"{cluster}-{number + 1:02}", site, cluster, known, state, why, seen_at=seen_at, serves=(serves,))
            )
    return lines


def html() -> str:
    """Return the page of the made-up fleet."""
    return page(fleet(), load_catalogue().models, "Fleet", page_parts())


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    chromium = shutil.which("chromium")
    if not chromium:
        sys.exit("chromium is not installed; on Debian: apt-get install chromium")
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "fleet.html"
        source.write_text(html(), encoding="utf-8")
        flags = (
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            f"--user-data-dir={directory}/profile", f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={PICTURE}",
        )  # fmt: skip
        subprocess.run([chromium, *flags, source.as_uri()], check=True, capture_output=True, timeout=120)
    print(f"Written: {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
