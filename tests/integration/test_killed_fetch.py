# SPDX-License-Identifier: GPL-3.0-or-later
"""A fetch that is killed at any moment, again and again, ends with the right bytes and never shows others."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.fakes.file_server import FileServer, serving

TOP = Path(__file__).resolve().parents[2]
TIMES = 50
CHILD = """
import sys
sys.path[:0] = [sys.argv[1]]
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import (
    DownloadRequest, Settings, fetch_files
)
files = [DownloadRequest(*line.split()[:2], int(line.split()[2]), line.split()[3]) for line in sys.stdin]
print("started", flush=True)
fetch_files(files, Settings(connections=4, part=65536, limit=2_000_000))
"""


def test_fetch_that_is_killed_fifty_times_ends_with_the_right_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    order = random.Random(7)
    sizes = {"a.bin": 6_000_000, "b.bin": 1_500_000, "c.bin": 70_000, "d.bin": 0}
    with serving(FileServer()) as server:
        server.files = {f"/{name}": os.urandom(size) for name, size in sizes.items()}
        lines = {
            path: f"{server.url}{path} {tmp_path}{path} {len(content)} {hashlib.sha256(content).hexdigest()}\n"
            for path, content in server.files.items()
        }

        def missing():
            return "".join(line for path, line in lines.items() if not Path(f"{tmp_path}{path}").exists())

        command = [sys.executable, "-c", CHILD, str(TOP / ".collections")]
        killed, progress = 0, [0]
        for _time in range(TIMES):
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            child.stdin.write(missing())
            child.stdin.close()
            assert child.stdout.readline() == "started\n"
            time.sleep(order.random() * 0.12)
            child.kill()
            killed += child.wait() != 0
            for path, content in server.files.items():
                published = Path(f"{tmp_path}{path}")
                assert not published.exists() or published.read_bytes() == content
            progress.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        assert killed >= TIMES // 2
        # What has come stays: it does not begin anew.
        assert progress == sorted(progress)
        subprocess.run(command, input=missing(), check=True, text=True, capture_output=True)
        assert {f"/{file.name}": file.read_bytes() for file in tmp_path.iterdir()} == server.files
