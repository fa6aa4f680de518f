# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import (
    ProgressTracker,
    WeightsStore,
    choose_source,
    fetch_weights,
    inspect_weights,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import Access, parse_sources
from ansible_collections.baremetal.inference.plugins.module_utils.weights.space_host import _needed_bytes

from tests.fakes.file_server import FileServer, serving

CONTENT = b"w" * 5000
MANIFEST = parse_manifest(
    {
        "repository": "example/tiny",
        "revision": "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de",
        "files": {"model.safetensors": {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}},
    }
)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        for source in ("stalling", "good"):
            running.files[f"/{source}/{MANIFEST.path}/model.safetensors"] = CONTENT
        yield running


def stalls_after(bytes_):
    """Return a fault that gives so many bytes of the file, to whoever asks, and then nothing more."""

    def fault(handler, start, _end):
        if handler.command == "HEAD":
            return False
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        handler.send_header("Content-Length", str(len(CONTENT) - start))
        handler.end_headers()
        handler.wfile.write(CONTENT[start:bytes_])
        handler.wfile.flush()
        handler.server.released.wait(30)
        return True

    return fault


@pytest.mark.parametrize(("came", "ranges"), [(0, [""]), (1500, ["", "bytes=1500-4999"])])
def test_server_that_stalls_is_left_for_the_next_one(server, tmp_path, came, ranges):
    server.faults[f"/stalling/{MANIFEST.path}/model.safetensors"] = stalls_after(came)
    sources = parse_sources([f"{server.url}/stalling", f"{server.url}/good"])
    settings = Settings(stall_timeout=2, attempts=9, backoff=0.01)
    site = WeightsStore(
        str(tmp_path / "models"), sources, (Access(), Access()), str(tmp_path), lambda _unit: False, settings
    )
    result = fetch_weights(
        choose_source(inspect_weights(site.root, MANIFEST), site), site, lambda _line: None, ProgressTracker()
    )
    assert result.source == f"{server.url}/good" and "no byte came for 2 s" in result.skipped[0]
    asked = [(path.split("/")[1], first) for method, path, first in server.log if method == "GET"]
    # What came of the first attempt was progress; the second one brought nothing.
    assert asked == [("stalling", first) for first in ranges] + [("good", ranges[-1])]
    assert (tmp_path / "models" / MANIFEST.path / "model.safetensors").read_bytes() == CONTENT


def test_source_that_was_chosen_is_the_one_that_is_fetched_from(server, tmp_path):
    """Two sources may be called the same: one bucket at two endpoints."""
    server.files.pop(f"/stalling/{MANIFEST.path}/model.safetensors")
    same = parse_sources([f"{server.url}/good", f"{server.url}/good"])
    site = WeightsStore(
        str(tmp_path / "models"), same, (Access(), Access()), str(tmp_path), lambda _unit: False, Settings()
    )
    chosen = choose_source(inspect_weights(site.root, MANIFEST), site)
    assert chosen.number == 0
    begun = []
    track = ProgressTracker()
    track.begin = lambda state, source, wanted: begun.append(source)
    result = fetch_weights(replace(chosen, number=1), site, lambda _line: None, track)
    assert begun == [f"{server.url}/good"] and result.number == 1


def test_room_is_looked_at_while_another_run_renames(tmp_path):
    state = inspect_weights(str(tmp_path), MANIFEST)
    partial = Path(state.partial)
    partial.mkdir(parents=True)
    (partial / "model.safetensors.partial").symlink_to("nowhere")
    assert _needed_bytes(state, 4096) == 8192
