#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/reference/support.md: what ran, what was tried with stand-ins, and what is only planned.

PYTHONPATH=.collections .venv/bin/python tools/support_matrix.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Iterable, Mapping

import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.cann.packages import APT_SYSTEMS, DNF_SYSTEMS
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.packages import TAGS
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import SYSTEMS
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import sort_key

TOP = Path(__file__).resolve().parents[1]
PAGE = TOP / "docs/reference/support.md"
RUN, STOOD_IN, PLANNED = "**run**", "stood in", "planned"
TITLES = {
    "debian": "Debian",
    "ubuntu": "Ubuntu",
    "rhel": "RHEL and its clones",
    "openeuler": "openEuler",
    "kylin": "Kylin",
}
# The lab hosts on which molecule installs drivers that are stand-ins.
LAB = ("Debian 12", "Debian 13")
# Releases that stay for the tests of published guides.
OLDEST = "0.20.2"
HEAD = """\
# Support matrix

What ran and what did not. **run**: it answered a chat on such a machine. *stood in*: the role ran on such a system,
and the driver's packages and the vendor's tools were stand-ins. *planned*: the plan is made and checked, and nothing
was started. [Hardware](hardware.md) has the figures.

In a checkout, `tools/support_matrix.py` makes this page from the catalogue and [support.yml](support.yml).

"""


def systems() -> dict[str, dict[str, str]]:
    """Return for each operating system what is known of drivers and container engines."""
    drivers: Mapping[str, Iterable[tuple[str, str]]] = {
        "NVIDIA's driver": TAGS,
        "AMD's driver": SYSTEMS,
        "Huawei's driver": [*APT_SYSTEMS, *DNF_SYSTEMS],
    }
    found: dict[str, dict[str, str]] = {}
    for column, known in drivers.items():
        for name, version in sorted(known):
            title = f"{TITLES[name]} {version}"
            found.setdefault(title, {})[column] = STOOD_IN if title in LAB else PLANNED
    engines = yaml.safe_load((TOP / "roles/container_runtime/vars/main.yml").read_text(encoding="utf-8"))
    for system in engines["__container_runtime_systems"]:
        name, major = system.lower().replace("redhat", "rhel").split("_")
        for title, cells in found.items():
            if title.startswith(f"{TITLES.get(name, '?')} {major}"):
                cells["docker, podman"] = RUN if title in LAB else PLANNED
    return dict(sorted(found.items()))


def releases() -> dict[str, Mapping[str, Any]]:
    """Return the stacks of each release that is for use, the oldest first."""
    files = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (TOP / "catalog/releases").glob("*.yml")
    }
    names = sorted((name for name in files if sort_key(name) >= sort_key(OLDEST)), key=sort_key)
    return {name: files[name]["stacks"] for name in names}


def offers(stack: Mapping[str, Any], chip: str, kind: str) -> bool:
    """Return whether a release has an image, or locked packages, for a chip."""
    if kind == "venv":
        return bool(stack.get("requirements"))
    return chip in stack["images"] if "images" in stack else bool(stack.get("image"))


def chips() -> dict[str, tuple[str, list[str]]]:
    """Return the chips by what is known of them: their stack, and how each release serves them in each runtime."""
    runs = yaml.safe_load((TOP / "docs/reference/support.yml").read_text(encoding="utf-8"))["runs"]
    ran = {(run["chip"], "venv" if run["runtime"] == "venv" else "container", run["release"]) for run in runs}
    shown: dict[str, tuple[str, list[str]]] = {}
    stacks = {name: model.stack for name, model in load_catalogue().models.items()} | {"cpu": "cpu"}
    for kind in ("container", "venv"):
        for chip, stack in sorted(stacks.items(), key=lambda pair: (pair[1], pair[0])):
            cells = [
                RUN if (chip, kind, name) in ran else PLANNED if offers(known.get(stack, {}), chip, kind) else ""
                for name, known in releases().items()
            ]
            if any(cells):
                shown[f"{chip}, {kind}"] = (stack, cells)
    return shown


def page() -> str:
    """Return the page."""
    columns = ["NVIDIA's driver", "AMD's driver", "Huawei's driver", "docker, podman"]
    rows = [
        f"| {title} | {' | '.join(cells.get(name, '') for name in columns)} |" for title, cells in systems().items()
    ]
    text = HEAD + "## Operating systems\n\n" + table(["system", *columns]) + "\n".join(rows)
    text += (
        "\n\nRHEL stands for AlmaLinux, Rocky Linux, CentOS Stream and Oracle Linux too. No driver was\n"
        "installed on a machine with a chip: the machines of the runs came with theirs.\n\n"
        "## Chips and releases of vLLM\n\n"
    )
    same: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for name, (stack, cells) in chips().items():
        chip, kind = name.split(", ")
        same.setdefault((stack, kind, tuple(cells)), []).append(chip)
    rows = [
        f"| {shortened(names)} | {kind} | {' | '.join(cells)} |"
        for (_stack, kind, cells), names in sorted(
            same.items(), key=lambda entry: (entry[0][0], RUN not in entry[0][2], entry)
        )
    ]
    text += table(["chip", "runtime", *releases()]) + "\n".join(rows)
    runs = yaml.safe_load((TOP / "docs/reference/support.yml").read_text(encoding="utf-8"))["runs"]
    rows = [f"| {' | '.join(str(run[key]) for key in ('chip', 'os', 'runtime', 'release', 'where'))} |" for run in runs]
    text += "\n\n## What ran\n\n" + table(["chip", "system", "runtime", "vLLM", "where"]) + "\n".join(rows)
    machines = sorted(path.name for path in (TOP / "tests/standins/machines").iterdir() if path.is_dir())
    text += f"\n\nStand-ins of whole machines: {', '.join(machines)} ([machine types](machine-types.md)).\n"
    return text


def shortened(names: list[str]) -> str:
    """Return the names of chips, of many only those that a stand-in or most readers know."""
    known = [name for name in names if name in ("a100", "b200", "b300", "l40s", "mi300x", "mi325x", "mi355x", "r9700")]
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(known)} and {len(names) - len(known)} others"


def table(names: Iterable[str]) -> str:
    """Return the head of a table."""
    cells = list(names)
    return f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
