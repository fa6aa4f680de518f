# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests around wheels share: tiny wheels, an index of them over HTTP, and modules run as Ansible runs them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
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
    """Run a module of the collection in a process of its own; return what it prints, with its exit status as ``rc``."""
    result = subprocess.run(
        [sys.executable, "-m", f"ansible_collections.baremetal.inference.plugins.modules.{module}"],
        check=False,
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        env={**os.environ, "PYTHONPATH": str(ROOT / ".collections")},
        capture_output=True,
        text=True,
    )
    assert result.stdout, result.stderr
    return {**json.loads(result.stdout), "rc": result.returncode}


@contextlib.contextmanager
def served(directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve a directory; yield its address and the list of paths that have been asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_args: Any) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
