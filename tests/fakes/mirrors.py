# SPDX-License-Identifier: GPL-3.0-or-later
"""A mirror on the loopback address: a real nginx with the role's site, for a directory of a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Iterator

from tests.fakes import gateways

ROLE = Path(__file__).resolve().parents[2] / "roles/mirror"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


@contextlib.contextmanager
def started(*command: Any, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program and end it afterwards."""
    process = subprocess.Popen([str(word) for word in command], **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """Make a directory that every user can enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as found:
        Path(found).chmod(0o755)
        yield Path(found)


def nginx(
    directory: Path, connections: int = 768, **names: Any
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Start nginx with the role's site and the numbers of Debian's nginx.conf; its own files lie in ``directory``."""
    names = {"mirror_registry": False, "__mirror_address": "127.0.0.1", "mirror_server_name": "_", **names}
    site = gateways.render("mirror.conf.j2", names, ROLE).replace("# Ansible managed", "")
    user = "user www-data; " if os.geteuid() == 0 else ""
    own = "".join(
        f"{name}_temp_path {directory}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = directory / "nginx.conf"
    path.write_text(
        f"{user}daemon off; error_log stderr crit; pid {directory}/pid; worker_processes 2; "
        f"events {{ worker_connections {connections}; }} http {{ {own}{site} }}"
    )
    return started(NGINX, "-e", "stderr", "-c", path)


def answer(port: int, method: str, path: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer; 0 where there is none."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as exc:
        return exc.code, b""
    except OSError:
        return 0, b""
