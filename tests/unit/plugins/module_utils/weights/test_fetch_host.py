# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import watch as _watch
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.weights import fetch_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import (
    ProgressTracker,
    WeightsStore,
    choose_source,
    fetch_weights,
    inspect_weights,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import (
    ManifestFile,
    WeightsError,
    parse_manifest,
)
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
    assert result.source == f"{server.url}/good" and "no data arrived for 2 s" in result.skipped[0]
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
    assert _needed_bytes(state, (), 4096) == 8192
    assert _needed_bytes(state, ("model.safetensors",), 4096) == 0


def site_of(tmp_path, sources, **settings):
    return WeightsStore(
        str(tmp_path / "models"),
        parse_sources(sources),
        (Access(),) * len(sources),
        str(tmp_path),
        lambda _unit: False,
        Settings(backoff=0.01, **settings),
    )


def fetch(site, manifest=MANIFEST):
    chosen = choose_source(inspect_weights(site.root, manifest), site)
    return fetch_weights(chosen, site, lambda _line: None, ProgressTracker())


def dribbles(handler, start, _end):
    """Give a byte now and then, for ever."""
    if handler.command == "HEAD":
        return False
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
    handler.send_header("Content-Length", str(len(CONTENT) - start))
    handler.end_headers()
    for first in range(start, len(CONTENT)):
        handler.wfile.write(CONTENT[first : first + 1])
        if handler.server.released.wait(0.05):
            break
    return True


def little_and_then_nothing(handler, start, end):
    """Give a hundred bytes to each request, and then nothing more."""
    return stalls_after(start + 100)(handler, start, end)


@pytest.mark.parametrize("fault", [dribbles, little_and_then_nothing])
def test_server_below_the_lowest_rate_is_left_for_the_next_one(server, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(_watch, "WINDOW_SECONDS", 0.5)
    server.faults[f"/stalling/{MANIFEST.path}/model.safetensors"] = fault
    started = time.monotonic()
    site = site_of(tmp_path, [f"{server.url}/stalling", f"{server.url}/good"], stall_timeout=0.3, lowest_rate=2000)
    result = fetch(site)
    assert result.source == f"{server.url}/good"
    assert "bytes arrived in" in result.skipped[0] and "expected 2000 bytes/s or more" in result.skipped[0]
    assert time.monotonic() - started < 120
    assert (tmp_path / "models" / MANIFEST.path / "model.safetensors").read_bytes() == CONTENT


TWO = parse_manifest(
    {
        "repository": "example/tiny",
        "revision": "1d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de",
        "files": {
            name: {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
            for name in ("a.safetensors", "b.safetensors")
        },
    }
)


@pytest.mark.parametrize("content", [b"x" * len(CONTENT), b"short", None, "with the old times"])
def test_file_that_another_process_changes_during_the_download_is_not_published(server, tmp_path, content):
    for file in TWO.files:
        server.files[f"/good/{TWO.path}/{file.name}"] = CONTENT
    site = site_of(tmp_path, [f"{server.url}/good"], connections=1)
    state = inspect_weights(site.root, TWO)
    first = Path(state.partial) / "a.safetensors"

    def meddle(handler, _start, _end):
        if handler.command != "HEAD":
            deadline = time.monotonic() + 60
            while not first.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            # Later than the clock of file systems can tell, and than a busy machine reads the time of the rename.
            time.sleep(0.5)
            if content is None:
                first.unlink()
                first.symlink_to("/etc/hostname")
            elif isinstance(content, str):
                before = first.stat()
                first.write_bytes(b"x" * len(CONTENT))
                os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
            else:
                first.write_bytes(content)
        return False

    server.faults[f"/good/{TWO.path}/b.safetensors"] = meddle
    with pytest.raises(WeightsError, match=r"a.safetensors: another process has changed it since it was verified"):
        fetch(site, TWO)
    assert not os.path.lexists(state.directory)
    server.faults.clear()
    fetch(site, TWO)
    assert [(Path(state.directory) / file.name).read_bytes() for file in TWO.files] == [CONTENT] * 2
    assert not inspect_weights(site.root, TWO).changed


def test_file_that_was_only_touched_is_read_again_and_published(server, tmp_path):
    for file in TWO.files:
        server.files[f"/good/{TWO.path}/{file.name}"] = CONTENT
    site = site_of(tmp_path, [f"{server.url}/good"], connections=1)
    first = Path(inspect_weights(site.root, TWO).partial) / "a.safetensors"

    def touch(handler, _start, _end):
        if handler.command != "HEAD":
            deadline = time.monotonic() + 60
            while not first.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            os.utime(first, (1, 1))
        return False

    server.faults[f"/good/{TWO.path}/b.safetensors"] = touch
    fetch(site, TWO)
    assert not inspect_weights(site.root, TWO).changed


def test_work_grows_with_the_number_of_missing_files(tmp_path, monkeypatch):
    entry, compared = {"size": 1, "sha256": "0" * 64}, []
    files = {f"{number}.safetensors": entry for number in range(400)}
    manifest = parse_manifest({"repository": "a/b", "revision": "0" * 40, "files": files})
    monkeypatch.setattr(ManifestFile, "__eq__", lambda one, other: compared.append(1) or one is other)
    assert len(inspect_weights(str(tmp_path), manifest).missing) == 400
    assert len(compared) < 4000


def inspected(count, root):
    """Return the seconds of CPU time that it takes to see that so many files are missing."""
    files = {f"part-{number:05}.bin": {"size": 1, "sha256": "0" * 64} for number in range(count)}
    manifest = parse_manifest({"repository": "example/many", "revision": "a" * 40, "files": files})
    times = []
    for _run in range(3):
        begin = time.process_time()
        assert len(inspect_weights(str(root), manifest).missing) == count
        times.append(time.process_time() - begin)
    return min(times)


def test_the_time_for_missing_files_grows_with_their_number_and_not_with_its_square(tmp_path):
    # Four times the files took sixteen times as long.
    assert inspected(8000, tmp_path) < 8 * inspected(2000, tmp_path)


def a_site(server, tmp_path, **options):
    sources = parse_sources([f"{server.url}/good"])
    return WeightsStore(
        str(tmp_path / "models"), sources, (Access(),), str(tmp_path), lambda _unit: False, Settings(), **options
    )


def fetch_from(site):
    chosen = choose_source(inspect_weights(site.root, MANIFEST), site)
    return fetch_weights(chosen, site, lambda _line: None, ProgressTracker())


def test_a_complete_download_needs_no_source_again(server, tmp_path, monkeypatch):
    """Left by a run that was killed between the two renames of a repair, for example."""
    site = a_site(server, tmp_path)

    def killed(_state):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fetch_host, "publish_model", killed)
        fetch_from(site)
    server.files.clear()
    server.log.clear()
    result = fetch_from(site)
    partial = str(tmp_path / f"models/example/tiny/.{MANIFEST.revision}.partial")
    assert (result.source, result.transferred, server.log) == (partial, 0, [])
    assert (tmp_path / "models" / MANIFEST.path / "model.safetensors").read_bytes() == CONTENT


def test_a_complete_download_with_other_bytes_is_fetched(server, tmp_path):
    site = a_site(server, tmp_path)
    place = tmp_path / f"models/example/tiny/.{MANIFEST.revision}.partial"
    place.mkdir(parents=True, mode=0o755)
    (place / "model.safetensors").write_bytes(b"x" * len(CONTENT))
    result = fetch_from(site)
    assert (result.source, result.transferred) == (f"{server.url}/good", len(CONTENT))


def test_a_disk_without_room_for_the_stamp_is_named(server, tmp_path, monkeypatch):
    def full(*_words):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetch_host, "write_stamp", full)
    expected = (
        r"/\.0d7a\w+\.partial: cannot be published: No space left on device; free some space there, then run again$"
    )
    with pytest.raises(WeightsError, match=expected):
        fetch_from(a_site(server, tmp_path))
