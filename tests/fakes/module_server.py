# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules of the collection for tests, each in its own process, as on a host.

An interpreter takes 0.3 s for a module, nearly all of it to import Ansible: the server has imported what every module
imports, and forks for each request. It is its own program, because pytest's process has imported the controller's
part of Ansible, has threads, and is five times as large.
"""

from __future__ import annotations

import json
import os
import runpy
import socketserver
import sys
import tempfile
import traceback
from typing import Any, NoReturn

from tests.fakes.module_arguments import patch_module_args

MODULES = "ansible_collections.baremetal.inference.plugins.modules"
PARENT = os.getppid()


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """Forks for each request, and ends with the process that started it."""

    request_queue_size = 128
    max_children = 1000

    def service_actions(self) -> None:
        super().service_actions()
        if os.getppid() != PARENT:
            sys.exit()


class Handler(socketserver.StreamRequestHandler):
    """Answers ``{module, arguments, environment, cwd, umask}`` with ``{stdout, stderr, rc}``, a line each."""

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if not child:
                become_module(request, out.fileno(), err.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            answer = {"stdout": out.read(), "stderr": err.read(), "rc": status}
        self.wfile.write(json.dumps(answer).encode())


def become_module(request: dict[str, Any], out: int, err: int) -> NoReturn:
    """Run a module as the main program of this process, which has no other open file than its output."""
    status: Any = 1
    try:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        with patch_module_args(request["arguments"]):
            runpy.run_module(f"{MODULES}.{request['module']}", run_name="__main__")
    except SystemExit as exc:
        status = exc.code or 0
    except BaseException:
        traceback.print_exc()
    # Nothing of the server may go on in this process.
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    with Server(sys.argv[1], Handler) as server:
        # Whoever started it may ask now.
        print("ready", flush=True)
        server.serve_forever()
