# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of an unprivileged user that listens where an instance would, and shows what it is sent."""

from __future__ import annotations

import contextlib
import subprocess
import sys

# The user nobody.
UID = 65534
_SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        print(self.command, self.path, flush=True)
        body = b'{"data": [{"id": "m"}]}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    log_message = print
if ":" in sys.argv[1]:
    http.server.ThreadingHTTPServer.address_family = 10
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), Handler)
os.setresuid(*[int(sys.argv[2])] * 3) if sys.argv[3:] else None
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def listening(address="127.0.0.1", uid=UID, bound_as_root=False):
    """Yield the port of a server that belongs to a user, and its process, whose output has a line for each request."""
    words = [sys.executable, "-I", "-c", _SERVER, address, str(uid)]
    options = {"user": uid, "group": uid, "extra_groups": []}
    if bound_as_root:
        words, options = [*words, "root"], {}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options) as server:
        try:
            yield int(server.stdout.readline()), server
        finally:
            server.kill()


def requests(server):
    """Return the requests that reached a server, which ends with that."""
    server.kill()
    return server.stdout.read().splitlines()
