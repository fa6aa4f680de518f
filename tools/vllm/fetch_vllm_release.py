#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Download and unpack what the parity tests need of vLLM: real parsers, and upstream's recipes.

    tools/vllm/fetch_vllm_release.py            # both: the CPU build of 0.32.0 and the sources of 0.33.0

0.32.0 is a virtual environment of the wheels in catalog/releases/requirements/, fetched as tools/lab/content.sh does.
0.33.0 is vLLM's own source distribution: its Python files run in that environment, and it holds the recipes. All of it
is pinned by sha256 and kept in .cache/vllm; pip and uv ask the index that this machine is set up for.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "vllm"
MIRROR = Path(os.environ.get("LAB_HOME", ROOT / ".lab")) / "mirror"
CPU_BUILD = "0.32.0"
LOCK = ROOT / "catalog" / "releases" / "requirements" / f"{CPU_BUILD}-cpu-cp311-x86_64.txt"
# Source distributions by version.
SOURCES = {"0.33.0": "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112"}
# Directory and suffix of what is unpacked: the code, the recipes, and the chat templates that recipes name.
WANTED = (("vllm", ".py"), ("recipes", ".yaml"), ("examples", ".jinja"))
# Hidden, so that an incomplete directory is never used as a complete one: a rename publishes it.
SCRATCH = ".fetch-"

# Before pip delivers a source distribution, it asks the distribution's build code for metadata, and vLLM's needs
# torch for that. This replaces it: no code of vLLM runs.
BUILD_STAND_IN = """\
import pathlib

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = pathlib.Path(directory, "vllm-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: vllm\\nVersion: {version}\\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return info.name
"""


class FetchError(Exception):
    """A download or an environment failed; the message is the whole sentence."""


def environment(cache: Path = CACHE, mirror: Path = MIRROR) -> Path:
    """Return the Python of an environment with vLLM's CPU build; create the environment if it is missing."""
    lock = LOCK.read_bytes()
    target = cache / f"{CPU_BUILD}-{hashlib.sha256(lock).hexdigest()[:12]}"
    python = target / "bin" / "python"
    if not (target / ".complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        run(
            [sys.executable, ROOT / "tools" / "vllm" / "fetch_wheels.py", LOCK, mirror],
            "fetch the wheels of vLLM's CPU build",
        )
        uv = Path(sys.executable).with_name("uv")
        offline = ["--no-config", "--offline", "--quiet"]
        run([uv, "venv", *offline, "--python", "3.11", target], "make an environment of Python 3.11")
        with tempfile.TemporaryDirectory(dir=cache, prefix=SCRATCH) as scratch:
            wheels: list[str | Path] = ["--no-index", "--find-links", mirror / "wheels", "--no-deps"]
            wheels += ["--require-hashes", "--requirement", LOCK, "--python", python, "--cache-dir", scratch]
            run([uv, "pip", "install", *offline, *wheels], "install vLLM's CPU build")
        # An environment cannot be renamed (it contains its path), so a file marks it as complete.
        (target / ".complete").touch()
    return python


def sources(version: str, cache: Path = CACHE) -> Path:
    """Return the directory with a release's ``vllm/``, ``recipes/`` and ``examples/``; fetch it if it is missing."""
    target = cache / version
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=SCRATCH) as scratch:
            unpacked = Path(scratch) / version
            unpack(download(version, Path(scratch)), unpacked)
            claim_cpu_build(unpacked, version)
            unpacked.replace(target)
    return target


def download(version: str, scratch: Path) -> Path:
    """Return the source distribution of a version, verified by pip against the pinned sha256 where there is one."""
    backend = scratch / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").touch()
    (backend / "build_meta.py").write_text(BUILD_STAND_IN.replace("{version}", version), encoding="utf-8")
    requirement = scratch / "requirement.txt"
    pinned = f" --hash=sha256:{SOURCES[version]}" if version in SOURCES else ""
    requirement.write_text(f"vllm=={version}{pinned}\n", encoding="utf-8")
    command: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "vllm"]
    command += ["--no-build-isolation", *(["--require-hashes"] if pinned else [])]
    command += ["--requirement", requirement, "--dest", scratch]
    stand_in = {"PYTHONPATH": str(backend.parent), "SETUPTOOLS_USE_DISTUTILS": "stdlib"}
    run(command, f"fetch the source distribution of vLLM {version}", stand_in)
    return scratch / f"vllm-{version}.tar.gz"


def unpack(archive: Path, target: Path) -> None:
    """Unpack the needed files of a source distribution, and none whose name leads out of it."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(*Path(member.name).parts[1:])
            wanted = (path.parts[0] if path.parts else "", path.suffix) in WANTED and ".." not in path.parts
            content = tar.extractfile(member) if wanted and member.isfile() else None
            if content:
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                (target / path).write_bytes(content.read())


def claim_cpu_build(site: Path, version: str) -> None:
    """Add the metadata of a CPU build to the sources, from which vLLM learns that it needs no accelerator."""
    info = site / f"vllm-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


def run(command: Sequence[str | Path], what: str, variables: dict[str, str] | None = None) -> None:
    """Run a command; raise FetchError with the end of its output on failure."""
    words = [str(word) for word in command]
    environ = {**os.environ, **(variables or {})}
    done = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ)
    if done.returncode:
        raise FetchError(f"cannot {what}: {' '.join(words)}\n{done.stdout[-2000:]}")


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    try:
        print(environment())
        for version in SOURCES:
            print(sources(version))
    except (FetchError, OSError) as exc:
        print(f"fetch_vllm_release: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
