# SPDX-License-Identifier: GPL-3.0-or-later
"""Link the machine's PyTorch and what else a lock names into a directory:  machine_torch.py PACKAGES LOCK TARGET

PACKAGES is the site-packages directory of the machine. Beside PyTorch it has packages that no lock of vLLM has, such as
scikit-learn, and what finds them imports them at each start. Bytecode is compiled where it is missing or out of date,
as the role does it for an environment. Prints what it found. Runs with the Python of the environment, as root.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import re
import struct
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

CHECK = """
import sys
sys.path.append(sys.argv[1])
import torch, triton, torchvision, torchaudio, sympy, networkx, numba, cv2
"""


def normalize(name: str) -> str:
    """Return the name of a package as locks write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def list_entries(packages: Path, names: set[str]) -> set[str]:
    """Return the files and directories of site-packages that belong to the named packages."""
    found = set()
    for info in packages.glob("*.dist-info"):
        if normalize(info.name.removesuffix(".dist-info").rsplit("-", 1)[0]) not in names:
            continue
        rows = (info / "RECORD").read_text(encoding="utf-8").splitlines() if (info / "RECORD").exists() else []
        found |= {info.name, *(row.split("/", 1)[0].split(",", 1)[0] for row in rows)}
    return {name for name in found if name not in ("..", "__pycache__", "") and (packages / name).exists()}


def link(packages: Path, entries: set[str], target: Path) -> None:
    """Link the entries into the target, and nothing else."""
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    for name in entries:
        (target / name).symlink_to(packages / name)


def count_bytecode(root: Path) -> Counter[str]:
    """Return how many Python files below a directory have bytecode that is used."""
    found: Counter[str] = Counter()
    for directory, _directories, files in os.walk(root):
        for name in files:
            if name.endswith(".py"):
                found[state_of(Path(directory), name)] += 1
    return found


def state_of(directory: Path, name: str) -> str:
    """Return whether the bytecode of a file is missing, out of date or valid."""
    kept = directory / "__pycache__" / f"{name[:-3]}.{sys.implementation.cache_tag}.pyc"
    try:
        head = kept.open("rb").read(16)
        source = (directory / name).stat()
    except OSError:
        return "missing"
    flags, changed, size = struct.unpack("<III", head[4:])
    if head[:4] != importlib.util.MAGIC_NUMBER:
        return "of another Python"
    if flags:
        return "by hash"
    current = changed == int(source.st_mtime) & 0xFFFFFFFF and size == source.st_size & 0xFFFFFFFF
    return "valid" if current else "out of date"


def main() -> None:
    """Link, check, and compile."""
    packages, lock, target = map(Path, sys.argv[1:4])
    names = {normalize(line.split("==")[0]) for line in lock.read_text().splitlines() if re.match(r"[\w.-]+==", line)}
    entries = list_entries(packages, names)
    link(packages, entries, target)
    done = subprocess.run([sys.executable, "-I", "-c", CHECK, str(target)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"NOTE: all packages of the machine are linked, because: {done.stderr.strip().splitlines()[-1:]}")
        entries = {path.name for path in packages.iterdir() if path.name != "__pycache__"}
        link(packages, entries, target)
    print(f"{len(entries)} of {len(list(packages.iterdir()))} entries are linked")
    standard = Path(sysconfig.get_path("stdlib"))
    for name, place in (("the machine's packages", packages), ("Python", standard)):
        print(f"bytecode of {name}, before: {dict(count_bytecode(place))}")
    needless = re.compile("/(tests?|dist-packages)/")
    for place in (standard, *(packages / name for name in sorted(entries))):
        if place.is_dir():
            compileall.compile_dir(str(place), quiet=2, workers=0, rx=needless)
    for name, place in (("the machine's packages", packages), ("Python", standard)):
        print(f"bytecode of {name}, after: {dict(count_bytecode(place))}")


if __name__ == "__main__":
    main()
