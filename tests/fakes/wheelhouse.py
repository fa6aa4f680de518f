# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests around wheels share: tiny wheels, an index of them over HTTP, and modules run as Ansible runs them."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import runpy
import sys
import tempfile
import threading
import traceback
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Iterator, NoReturn
from unittest import mock

from ansible.module_utils import _internal
from ansible.module_utils.testing import patch_module_args

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
    """Run a module of the collection in a process of its own; return what it prints, with its exit status as ``rc``.

    The process is a fork of this one: an interpreter of its own would spend 0.2 s on importing Ansible.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            _become_module(module, arguments, out.fileno(), err.fileno())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        printed = out.read()
        assert printed, err.read()
    return {**json.loads(printed), "rc": status}


def _become_module(module: str, arguments: dict[str, Any], out: int, err: int) -> NoReturn:
    """Run a module as the main program of this process, which inherits no other file than its output."""
    status: Any = 1
    try:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        # Whatever had one of these files open must not close the module's file of the same number.
        gc.freeze()
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115 - for the whole process
        # On a managed host warnings are part of the result; this process has imported the controller's code.
        with mock.patch.object(_internal, "is_controller", False), patch_module_args(arguments):
            runpy.run_module(f"ansible_collections.baremetal.inference.plugins.modules.{module}", run_name="__main__")
    except SystemExit as exc:
        status = exc.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Also where flushing fails, nothing of the tests may go on in this process.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status if isinstance(status, int) else 1)


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
