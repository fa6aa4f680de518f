# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests around wheels share: tiny wheels, an index of them over HTTP, and modules run as Ansible runs them."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator

ROOT = Path(__file__).resolve().parents[2]


def make_wheel(
    directory: Path,
    name: str,
    version: str,
    *,
    tag: str = "py3-none-any",
    requires_python: str = "",
    scripts: Any = None,
) -> str:
    """Write a wheel with one module (and programs, name -> bytes) and return its sha256."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-{tag}.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires_python:
        metadata += f"Requires-Python: {requires_python}\n"
    files = {
        f"{name}.py": f"version = {version!r}\n".encode(),
        f"{name}-{version}.dist-info/METADATA": metadata.encode(),
        f"{name}-{version}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
        **{f"{name}-{version}.data/scripts/{script}": data for script, data in (scripts or {}).items()},
    }
    record = "".join(f"{member},,\n" for member in files) + f"{name}-{version}.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in files.items():
            archive.writestr(member, data)
        archive.writestr(f"{name}-{version}.dist-info/RECORD", record)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_module(module: str, /, **arguments: Any) -> dict[str, Any]:
    """Run a module of the collection in its own process; return what it prints, with its exit status as ``rc``."""
    mask = os.umask(0)
    os.umask(mask)
    process = {"environment": dict(os.environ), "cwd": os.getcwd(), "umask": mask}
    request = {"module": module, "arguments": arguments, **process}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(_module_server())
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
    assert answer["stdout"], answer["stderr"]
    return {**json.loads(answer["stdout"]), "rc": answer["rc"]}


_SERVERS: list[tuple[subprocess.Popen[bytes], str]] = []


def _module_server() -> str:
    """Start the server of modules, if none runs; return its address. It ends with this process.

    Tests of what ends all children of its process, such as the runs of evaluations, end the server too.
    """
    if _SERVERS and _SERVERS[-1][0].poll() is None:
        return _SERVERS[-1][1]
    address = os.path.join(tempfile.mkdtemp(prefix="modules-"), "socket")
    words = [sys.executable, str(ROOT / "tests/fakes/module_server.py"), address]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / '.collections'}:{ROOT}"}
    server = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    atexit.register(_stop, server, address)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    _SERVERS.append((server, address))
    return address


def _stop(server: subprocess.Popen[bytes], address: str) -> None:
    server.kill()
    server.wait()
    shutil.rmtree(os.path.dirname(address))


@contextlib.contextmanager
def served(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a directory; yield its address and the list of paths that have been asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_args: Any) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
