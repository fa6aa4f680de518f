# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the Harmony libraries of a host about its encodings, and remember which answers still hold."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from typing import Any, Mapping, Sequence

from ..common.files_host import make_directories, publish, sha256_of
from ..common.processes_host import become
from ..containers.image_names import reference
from .files import ENCODINGS
from .library import (
    ENCODINGS_VARIABLE,
    NEEDED,
    QUESTION,
    FoundFile,
    RefusedError,
    Use,
    container_command,
    describe_no_answer,
    describe_refusal,
    parse_answer,
)

VERSION = 1
# Remembers which libraries have accepted which files.
STATE_FILE = "/var/lib/baremetal-inference/encodings-check.json"
# Loading takes a second; a first start of an image on a slow disk takes many.
PATIENCE_S = 300


def read_state(use: Use, engine: str, user: str) -> dict[str, Any]:
    """Return everything that an answer depends on: the files, the library's place, and who reads."""
    return {
        "files": {name: _file_identity(os.path.join(use.directory, name)) for name in sorted(ENCODINGS)},
        "library": _image_id(engine, use.image) if use.image else _file_identity(use.python),
        "user": use.user or user,
    }


def read_accepted(path: str) -> dict[str, Any]:
    """Return the state that each use had when its library accepted the encodings; nothing where no run has asked."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict) or content.get("version") != VERSION or not isinstance(content.get("good"), dict):
        return {}
    return dict(content["good"])


def write_accepted(path: str, good: Mapping[str, Any]) -> None:
    """Remember which answers hold, by rename."""
    make_directories(os.path.dirname(path))
    publish(path, json.dumps({"version": VERSION, "good": good}, indent=1, sort_keys=True))


def all_accepted(uses: Sequence[Use], engine: str, user: str, path: str = STATE_FILE) -> bool:
    """Return whether every library has accepted the encodings that are there now."""
    before = read_accepted(path) if uses else {}
    return all(before.get(use.key) == read_state(use, engine, user) for use in uses)


def ask_library(use: Use, engine: str, user: str) -> tuple[str, str]:
    """Return the library's name and version, and a warning where it could not be asked (one of them is empty).

    Raises RefusedError where it does not load the encodings.
    """
    found = _inspect_file(os.path.join(use.directory, NEEDED))
    # Without the file the engine would fail with an unclear error about the mount, and every library needs the file.
    if found.size < 0:
        raise RefusedError(describe_refusal(use, {}, found, user))
    output, said = _run_question(use, engine, user)
    answer = parse_answer(output)
    if "refused" in answer:
        raise RefusedError(describe_refusal(use, answer, found, user))
    if "loaded" not in answer:
        return "", describe_no_answer(use, answer, said)
    return answer.get("library", "harmony"), ""


def _run_question(use: Use, engine: str, user: str) -> tuple[str, str]:
    """Return the standard output and the standard error of the question's command."""
    if use.image:
        return _run_command(container_command(use, engine, _uid_and_gid(use.user or user)))
    return _run_command(
        [use.python, "-I", "-c", QUESTION], {ENCODINGS_VARIABLE: use.directory, "LC_ALL": "C.UTF-8"}, user
    )


def _run_command(
    words: Sequence[str], env: Mapping[str, str] | None = None, user: str | None = None
) -> tuple[str, str]:
    """Run a command, as a user where one is named, and return its standard output and its error output."""
    try:
        done = subprocess.run(
            list(words),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=None if env is None else {"PATH": os.defpath, **env},
            # The user need not be able to enter the directory that Ansible came from.
            cwd="/",
            timeout=PATIENCE_S,
            preexec_fn=become(_account(user)) if user and os.geteuid() == 0 else None,
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer in {PATIENCE_S} seconds"
    except OSError as exc:
        return "", str(exc)
    return done.stdout, done.stderr or f"exit status {done.returncode}"


def _uid_and_gid(user: str) -> str:
    entry = _account(user)
    return f"{entry.pw_uid}:{entry.pw_gid}"


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError as exc:
        raise RefusedError(f"user: found no user {user!r} on this host, expected the one that vLLM runs as") from exc


def _image_id(engine: str, image: str) -> str:
    output, said = _run_command([engine, "image", "inspect", "--format", "{{.Id}}", reference(image)])
    # An image that cannot be inspected cannot be asked either, so no answer is remembered.
    return output.strip() or f"unknown: {' '.join(said.split())[-200:]}"


def _file_identity(path: str) -> list[int] | None:
    """Return the identity of a file; a later file at its path has another one, because nobody can set a ctime."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return [found.st_size, found.st_ino, found.st_ctime_ns]


def _inspect_file(path: str) -> FoundFile:
    try:
        return FoundFile(path, os.path.getsize(path), sha256_of(path))
    except OSError:
        return FoundFile(path, -1, "")
