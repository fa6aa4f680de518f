# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold the weights of an instance on its chips, and let its engine start when they are there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import Any

from ..common.files_host import listed, text_of
from ..common.lines_host import write_line
from .marks import CONFIG_DIR
from .preload import command_of, config_of, directory_in, drafts_in, ranks_in
from .systemd import parse_properties

_PAUSE_SECONDS = 2.0
_STOP_SECONDS = 20.0


def serve(name: str) -> int:
    """Run ``vllm preload`` until the instance's configuration names other weights; return its exit status."""
    text = text_of(f"{CONFIG_DIR}/{name}.yaml")
    directory = directory_in(text)
    if not directory:
        return 0
    # What a killed program has left would count as ready.
    _remove(directory)
    config = os.path.join(os.environ["RUNTIME_DIRECTORY"], f"{name}.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(config_of(text))
    try:
        return _hold(name, text, command_of(config, directory))
    finally:
        # The next one has another name, so that nobody would remove this one.
        _remove(directory)


def _hold(name: str, text: str, command: list[str]) -> int:
    directory = directory_in(text)
    with subprocess.Popen(command) as process:
        signal.signal(signal.SIGTERM, lambda *_signal: process.terminate())
        ready = False
        while process.poll() is None:
            if not ready and _is_ready(directory, text):
                ready = True
                notify(f"READY=1\nSTATUS={directory}")
            if directory_in(text_of(f"{CONFIG_DIR}/{name}.yaml")) != directory:
                _end(process)
                return 0
            time.sleep(_PAUSE_SECONDS)
    return process.returncode


def settle(name: str) -> str:
    """Have the weights of an instance on its chips before its engine starts; return a line for the journal."""
    unit, directory = f"vllm-preload@{name}.service", directory_in(text_of(f"{CONFIG_DIR}/{name}.yaml"))
    if not directory:
        return ""
    show = ["systemctl", "show", "--property=ActiveState,StatusText", "--", unit]
    found = parse_properties(subprocess.run(show, capture_output=True, text=True, check=False).stdout)
    if found.get("ActiveState") == "active" and found.get("StatusText") == directory:
        return "The weights are on the chips"
    began = time.monotonic()
    if subprocess.run(["systemctl", "restart", "--", unit], check=False).returncode:
        return f"{unit} has failed, so vLLM reads the weights itself; see journalctl -u {unit}"
    return f"The weights are on the chips after {time.monotonic() - began:.1f} s"


def notify(text: str) -> None:
    """Tell systemd about this unit."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            speaker.sendto(text.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


def _is_ready(directory: str, text: str) -> bool:
    """Return whether each process has its socket. A draft is smaller, so that its sockets are there first."""
    sockets = [name for name in listed(directory) if name.endswith(".sock")]
    drafts, ranks = sum(name.endswith("_draft.sock") for name in sockets), ranks_in(text)
    return len(sockets) - drafts >= ranks and (drafts >= ranks or not drafts_in(text))


def _remove(directory: str) -> None:
    """Remove the sockets of a directory, vLLM's locks of them, and the directory."""
    for name in listed(directory):
        if name.endswith((".sock", ".sock.lock")):
            os.unlink(os.path.join(directory, name))
    try:
        os.rmdir(directory)
    except OSError:
        # It is not there yet, or has what nobody here has written.
        return


def _end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def run(words: list[str]) -> int:
    """Run ``serve NAME`` or ``settle NAME``; return the exit status."""
    if words[0] == "serve":
        return serve(words[1])
    write_line(settle(words[1]))
    return 0
