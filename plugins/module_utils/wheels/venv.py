# SPDX-License-Identifier: GPL-3.0-or-later
"""A hash-locked requirements text -> the name of a virtual environment, its content, and the tool that makes it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

from .index import Link, WheelError, normalise_name, parse_name

TARGET_LINE = re.compile(r"#\s*target:\s*(\S+)\s*")
TARGET = re.compile(r"(?:cp(?P<major>\d)(?P<minor>\d+))-(?P<machine>x86_64|aarch64)")
PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9._+!-]*)\s*(?:;\s*(?P<marker>.+))?"
)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

# uv makes the environments. The lock pins it, so a release names the tool that it was tried with.
TOOL = "uv"

# Settings of uv and pip elsewhere on the host must not decide what is installed into the environment.
FOREIGN_SETTINGS = re.compile(
    r"(UV|PIP|PYC)_.*|VIRTUAL_ENV|CONDA_PREFIX|PYTHON(HOME|PATH|PYCACHEPREFIX|STARTUP|USERBASE)"
)


class VenvError(ValueError):
    """The environment cannot be made; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Target:
    """The target of wheels: ``python`` like ``3.11``, ``machine`` as uname names it."""

    python: str
    machine: str


@dataclass(frozen=True)
class Pin:
    """One project of a lock: normalised name, exact version, sha256 of the accepted files, its marker if any."""

    name: str
    version: str
    hashes: frozenset[str]
    marker: str = ""

    def text(self) -> str:
        """Return the pin as a requirements file has it."""
        first = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return " \\\n".join([first, *(f"    --hash=sha256:{digest}" for digest in sorted(self.hashes))])


@dataclass(frozen=True)
class Lock:
    """A lock: its pins by name, and its target where it names one (``# target: cp311-x86_64``)."""

    pins: Mapping[str, Pin]
    target: Target | None

    @property
    def tool(self) -> Pin:
        """The pin of uv. Raises VenvError when there is none."""
        if TOOL not in self.pins:
            raise VenvError(
                "the lock does not pin uv, which creates the environment; add uv==VERSION to it and lock again"
            )
        return self.pins[TOOL]

    def contents(self) -> list[Pin]:
        """Return what goes into the environment, sorted: all but uv."""
        return [pin for name, pin in sorted(self.pins.items()) if name != TOOL]


def parse_target(text: str) -> Target:
    """Return the target that is written as ``cp311-x86_64``. Raises VenvError for anything else."""
    match = TARGET.fullmatch(text)
    if match is None:
        raise VenvError(f"{text!r} is not a target; expected something like cp311-x86_64 or cp312-aarch64")
    return Target(f"{match['major']}.{match['minor']}", match["machine"])


def parse_lock(text: str) -> Lock:
    """Return the pins of a requirements text.

    Raises VenvError for a line that is not ``NAME==VERSION`` with at least one sha256: options, addresses and paths
    in a lock could add files that are not pinned.
    """
    pins: dict[str, Pin] = {}
    target = None
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        comment = TARGET_LINE.fullmatch(line.strip())
        if comment:
            target = parse_target(comment[1])
        words = re.sub(r"(^|\s)#.*", "", line).strip()
        if not words:
            continue
        hashes = HASH.findall(words)
        match = PIN.fullmatch(re.sub(r"(?<!\s)\s*--hash=\S+", "", words).strip())
        if match is None or not hashes or "--hash=" in HASH.sub("", words):
            raise VenvError(
                f"requirements line {words[:100]!r}: expected NAME==VERSION with --hash=sha256:... on every project; "
                "tools/vllm/lock_requirements.py makes such a lock"
            )
        name = normalise_name(match["name"])
        if name in pins:
            raise VenvError(f"requirements: {name} is pinned twice; one project has one version in an environment")
        pins[name] = Pin(name, match["version"], frozenset(hashes), (match["marker"] or "").strip())
    if not pins:
        raise VenvError("requirements: no project is pinned in it")
    return Lock(pins, target)


def join_locks(text: str, shared: str) -> str:
    """Return a lock with those projects of ``shared`` that have one wheel for every Python and machine, sorted."""
    head, *own = re.split(r"\n(?=\w)", text.strip())
    common = [pin for pin in re.split(r"\n(?=\w)", shared.strip()) if pin.count("--hash=") == 1 and " ; " not in pin]
    pins = sorted([*own, *common], key=lambda pin: pin.partition("==")[0])
    return "\n".join([head.partition("\n")[0], *pins]) + "\n"


