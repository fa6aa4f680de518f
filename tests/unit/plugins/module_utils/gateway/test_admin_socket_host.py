# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's admin socket, in a directory that HAProxy's user can write."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import LockedError, locked
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import maps_host, tool_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import without_reload


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_haproxy_s_user_cannot_hold_the_lock(tmp_path):
    """It owns the directory of the sockets, and holds what it can in it: Debian's package makes it so."""
    place = tmp_path / "haproxy"
    place.mkdir()
    os.chown(place, 65534, 65534)
    for directory in (tmp_path, *tmp_path.parents):
        directory.chmod(directory.stat().st_mode | 0o055)
    code = (
        "import fcntl,os,sys,time; fcntl.flock(os.open(sys.argv[1], 0), 2)\n"
        "fcntl.flock(os.open(sys.argv[1] + '/admin.sock.lock', 66, 0o666), 2)\n"
        "print('held', flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-I", "-c", code, str(place)]
    with subprocess.Popen(words, user=65534, group=65534, stdout=subprocess.PIPE, text=True) as stranger:
        try:
            assert stranger.stdout.readline() == "held\n"
            with without_reload(f"{place}/admin.sock"), pytest.raises(LockedError), locked(f"{place}.lock", wait=0):
                pass
        finally:
            stranger.kill()


def test_without_its_directory_there_is_nothing_to_lock(tmp_path):
    with without_reload(str(tmp_path / "missing" / "admin.sock")):
        assert not list(tmp_path.iterdir())


def test_who_holds_the_lock_too_long_is_one_sentence(tmp_path, monkeypatch):
    def held(_admin):
        raise LockedError("/run/haproxy.lock", "process 7 of gw (uid 0)")

    for module in (maps_host, tool_host):
        monkeypatch.setattr(module, "without_reload", held)
    message = r"/run/haproxy\.lock: is locked by process 7 of gw \(uid 0\); wait until that ends"
    with pytest.raises(maps_host.MapsError, match=message):
        maps_host.update_maps({}, str(tmp_path), "s", "haproxy", False)
    with pytest.raises(SystemExit, match=message):
        tool_host.replace("s", "1")
