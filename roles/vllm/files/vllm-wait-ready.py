# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return when the instance of /etc/vllm/NAME.yaml answers /health, or fail when its process has ended.

Started by vllm@NAME.service after vLLM, so that the unit is active only when it serves; systemd's TimeoutStartSec
is the deadline.
"""

from __future__ import annotations

import http.client
import os
import re
import ssl
import sys
import time
from pathlib import Path


def address(config: str) -> tuple[str, int, bool]:
    """Return where the instance listens, and whether with TLS; where that is everywhere, the loopback address."""
    found = dict(re.findall(r"^(host|port): *['\"]?([^'\"\n]+?)['\"]? *$", config, re.MULTILINE))
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(found["host"], found["host"])  # noqa: S104
    return host, int(found["port"]), re.search(r"^ssl-certfile:", config, re.MULTILINE) is not None


def healthy(host: str, port: int, tls: bool) -> bool:
    """Return whether /health says 200."""
    connection = http.client.HTTPConnection(host, port, timeout=5)
    if tls:
        # It is asked on its own host, by an address that is in no certificate.
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, timeout=5, context=context)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def main() -> None:
    name, main_pid = sys.argv[1], os.environ["MAINPID"]
    where = address(Path(f"/etc/vllm/{name}.yaml").read_text(encoding="utf-8"))
    while not healthy(*where):
        if not Path(f"/proc/{main_pid}").exists():
            sys.exit("vLLM has ended before it answered")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
