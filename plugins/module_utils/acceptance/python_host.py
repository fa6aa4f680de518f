# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a Python with torch on a host: in a virtual environment of vLLM, or in an image of vLLM."""

from __future__ import annotations

import glob
import os
import shlex
from dataclasses import dataclass, field
from typing import Mapping

from ..common.files_host import text_of
from ..containers.engine import CDI_DIRS, ContainerError, choose_engine, gpus_by
from ..containers.engine_host import HOOKS, Find, Run, cdi_kinds, read_docker, read_podman
from ..containers.run_command import device_words
from ..instance.marks import STATE_DIR
from ..vllm.files import QUADLET_DIR

CONTAINER = "baremetal-accept"
# Images for Ascend set up their libraries in the shell.
ASCEND_SETUP = "for f in /usr/local/Ascend/*/set_env.sh; do . $f; done"


class NoPythonError(Exception):
    """No Python with torch was found; the message is the whole sentence."""


@dataclass(frozen=True)
class Interpreter:
    """The command that runs a program from its standard input; the program's own arguments follow it.

    ``engine`` and ``container`` are set where it runs in a container.
    """

    argv: tuple[str, ...]
    where: str
    engine: str = ""
    container: str = ""


@dataclass(frozen=True)
class Search:
    """Where to look: the user's own choice, the directory of environments, the devices for a container.

    ``visible`` are variables that restrict a program to chips.
    """

    python: str = ""
    image: str = ""
    venv_root: str = "/opt/vllm"
    stack: str = "cpu"
    devices: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    root: str = "/"
    visible: Mapping[str, str] = field(default_factory=dict)


def find_python(search: Search, run: Run, find: Find) -> Interpreter:
    """Return the first of: the user's Python, the user's image, an environment, the image of an instance.

    Raises NoPythonError.
    """
    if search.python:
        if not os.access(search.python, os.X_OK):
            raise NoPythonError(f"accept_python: {search.python} is not a program on this host")
        return Interpreter((search.python, "-"), search.python)
    if not search.image:
        for python in environments(search.root, search.venv_root):
            return Interpreter((python, "-"), python)
    return _in_container(search, run, find)


def environments(root: str, venv_root: str) -> list[str]:
    """Return the Pythons of environments with torch: those of instances first, then those in venv_root."""
    programs = [_launched(text_of(path)) for path in sorted(glob.glob(os.path.join(root, STATE_DIR[1:], "*", "serve")))]
    found = [os.path.join(os.path.dirname(program), "python") for program in programs if program]
    found += sorted(glob.glob(os.path.join(root, venv_root.lstrip("/"), "*", "bin", "python")))
    return [python for python in dict.fromkeys(found) if _has_torch(python)]


def _launched(serve: str) -> str:
    """Return the program that a start script of a virtual environment executes, empty for one of a container."""
    lines = [line for line in serve.splitlines() if line.startswith("exec ")]
    words = shlex.split(lines[-1].rstrip("\\")) if lines else []
    program = words[1] if len(words) > 1 else ""
    return program if program.endswith("/bin/vllm") or "/bin/python" in program else ""


def _has_torch(python: str) -> bool:
    top = os.path.dirname(os.path.dirname(python))
    return os.access(python, os.X_OK) and bool(glob.glob(os.path.join(top, "lib*", "python3*", "*-packages", "torch")))


def _in_container(search: Search, run: Run, find: Find) -> Interpreter:
    there = [answer[0] for answer in (read_docker(run, find), read_podman(run, find)) if answer]
    if not there:
        raise NoPythonError(_nothing_found(search))
    try:
        engine = choose_engine("", there)
        image = search.image or _image_of_instances(search.root, engine.command, run)
        if not image:
            raise NoPythonError(_nothing_found(search))
        hook = any(map(find, HOOKS))
        by_flag = gpus_by(engine, search.devices, cdi_kinds(CDI_DIRS), hook) == "flag" if search.devices else False
    except ContainerError as exc:
        raise NoPythonError(f"the burn-in cannot run in a container: {exc}") from exc
    name = f"{CONTAINER}-{os.getpid()}"
    argv = container_words(engine.command, name, image, search, by_flag)
    return Interpreter(tuple(argv), f"image {image}", engine.command, name)


def container_words(command: str, name: str, image: str, search: Search, by_flag: bool) -> list[str]:
    """Return the command that runs Python in a new container of an image, with all chips and without a network."""
    devices = [word for words in device_words(search.devices, {"gpus": "flag" if by_flag else ""}) for word in words]
    mounts = [f"type=bind,source={path},target={path},readonly" for path in search.mounts]
    # A container of NVIDIA's has its own chips only, and counts them from 0.
    shown = [] if search.stack == "cuda" else [f"{name}={value}" for name, value in search.visible.items()]
    start = ["--entrypoint", "python3", image, "-"]
    if search.stack == "cann":
        start = ["--entrypoint", "bash", image, "-c", f'{ASCEND_SETUP}; exec python3 - "$0"']
    return [
        command, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--network", "none",
        "--ipc", "private", "--shm-size", "1g", "--user", "0:0", "--security-opt", "label=disable",
        *devices, *(word for mount in mounts for word in ("--mount", mount)),
        "--env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", *(word for each in shown for word in ("--env", each)), *start,
    ]  # fmt: skip


def _image_of_instances(root: str, command: str, run: Run) -> str:
    """Return the image of an instance: of a running container, or of a quadlet."""
    rc, out, _err = run([command, "ps", "--filter", "name=^vllm-", "--format", "{{.Image}}"])
    running = out.split() if rc == 0 else []
    quadlets = sorted(glob.glob(os.path.join(root, QUADLET_DIR[1:], "vllm@*.container")))
    lines = [line for path in quadlets for line in text_of(path).splitlines() if line.startswith("Image=")]
    return next(iter([*running, *(line[len("Image=") :] for line in lines)]), "")


def _nothing_found(search: Search) -> str:
    return (
        f"no Python with torch on this host: there is no environment in {search.venv_root} and no instance in a "
        "container; name a Python with accept_python or an image of vLLM with accept_image, or run site.yml first"
    )


def stop_container(interpreter: Interpreter, run: Run) -> None:
    """Remove the container of a burn-in that was killed, if it ran in one."""
    if interpreter.container:
        run([interpreter.engine, "rm", "--force", interpreter.container])
