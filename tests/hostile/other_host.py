# SPDX-License-Identifier: GPL-3.0-or-later
"""Another host for a test: a network namespace with two addresses, connected with this one."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import subprocess
import threading

# Other runs of the tests on this machine have their own. A process id has 22 bits.
_NET = ipaddress.ip_network((int(ipaddress.ip_address("198.18.0.0")) + os.getpid() % (1 << 14) * 8, 29))
HERE, FIRST, SECOND = (str(_NET[number]) for number in (1, 2, 3))
_NAME = _LINK = f"other-{os.getpid()}"
_CLONE_NEWNET = 0x40000000


def _ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


def there(call):
    """Call something in the other host, and return its result; its sockets remain there."""
    results = []

    def enter():
        with open(f"/run/netns/{_NAME}", "rb") as name:
            if ctypes.CDLL(None, use_errno=True).setns(name.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        results.append(call())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return results[0]


@contextlib.contextmanager
def other_host():
    """Make the other host, which reaches this one at HERE."""
    _ip("netns", "add", _NAME)
    try:
        _ip("link", "add", _LINK, "type", "veth", "peer", "name", "eth0", "netns", _NAME)
        _ip("address", "add", f"{HERE}/29", "dev", _LINK)
        _ip("link", "set", _LINK, "up")
        for address in (FIRST, SECOND):
            _ip("-n", _NAME, "address", "add", f"{address}/29", "dev", "eth0")
        _ip("-n", _NAME, "link", "set", "eth0", "up")
        yield
        # At once; with the namespace alone it goes some time later.
        _ip("link", "delete", _LINK)
    finally:
        _ip("netns", "delete", _NAME)
