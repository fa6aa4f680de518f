# SPDX-License-Identifier: GPL-3.0-or-later
"""A mirror on the loopback address: a real nginx with the role's site, for a directory of a test."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Iterator

from tests.fakes import gateways

ROLE = Path(__file__).resolve().parents[2] / "roles/mirror"
PROVISIONER = ROLE.parent / "provisioner"
NFT = shutil.which("nft") or shutil.which("nft", path="/usr/sbin")
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
    directory: Path, connections: int = 768, processes: int = 2, **names: Any
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """Start nginx with the role's site and the numbers of Debian's nginx.conf; its own files lie in ``directory``.

    With ``provisioner_http_port`` among the names it is the site of the role provisioner.
    """
    names = {"mirror_registry": False, "__mirror_address": "127.0.0.1", "mirror_server_name": "_", **names}
    role, name = (PROVISIONER, "nginx.conf.j2") if "provisioner_http_port" in names else (ROLE, "mirror.conf.j2")
    site = gateways.render(name, names, role).replace("# Ansible managed", "")
    user = "user www-data; " if os.geteuid() == 0 else ""
    own = "".join(
        f"{name}_temp_path {directory}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = directory / "nginx.conf"
    path.write_text(
        f"{user}daemon off; error_log stderr crit; pid {directory}/pid; worker_processes {processes}; "
        f"events {{ worker_connections {connections}; }} http {{ {own}{site} }}"
    )
    return started(NGINX, "-e", "stderr", "-c", path)


def bound(of: str, port: int) -> tuple[str, int]:
    """Return the rules of the kernel for nginx's port, and how many connections a process of nginx takes then."""
    names = {"mirror_openings_of": of, "mirror_openings_ports": [port]}
    unit = gateways.render("openings.service.j2", names, ROLE)
    tasks = (ROLE / "tasks/openings.yml").read_text(encoding="utf-8")
    rules = re.findall(r"(?m)^StandardInputText=(.*)$", unit)
    return "\n".join(rules), int(re.findall(r"replace: '\\g<1>([0-9]+);'", tasks)[0])


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
