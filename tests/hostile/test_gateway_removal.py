# SPDX-License-Identifier: GPL-3.0-or-later
"""A client whose keys have expired is removed, and the run breaks off: whatever is written, its keys open nothing."""

from __future__ import annotations

import grp
import os
import signal
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import maps_of
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.maps_host import update_maps

from tests.fakes.gateways import HAPROXY, KEY, client, gateway, until
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
GROUP = grp.getgrgid(os.getgid()).gr_name
OTHER = client("other", "other-" * 6)
OLD = client("old", rate=2, concurrent=1, ends=int(time.time()) - 86400)
AFTER = [OTHER]


def killed_after(writes, running):
    """Remove the client, and kill the run after so many files; return whether it was killed."""
    child = os.fork()
    if not child:
        replace, count = os.replace, iter(range(1, 100))

        def replace_and_die(*names):
            replace(*names)
            if next(count) == writes:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace_and_die
        update_maps(maps_of(AFTER), str(running.directory / "maps"), running.paths["socket"], GROUP, False)
        os._exit(0)
    return bool(os.waitpid(child, 0)[1])


def test_a_kill_after_any_file_revives_no_key(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port], [OTHER, OLD]) as running:
        until(lambda: running.state("gw--chat-1").startswith("UP"))
        maps = str(tmp_path / "maps")
        for writes in range(1, 20):
            update_maps(maps_of([OTHER, OLD]), maps, running.paths["socket"], GROUP, False)
            was_killed = killed_after(writes, running)
            running.reload()
            until(lambda: running.ask("POST", "/v1/chat/completions", "other-" * 6)[0] == 200)
            assert running.ask("POST", "/v1/chat/completions", KEY)[0] == 401, writes
            if not was_killed:
                break
        assert writes > 4
