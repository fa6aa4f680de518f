#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Show what upstream offers and the catalogue lacks: releases, chips, recipes and the vendors' drivers and toolkits.

tools/vllm/upstream.py             # from the stored copy, tools/vllm/offered.json, without a network
tools/vllm/upstream.py --read      # read it again first: pip asks this machine's index; recipes are in .cache/vllm; a
                                   # vendor's page that cannot be read keeps what is stored, with its date
tools/vllm/upstream.py --page      # write docs/reference/upstream.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".collections")]

from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import (  # noqa: E402
    RELEASES as ROCM_RELEASES,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (  # noqa: E402
    load_catalogue,
    servable_chips,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import PINS  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import sort_key  # noqa: E402
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.runtime import (  # noqa: E402
    DEFAULT_RELEASES,
)

STORED = ROOT / "tools" / "vllm" / "offered.json"
PAGE = ROOT / "docs" / "reference" / "upstream.md"
RELEASES = ROOT / "catalog" / "releases"
# The newest ones are enough.
KEPT = 12
# Huawei's releases of drivers are called candidates too.
FINAL = re.compile(r"\d+(?:\.\d+)+(?:\.post\d+|\.RC\d+)?\Z")
HEADERS = ("what", "upstream", "the catalogue", "lacks", "source")
# The oldest driver of each CUDA, by the table "CUDA Toolkit and Minimum Required Driver Version" of its release notes.
FLOORS = {"12": "525.60.13", "13": "580.65.06"}
# A page of a vendor is no longer.
MOST_BYTES = 10_000_000
# Chips that vLLM's recipes name and this collection does not serve, with the reason.
NOT_SERVED = {"trillium": "a TPU", "ironwood": "a TPU"}
HEAD = """\
# What upstream offers

What vLLM, its plugin for Ascend, its recipes and the vendors offered when they were last read, and what of it the
catalogue lacks.
In a [checkout](../../CONTRIBUTING.md#set-up), `make upstream` prints the table from the stored copy, and
`make upstream U=--read` reads upstream again. vllm-ascend may be newer on its front page than in the index. A vendor's
page may have been read from a stored copy, which can be older than the date of its row.
[Add a release](../contribute/add-a-flag-or-release.md#a-release), [add a chip](../contribute/add-a-chip.md).

"""


def lacks(offered: Mapping[str, Any], releases: Iterable[str], chips: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the rows of the table: what there is, what upstream has, what the catalogue has, what it lacks."""
    have, known = sorted(releases, key=sort_key), set(chips)
    newest = have[-1]
    later = [name for name in offered["vllm"] if sort_key(name) > sort_key(newest)]
    ascend = max(offered["vllm_ascend"], key=sort_key)
    has, newest_ascend = DEFAULT_RELEASES["cann"], offered["vllm_ascend_newest"]
    lack = ascend if sort_key(ascend) > sort_key(has) else ""
    if sort_key(ascend) < sort_key(has):
        lack = f"the source of {has}: it is not in the index; options and variables are those of {newest_ascend}"
    seen = ", ".join(dict.fromkeys((newest_ascend, ascend)))
    named = offered["hardware"]
    unknown = [f"{name} ({NOT_SERVED.get(name, named[name])})" for name in named if _chip(name) not in known]
    index, recipes = "package index", f"recipes of vLLM {offered['recipes_of']}"
    pinned = sum(name.startswith("recipes/models/") for name in _pins(offered["recipes_of"]))
    return [
        ("releases of vLLM", f"{max(offered['vllm'], key=sort_key)} is the newest", newest, ", ".join(later), index),
        ("releases of vllm-ascend", seen, has, lack, index),
        (
            "chips in recipes",
            f"{len(named)} names",
            f"{len(named) - len(unknown)} of them",
            ", ".join(unknown),
            recipes,
        ),
        ("recipes", str(offered["recipes"]), f"{pinned} pinned", "", recipes),
    ]


def vendor_rows(vendors: Iterable[Mapping[str, Any]], stacks: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of drivers and toolkits; ``stacks`` are those of the newest release that has each.

    vLLM's images bring their toolkit, so a newer one is no lack. A driver that no branch offers is, and one
    that is older than its toolkit needs. ``left_out`` of a vendor has the reason why the
    catalogue lacks a version.
    """
    rows: list[tuple[str, ...]] = []
    for vendor in vendors:
        stack, offers = stacks[vendor["stack"]], sorted(vendor["upstream"], key=sort_key, reverse=True)
        has, lack = str(stack[vendor["key"]]), ""
        if vendor["key"] == "minimum_driver":
            floor = FLOORS[str(stack["cuda"]).partition(".")[0]]
            if sort_key(has) < sort_key(floor):
                lack = f"CUDA {stack['cuda']} needs {floor}"
            elif all(sort_key(branch) < sort_key(has) for branch in offers):
                lack = "no branch has it"
            has = f"{has} or newer"
        elif sort_key(has) < sort_key(offers[0]):
            on_host = vendor["stack"] == "rocm" or vendor["key"] == "hdk"
            has, lack = (has, offers[0]) if on_host else (f"{has}, in vLLM's image", "")
            reason = vendor.get("left_out", {}).get(lack)
            lack += f": {reason}" if reason else ""
        source = f"[{re.sub('^https://|/.*', '', vendor['source'])}]({vendor['source']}), {vendor['read']}"
        rows.append((vendor["what"], ", ".join(offers), has, lack, source))
    return rows


def newest_stacks() -> dict[str, Mapping[str, Any]]:
    """Return each stack of the newest release that has it; on AMD's hosts the role chooses ROCm and driver itself."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(RELEASES.glob("*.yml"), key=lambda path: sort_key(path.stem)):
        found |= yaml.safe_load(path.read_text(encoding="utf-8"))["stacks"]
    newest = max(ROCM_RELEASES.values(), key=lambda release: sort_key(release.rocm))
    return {**found, "rocm": {"rocm": newest.rocm, "amdgpu": newest.driver}}


def versions_in(text: str, pattern: str, oldest: str = "") -> list[str]:
    """Return the final versions that a vendor's page names, the newest first.

    With ``oldest``, the newest of each branch from that one on.
    """
    found = {version for group in re.findall(pattern, text) for version in group.split() if FINAL.match(version)}
    ordered = sorted(found, key=sort_key)
    if oldest:
        branches = {name.partition(".")[0]: name for name in ordered if sort_key(name) >= sort_key(oldest)}
        ordered = list(branches.values())
    return ordered[: -KEPT - 1 : -1]


def _read_vendor(vendor: Mapping[str, Any], today: str) -> dict[str, Any]:
    """Return a vendor's entry as its page says now, or as it is stored where the page cannot be read."""
    try:
        with urllib.request.urlopen(vendor["source"], timeout=60) as answer:  # noqa: S310 (the address is ours)
            text = answer.read(MOST_BYTES).decode("utf-8", "replace")
        found = versions_in(text, vendor["pattern"], vendor.get("oldest", ""))
    except (URLError, TimeoutError, ConnectionError) as exc:
        print(f"{vendor['source']}: {exc}; kept what was read on {vendor['read']}", file=sys.stderr)
        return dict(vendor)
    if not found:
        print(f"{vendor['source']}: no version; kept what was read on {vendor['read']}", file=sys.stderr)
        return dict(vendor)
    return {**vendor, "upstream": found, "read": today}


def _chip(name: str) -> str:
    """Return the chip of a name of upstream's: a host with several of them has its own."""
    return re.sub(r"_\d+x\Z", "", name)


def _pins(version: str) -> Mapping[str, str]:
    pins: Mapping[str, str] = yaml.safe_load((PINS / f"{version}.yml").read_text(encoding="utf-8"))["files"]
    return pins


def catalogue_names() -> set[str]:
    """Return every name by which the catalogue knows a chip, upstream's among them."""
    return {_chip(str(name)) for chip in servable_chips(load_catalogue()) for name in (*chip.names, *chip.ids)} | {
        "xeon5",
        "xeon6",
    }


def read(recipes_of: str, vendors: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what upstream and vendors offer now. Raises CalledProcessError where pip reaches no index."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    models = ROOT / ".cache" / "vllm" / recipes_of / "recipes" / "models"
    hardware: Counter[str] = Counter()
    files = sorted(models.rglob("*.yaml"))
    for path in files:
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        hardware.update(list((recipe.get("meta") or {}).get("hardware") or ()))
    return {
        "read": today,
        "vllm": _finals(_versions("vllm")),
        "vllm_ascend": _finals(_versions("vllm-ascend")),
        "vllm_ascend_newest": _versions("vllm-ascend", "--pre")[0],
        "recipes_of": recipes_of,
        "recipes": len(files),
        "hardware": dict(sorted(hardware.items())),
        "vendors": [_read_vendor(vendor, today) for vendor in vendors],
    }


def _finals(names: Iterable[str]) -> list[str]:
    return [name for name in names if FINAL.match(name)][:KEPT]


def _versions(package: str, *options: str) -> list[str]:
    """Return the versions of a package in the index, the newest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", *options, package]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    names = done.stdout.partition("Available versions:")[2].partition("\n")[0].split(",")
    return [name.strip() for name in names]


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return the rows as a table of Markdown."""
    cells = [HEADERS, ("---",) * len(HEADERS), *rows]
    return "\n".join(f"| {' | '.join(cell or 'nothing' for cell in row)} |" for row in cells)


def page(offered: Mapping[str, Any]) -> str:
    """Return the whole page."""
    names = [path.stem for path in RELEASES.glob("*.yml")]
    rows = [*lacks(offered, names, catalogue_names()), *vendor_rows(offered["vendors"], newest_stacks())]
    return f"{HEAD}Read on {offered['read']}, or on the date of a row:\n\n{table(rows)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", action="store_true", help="read upstream again, and store it")
    parser.add_argument("--page", action="store_true", help="write the page")
    given = parser.parse_args()
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    if given.read:
        newest = max((path.stem for path in PINS.glob("*.yml")), key=sort_key)
        stored = read(newest, stored["vendors"])
        STORED.write_text(f"{json.dumps(stored, indent=2)}\n", encoding="utf-8")
    text = page(stored)
    if given.read or given.page:
        PAGE.write_text(text, encoding="utf-8")
    print(text[len(HEAD) :], end="")


if __name__ == "__main__":
    main()
