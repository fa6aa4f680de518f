#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make NAME-cp311-x86_64.txt, the lock of one target, from NAME-cp311-x86_64.in.

From NAME.in with a line `# targets: cp311-x86_64 cp312-x86_64` it makes one lock for each of these targets.
A lock pins every project to the one wheel that its target uses, so it stays small and needs no resolver later.
Two other lines of the .in file have a meaning: `# exclude: NAME ...` leaves projects out that a dependency names and
that are not wanted, and `# index only` ignores pip's find-links, where a build for other hardware may lie.
Needs uv (of any recent version) and Python 3.11 or later.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import tomllib
from packaging.tags import Tag, compatible_tags, cpython_tags

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import publish  # noqa: E402
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.index import normalise_name, parse_name  # noqa: E402
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import (  # noqa: E402
    Pin,
    Target,
    VenvError,
    parse_target,
    render_lock,
)

# The C library of the oldest hosts that a lock serves: RHEL 9 has 2.34, Ubuntu 22.04 2.35, Debian 12 2.36.
GLIBC_MINOR = 34
# PyTorch's own index of the +cpu builds, used only when the configured index has none.
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "source", type=Path, help="the .in file; NAME-cp311-x86_64.in for one target, or NAME.in with a line of targets"
    )
    parser.add_argument(
        "--uv", default=shutil.which("uv") or "uv", help="the uv to resolve with (default: that of PATH)"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the lock would change")
    arguments = parser.parse_args()
    changed = False
    try:
        for name in targets_of(arguments.source):
            changed |= update(arguments.source, name, arguments.uv, arguments.check)
    except (OSError, VenvError, subprocess.CalledProcessError) as exc:
        print(f"{arguments.source}: {exc}", file=sys.stderr)
        return 2
    return int(arguments.check and changed)


def update(source: Path, name: str, uv: str, check: bool) -> bool:
    """Write the lock of one target unless it is current, and return whether it was not; check writes nothing."""
    lock = lock_path(source, name)
    text = make_lock(source, name, uv)
    current = lock.exists() and lock.read_text(encoding="utf-8") == text
    if not current and not check:
        publish(str(lock), text)
    print(f"{lock}: {'up to date' if current else 'differs' if check else 'written'}", flush=True)
    return not current


def targets_of(source: Path) -> list[str]:
    """Return the targets of an .in file, from its name or its line. Raises VenvError where it has none."""
    name = re.search(r"-(cp\d+-[a-z0-9_]+)$", source.stem)
    if name:
        return [name[1]]
    found = [word for line in directive(source, "targets") for word in line.split()]
    if not found:
        raise VenvError(
            "its name must end in the target, as in NAME-cp311-x86_64.in, or it needs a line '# targets: cp311-x86_64'"
        )
    return found


def lock_path(source: Path, name: str) -> Path:
    """Return the lock of one target: beside the .in file, with the target at the end of its name."""
    stem = source.name.removesuffix(".in")
    return source.with_name(f"{stem.removesuffix(f'-{name}')}-{name}.txt")


def directive(source: Path, word: str) -> list[str]:
    """Return what follows ``# WORD:`` in each such line of an .in file."""
    return re.findall(rf"(?m)^#\s*{word}:(.*)$", source.read_text(encoding="utf-8"))


def make_lock(source: Path, name: str, uv: str) -> str:
    """Return the text of the lock of one target."""
    target = parse_target(name)
    excluded = [word for line in directive(source, "exclude") for word in line.split()]
    priority = {tag: place for place, tag in enumerate(tags_of(target))}
    pins = [pin_of(package, priority) for package in resolve(source, target, excluded, uv)]
    return render_lock(
        name, f"Made from {source.name} by tools/vllm/lock_requirements.py; change that file, not this one.", pins
    )


def resolve(source: Path, target: Target, excluded: list[str], uv: str) -> list[dict[str, Any]]:
    """Return the packages of a PEP 751 lock: each with the wheels that fit the target."""
    with tempfile.TemporaryDirectory() as scratch:
        excludes, pylock = Path(scratch, "excludes.txt"), Path(scratch, "pylock.toml")
        excludes.write_text("\n".join(excluded) + "\n", encoding="utf-8")
        command = [
            uv,
            "pip",
            "compile",
            str(source),
            "--excludes",
            str(excludes),
            "--output-file",
            str(pylock),
            "--quiet",
        ]
        command += [
            "--format",
            "pylock.toml",
            "--generate-hashes",
            "--only-binary",
            ":all:",
            "--python-version",
            target.python,
        ]
        command += ["--python-platform", f"{target.machine}-manylinux_2_{GLIBC_MINOR}"]
        environment = {**pip_settings(), **os.environ}
        if re.search(r"(?m)^#\s*index only$", source.read_text(encoding="utf-8")):
            environment.pop("UV_FIND_LINKS", None)
        result = subprocess.run(command, check=False, env=environment, text=True, stderr=subprocess.PIPE)
        if result.returncode and "torch" in result.stderr:
            command += ["--index", TORCH_INDEX, "--index-strategy", "unsafe-best-match"]
            result = subprocess.run(command, check=False, env=environment, text=True, stderr=subprocess.PIPE)
        if result.returncode:
            raise VenvError(f"uv cannot resolve it:\n{result.stderr}")
        packages: list[dict[str, Any]] = tomllib.loads(pylock.read_text(encoding="utf-8"))["packages"]
        return packages


def pip_settings() -> dict[str, str]:
    """Return pip's find-links and index-url as uv's variables: uv does not read pip's configuration."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    found = {}
    for line in listed.splitlines():
        key, _equals, value = line.partition("=")
        variable = {"find-links": "UV_FIND_LINKS", "index-url": "UV_DEFAULT_INDEX"}.get(key.rsplit(".", 1)[-1])
        if variable:
            found[variable] = ",".join(ast.literal_eval(value).split())
    return found


def tags_of(target: Target) -> list[Tag]:
    """Return the tags that a target accepts, best first."""
    version = tuple(int(part) for part in target.python.split("."))
    platforms = [f"manylinux_2_{minor}_{target.machine}" for minor in range(GLIBC_MINOR, 4, -1)]
    legacy = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    for minor, alias in legacy.items():
        platforms.insert(platforms.index(f"manylinux_2_{minor}_{target.machine}") + 1, f"{alias}_{target.machine}")
    platforms.append(f"linux_{target.machine}")
    interpreter = f"cp{version[0]}{version[1]}"
    return [*cpython_tags(version, [interpreter], platforms), *compatible_tags(version, interpreter, platforms)]


def pin_of(package: dict[str, Any], priority: dict[Tag, int]) -> Pin:
    """Return the pin of one package: the hash of the wheel that the target prefers."""
    best: list[tuple[int, str]] = []
    for wheel in package.get("wheels", []):
        name = parse_name(
            wheel.get("name") or unquote(urlparse(wheel.get("url") or wheel["path"]).path.rsplit("/", 1)[-1])
        )
        places = [priority[Tag(*tag)] for tag in name.tags if Tag(*tag) in priority]
        if places:
            best.append((min(places), wheel["hashes"]["sha256"]))
    if not best:
        raise VenvError(f"{package['name']} {package['version']} has no wheel for this target")
    return Pin(normalise_name(package["name"]), package["version"], frozenset([min(best)[1]]))


if __name__ == "__main__":
    sys.exit(main())
