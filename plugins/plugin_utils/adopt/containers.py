# SPDX-License-Identifier: GPL-3.0-or-later
"""Read ``docker run`` and ``podman run``."""

import re
import shlex
from pathlib import PurePosixPath
from typing import Mapping, Sequence

from .shell import CommandError, as_written, expand
from .start import Start

ENGINES = ("docker", "podman", "nerdctl")
# Options without a value; short ones may stand together.
_SWITCHES = {
    "detach", "disable-content-trust", "env-host", "init", "interactive", "no-healthcheck", "no-hosts",
    "oom-kill-disable", "privileged", "publish-all", "quiet", "read-only", "replace", "rm", "rmi", "sig-proxy",
    "tls-verify", "tty",
}  # fmt: skip
_SHORT_SWITCHES = "ditPq"
_SHORT = {"e": "env", "p": "publish", "v": "volume", "w": "workdir", "u": "user", "h": "hostname", "m": "memory"}
# What the role vllm sets itself for its containers, or what a service of systemd does in its place.
BY_ROLE = {
    "annotation", "cap-add", "cap-drop", "cgroupns", "detach", "device", "device-cgroup-rule", "gpus", "group-add",
    "hostname", "init", "interactive", "ipc", "label", "log-driver", "log-opt", "mount", "name", "net", "network",
    "no-healthcheck", "pid", "platform", "privileged", "publish-all", "pull", "quiet", "read-only", "replace",
    "restart", "rm", "runtime", "security-opt", "shm-size", "stop-timeout", "tmpfs", "tty", "ulimit", "user", "userns",
    "uts", "volume", "workdir",
}  # fmt: skip
_CHIP = re.compile(r"/dev/(?:davinci|nvidia)([0-9]{1,4})(?::|\Z)|\b\w+\.com/gpu=([0-9]{1,4})\Z")


def run_command(words: Sequence[str]) -> int | None:
    """Return where the options of ``docker run`` begin, None for any other statement."""
    for place, word in enumerate(words[:-1]):
        if PurePosixPath(word).name in ENGINES:
            rest = words[place + 1 :]
            if rest[0] == "compose":
                raise CommandError(
                    f"{word} compose: starts what a file says; give that file with -e adopt_file=FILE (--file FILE)"
                )
            if rest[0] in ("run", "create"):
                return place + 2
            return place + 3 if list(rest[:2]) in (["container", "run"], ["container", "create"]) else None
    return None


def read_run(words: Sequence[str], known: Mapping[str, str]) -> tuple[Start, list[str]]:
    """Return the container of ``docker run``, whose options are ``words``, and the words behind its image."""
    start, place = Start("container"), 0
    while place < len(words) and words[place].startswith("-"):
        name, value, place = _option(words, place)
        take(start, name, expand(value, known), known)
    if place >= len(words):
        raise CommandError("docker run: found no image behind its options, expected one such as vllm/vllm-openai")
    start.image = expand(words[place], known)
    return start, list(words[place + 1 :])


def _option(words: Sequence[str], place: int) -> tuple[str, str, int]:
    """Return name and value of the option at a place, and the place of the next word."""
    word = words[place]
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        if equals or name in _SWITCHES:
            return name, value, place + 1
    else:
        letters = word[1:]
        if all(letter in _SHORT_SWITCHES for letter in letters):
            return {"d": "detach", "P": "publish-all"}.get(letters[:1], "tty"), "", place + 1
        # -it may be followed by an option with its value in the same word: -e NAME=VALUE, -eNAME=VALUE.
        head = re.match(rf"[{_SHORT_SWITCHES}]*", letters).group()  # type: ignore[union-attr]
        name, rest = _SHORT.get(letters[len(head)], letters[len(head)]), letters[len(head) + 1 :]
        if rest:
            return name, rest.removeprefix("="), place + 1
    if place + 1 >= len(words):
        raise CommandError(f"docker run: the option {word} is the last word, expected its value and the image")
    return name, words[place + 1], place + 2


def take(start: Start, name: str, value: str, known: Mapping[str, str]) -> None:
    """Take one option of a container into its start; ``name`` is that of ``docker run``."""
    if name in ("env", "e"):
        variable, equals, text = value.partition("=")
        start.env[variable] = text if equals else known.get(variable)
    elif name in ("publish", "p"):
        start.ports.append(value)
    elif name == "env-file":
        start.lost.append(f"--env-file {as_written(value)}")
    elif name == "entrypoint":
        try:
            start.entrypoint = shlex.split(value)
        except ValueError as exc:
            raise CommandError(f"--entrypoint: has a quote that is never closed ({exc})") from exc
    else:
        if name in ("network", "net") and value == "host":
            start.host_network = True
        if name in ("gpus", "device"):
            start.chips += [chip for chip in chips_of(name, value) if chip not in start.chips]
        (start.container if name in BY_ROLE else start.lost).append(f"--{name}")


def chips_of(name: str, value: str) -> list[int]:
    """Return the indices of the chips that an option names; none for all, or for a number of them."""
    if name == "gpus":
        found = re.search(r"\bdevice=([0-9]{1,4}(?:,[0-9]{1,4})*)(?![\w,])", value.replace('"', ""))
        return [int(text) for text in found.group(1).split(",")] if found else []
    chip = _CHIP.search(value)
    return [int(chip.group(1) or chip.group(2))] if chip else []