def render_lock(target: str, comment: str, pins: Iterable[Pin]) -> str:
    """Return the text of a lock: its target, a comment line and the pins, sorted."""
    parse_target(target)
    return (
        "\n".join([f"# target: {target}", f"# {comment}", *(pin.text() for pin in sorted(pins, key=lambda p: p.name))])
        + "\n"
    )


def directory_name(name: str, text: str) -> str:
    """Return the name of the environment of a lock; it changes with the lock's content, except trailing line ends."""
    return f"{name}-{hashlib.sha256((text.rstrip() + chr(10)).encode()).hexdigest()[:12]}"


def check_host(target: Target | None, python: str, version: str, machine: str) -> None:
    """Raise VenvError unless wheels for target run on this Python and machine; no target, no check."""
    if target is None:
        return
    if version != target.python:
        raise VenvError(
            f"{python} is Python {version}, but the lock's wheels are for Python {target.python}; "
            f"point the option python to a Python {target.python}, or choose a release with a lock for {version}"
        )
    if machine != target.machine:
        raise VenvError(
            f"this host is {machine}, but the lock's wheels are for {target.machine}; "
            f"choose a release with a lock for {machine}"
        )


def check_space(path: str, free: int, wanted: int) -> None:
    """Raise VenvError when fewer than wanted bytes are free at path."""
    if free < wanted:
        raise VenvError(
            f"{path} has {free / 1e9:.1f} GB free, the environment needs {wanted / 1e9:.1f} GB; "
            "free some space there, or set vllm_venv_root to another directory"
        )


def check_listed(lock: Lock, listed: Iterable[str], index_url: str) -> None:
    """Raise VenvError when an index lacks a project of the lock; one with a marker may be meant for other hosts."""
    wanted = {name for name, pin in lock.pins.items() if not pin.marker}
    missing = sorted(wanted - {normalise_name(name) for name in listed})
    if missing:
        raise VenvError(
            f"{index_url} has no {', '.join(missing)}; "
            "carry the missing wheels to the mirror (playbooks/mirror.yml) and run the role mirror there"
        )


def choose_tool(pin: Pin, links: Sequence[Link], machine: str, index_url: str) -> tuple[Link, frozenset[str]]:
    """Return the wheel of uv for machine among the links of its page, and the digests that it may have."""
    for link in links:
        try:
            wheel = parse_name(link.filename)
        except WheelError:  # a source archive
            continue
        fits = any("manylinux" in platform and platform.endswith(machine) for _python, _abi, platform in wheel.tags)
        if wheel.version == pin.version and fits and (link.sha256 is None or link.sha256 in pin.hashes):
            return link, pin.hashes
    raise VenvError(
        f"{index_url} has no wheel of uv {pin.version} for {machine} with a sha256 of the lock; "
        "carry it to the mirror (playbooks/mirror.yml) and run the role mirror there"
    )


def uv_environment(inherited: Mapping[str, str], index_url: str, ca_file: str | None, cache_dir: str) -> dict[str, str]:
    """Return the variables that uv runs with: inherited ones without any setting of uv, pip or Python, and ours."""
    kept = {key: value for key, value in inherited.items() if not FOREIGN_SETTINGS.fullmatch(key)}
    ours = {
        "UV_CACHE_DIR": cache_dir,
        "UV_DEFAULT_INDEX": index_url,
        # The cache is on the same file system and removed afterwards, so nothing is on the disk twice.
        "UV_LINK_MODE": "hardlink",
        "UV_NO_CONFIG": "1",
        "UV_NO_PROGRESS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        # The site's own CA is in the host's store, if anywhere.
        "UV_SYSTEM_CERTS": "1",
    }
    if ca_file:
        ours["SSL_CERT_FILE"] = ca_file
    return {**kept, **ours}


def explain_failure(output: str, index_url: str, root: str) -> str:
    """Return one sentence for what uv printed when it failed."""
    # uv draws a tree beside its text.
    text = " ".join(re.sub(r"[^\x20-\x7e]+", " ", output).split())
    mirror = "carry the lock's wheels to the mirror (playbooks/mirror.yml) and run the role mirror there"
    mismatch = re.search(r"Hash mismatch for `([^`]{1,200})`", text)
    if mismatch:
        return f"{index_url} serves a file for {mismatch[1]} whose sha256 is not that of the lock; {mirror}"
    if "No space left on device" in text:
        return (
            f"{root} became full while the environment was created; free some space there, or set vllm_venv_root to "
            "another directory"
        )
    missing = re.search(
        r"Because (?:there is no version of )?(\S{1,200}?) (?:and you require|was not found in|has no )", text
    )
    if missing:
        return f"{index_url} has no wheel of {missing[1]} that the lock and this Python accept; {mirror}"
    return f"uv could not create the environment from {index_url}: {text[-600:]}"
