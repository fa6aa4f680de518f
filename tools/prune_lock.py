#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the hashes of a lock that pip uses for some Pythons and processors; uv names each file of each release.

    uv pip compile --universal --no-annotate --no-header --generate-hashes ironic.in -o ironic.txt
    tools/prune_lock.py ironic.txt 3.11-x86_64 3.11-aarch64 3.12-x86_64 ...

For one target, it writes what this Python needs besides the projects that have one wheel for all, for
playbooks/mirror.yml:

    cp ironic.txt ironic-cp311-x86_64.txt
    tools/prune_lock.py ironic-cp311-x86_64.txt 3.11-x86_64 --besides ironic.txt

Asks the package index that pip is configured for.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.markers import Marker

# The minor version of glibc 2 of the oldest hosts: Debian 12 has 2.36.
GLIBC = "36"


def wanted_by(text: str, python: str) -> str:
    """Return the requirements of a lock that a Python needs, without their markers: pip compares those with itself."""
    found = []
    for requirement in re.split(r"\n(?=\w)", text):
        first, _newline, hashes = requirement.partition("\n")
        name, _semicolon, marker = first.strip(" \\").partition(" ; ")
        if not marker or Marker(marker).evaluate({"python_full_version": f"{python}.0", "python_version": python}):
            found.append(f"{name} \\\n{hashes}" if hashes else name)
    return "\n".join(found)


def used_hashes(text: str, target: str) -> set[str]:
    """Return the sha256 of each file that pip chooses for a target such as ``3.13-x86_64`` or ``3.13-x86_64-28``."""
    python, processor, glibc = f"{target}-{GLIBC}".split("-")[:3]
    platforms = [*(f"manylinux_2_{minor}" for minor in range(int(glibc), 4, -1)), "manylinux2014", "manylinux1"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--ignore-requires-python", "--only-binary", ":all:", "--require-hashes", "--report", "-"]
    command += ["--target", "/nonexistent", "--python-version", python, "--platform", "any"]
    command += [f"--platform={platform}_{processor}" for platform in platforms]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
        lock.write(wanted_by(text, python))
        lock.flush()
        found = subprocess.run([*command, "-r", lock.name], check=True, stdout=subprocess.PIPE)
    return {item["download_info"]["archive_info"]["hashes"]["sha256"] for item in json.loads(found.stdout)["install"]}


def prune(text: str, used: set[str]) -> str:
    """Return a lock with these hashes only, without its comments."""
    lines: list[str] = []
    for line in text.splitlines():
        word = line.strip(" \\")
        if word.startswith("--hash="):
            if word.rpartition(":")[2] in used:
                lines[-1] += " \\"
                lines.append(f"    {word}")
        elif word and not word.startswith("#"):
            lines.append(word)
    return "\n".join(lines) + "\n"


def own_part(text: str, shared: str) -> str:
    """Return the requirements of a lock that another, which is pruned too, has not with one file for all targets."""
    common = {each for each in re.split(r"\n(?=\w)", shared.strip()) if each.count("--hash=") == 1}
    return "\n".join(each for each in re.split(r"\n(?=\w)", text.strip()) if each not in common) + "\n"


def headline(targets: list[str]) -> str:
    """Return the line that names the target of a lock; none for several targets."""
    python, processor = targets[0].split("-")[:2]
    return f"# target: cp{python.replace('.', '')}-{processor}\n" if len(targets) == 1 else ""


def main() -> None:
    """Prune a lock in place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path)
    parser.add_argument(
        "targets", nargs="+", metavar="PYTHON-PROCESSOR[-GLIBC]", help=f"GLIBC is {GLIBC}, of 2.{GLIBC}, if missing"
    )
    parser.add_argument("--besides", metavar="FILE", help="a lock in the same directory that has the rest")
    options = parser.parse_args()
    text = options.lock.read_text(encoding="utf-8")
    used = set().union(*(used_hashes(text, target) for target in options.targets))
    if len(options.targets) == 1:
        text = wanted_by(text, options.targets[0].partition("-")[0])
    pruned = prune(text, used)
    if options.besides:
        shared = options.lock.with_name(options.besides).read_text(encoding="utf-8")
        pruned = f"# besides: {options.besides}\n{own_part(pruned, shared)}"
    options.lock.write_text(headline(options.targets) + pruned, encoding="utf-8")


if __name__ == "__main__":
    main()
