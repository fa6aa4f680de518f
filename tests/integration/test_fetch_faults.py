# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers, disks and runs that misbehave: each ends with the right bytes or one clear error, and nothing half is seen.

Each test fetches a model of two files; tests/integration/test_killed_fetch.py kills the fetch.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import itertools
import os
import random
import subprocess
import sys
import threading
import time
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
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import Access, parse_sources

from tests.fakes.file_server import FileServer, serving

TOP = Path(__file__).resolve().parents[2]
PART = 16384
SIZES = {"model.safetensors": 40 * PART + 123, "config.json": 700}
CONTENT = {name: random.Random(size).randbytes(size) for name, size in SIZES.items()}
MANIFEST = parse_manifest(
    {
        "repository": "acme/small",
        "revision": "0123456789" * 4,
        "files": {
            name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in CONTENT.items()
        },
    }
)
LARGE = f"/{MANIFEST.path}/model.safetensors"
SETTINGS = Settings(stall_timeout=10.0, attempts=3, backoff=0.01, connections=4, part=PART)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(mirror()) as running:
        yield running


@pytest.fixture
def other(server):
    with serving(mirror()) as running:
        yield running


def mirror():
    found = FileServer()
    found.files = {f"/{MANIFEST.path}/{name}": content for name, content in CONTENT.items()}
    return found


def fetch(root, *servers, settings=SETTINGS):
    """Do what the module does for one model; return the outcome."""
    sources = parse_sources([one if isinstance(one, str) else one.url for one in servers])
    access = tuple(Access() for _source in sources)
    site = WeightsStore(str(root), sources, access, "/nonexistent", lambda _unit: False, settings)
    return fetch_weights(
        choose_source(inspect_weights(site.root, MANIFEST), site), site, lambda _text: None, ProgressTracker()
    )


def published(root):
    return {path.name: path.read_bytes() for path in (root / MANIFEST.path).glob("[!.]*")}


def refused(root, *servers, settings=SETTINGS):
    """Return why nothing was published."""
    with pytest.raises(WeightsError) as error:
        fetch(root, *servers, settings=settings)
    assert published(root) == {}
    return str(error.value)


def once_in(times, what):
    """Return a fault that does ``what`` to each so manieth answer with a body."""
    count = itertools.count(1)

    def fault(handler, start, end):
        return handler.command == "GET" and next(count) % times == 0 and what(handler, start, end)

    return fault


def send(handler, start, end, content, total=None, said=None):
    """Answer with a range; ``said`` is what Content-Range says instead of the truth."""
    handler.send_response(206)
    first, last = said or (start, end - 1)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{total or len(CONTENT['model.safetensors'])}")
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    with contextlib.suppress(OSError):
        handler.wfile.write(content)
    return True


def cut(handler, start, end):
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(CONTENT['model.safetensors'])}")
    handler.send_header("Content-Length", str(end - start))
    handler.end_headers()
    handler.wfile.write(CONTENT["model.safetensors"][start : (start + end + 1) // 2])
    handler.close_connection = True
    return True


def status(code, **headers):
    def answer(handler, _start, _end):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    return answer


def test_connection_cut_at_every_tenth_part(tmp_path, server):
    server.faults[LARGE] = once_in(10, cut)
    outcome = fetch(tmp_path, server)
    assert published(tmp_path) == CONTENT
    # What came before the cut was not asked for again.
    assert outcome.transferred == sum(SIZES.values())
    assert len([path for method, path, _range in server.log if method == "GET" and path == LARGE]) >= 44


def test_connection_cut_at_every_part(tmp_path, server):
    server.faults[LARGE] = once_in(1, cut)
    fetch(tmp_path, server)
    assert published(tmp_path) == CONTENT


def test_flipped_byte_is_never_published_and_the_next_source_helps(tmp_path, server, other):
    wrong = bytearray(CONTENT["model.safetensors"])
    wrong[5 * PART + 7] ^= 1
    server.files[LARGE] = bytes(wrong)
    assert "model.safetensors: found sha256" in refused(tmp_path, server)
    outcome = fetch(tmp_path, server, other)
    assert published(tmp_path) == CONTENT
    assert "the source has another file under this name" in outcome.skipped[0]


@pytest.mark.parametrize(
    ("change", "found"), [(-1, SIZES["model.safetensors"] - 1), (5, SIZES["model.safetensors"] + 5)]
)
def test_short_or_long_file_is_seen_before_a_byte_is_fetched(tmp_path, server, change, found):
    server.files[LARGE] = (CONTENT["model.safetensors"] + b"trail")[: SIZES["model.safetensors"] + change or None]
    assert f"model.safetensors: found {found} bytes, expected {SIZES['model.safetensors']}" in refused(tmp_path, server)
    assert {method for method, _path, _range in server.log} == {"HEAD"}


def test_file_that_ends_before_it_said_it_would(tmp_path, server, other):
    short = CONTENT["model.safetensors"][: 10 * PART]
    server.faults[LARGE] = lambda handler, start, end: (
        handler.command == "GET" and start >= len(short) and send(handler, start, end, b"")
    )
    assert "broke off at byte" in refused(tmp_path, server)
    fetch(tmp_path, server, other)
    assert published(tmp_path) == CONTENT


def test_file_without_length_that_goes_on(tmp_path, server):
    config = f"/{MANIFEST.path}/config.json"
    server.files[config] += b"more"
    server.faults[config] = "chunked"
    assert "config.json: it continues after 700 bytes, the expected size" in refused(tmp_path, server)


@pytest.mark.parametrize("said", [(0, PART - 1), (7, 7 + PART), (PART * 39, PART * 41)])
def test_wrong_content_range_is_refused(tmp_path, server, said):
    server.faults[LARGE] = once_in(
        7, lambda handler, start, end: send(handler, start, end, bytes(end - start), said=said)
    )
    assert "requested its bytes" in refused(tmp_path, server)


def test_content_range_that_cannot_be_read(tmp_path, server):
    server.faults[LARGE] = lambda handler, start, end: (
        handler.command == "GET" and send(handler, start, end, b"x", said=("some", "bytes"))
    )
    assert "without a valid Content-Range" in refused(tmp_path, server)


def test_content_range_of_another_size(tmp_path, server):
    server.faults[LARGE] = lambda handler, start, end: (
        handler.command == "GET" and send(handler, start, end, bytes(end - start), total=77_000_000)
    )
    assert f"found 77000000 bytes, expected {SIZES['model.safetensors']}" in refused(tmp_path, server)


def test_redirect_loop_ends(tmp_path, server):
    server.redirects = {LARGE: "/round?token=hush", "/round?token=hush": LARGE}
    message = refused(tmp_path, server)
    assert "more than 5 redirects" in message
    assert "hush" not in message
    assert len(server.log) < 10


def test_expired_token_is_one_clear_error(tmp_path, server):
    server.faults[LARGE] = 403
    assert "HTTP 403 Forbidden; is the token right, and not expired?" in refused(tmp_path, server)


def test_signed_address_that_expires_half_way_is_asked_for_again(tmp_path, server):
    signed = {f"/signed-{number}": 10 for number in range(20)}
    numbers = itertools.count()
    server.files.update(dict.fromkeys(signed, CONTENT["model.safetensors"]))

    def expire(handler, start, end):
        signed[handler.path] -= 1
        return signed[handler.path] < 0 and status(403)(handler, start, end)

    def redirect(handler, start, end):
        return handler.command == "GET" and status(302, Location=f"/signed-{next(numbers)}")(handler, start, end)

    server.faults = {**dict.fromkeys(signed, expire), LARGE: redirect}
    fetch(tmp_path, server)
    assert published(tmp_path) == CONTENT
    assert next(numbers) >= 4


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_server_that_wants_to_be_left_alone_is(tmp_path, server, form):
    asked = []

    def busy(handler, start, end):
        if handler.command != "GET" or start != 8 * PART or len(asked) > 1:
            return False
        asked.append(time.monotonic())
        if len(asked) > 1:
            return False
        until = "1" if form == "seconds" else email.utils.formatdate(time.time() + 2, usegmt=True)
        return status(429, Retry_After=until)(handler, start, end)

    server.faults[LARGE] = busy
    fetch(tmp_path, server)
    assert published(tmp_path) == CONTENT
    assert asked[1] - asked[0] >= 0.9


@pytest.mark.parametrize("until", ["86400", "Fri, 01 Jan 2999 00:00:00 GMT"])
def test_server_that_wants_to_be_left_alone_for_long_is_left_for_the_next(tmp_path, server, other, until):
    server.faults[LARGE] = once_in(5, status(429, Retry_After=until))
    assert "HTTP 429 Too Many Requests: the server asks to wait" in refused(tmp_path, server)
    fetch(tmp_path, server, other)
    assert published(tmp_path) == CONTENT


def test_retry_after_of_nonsense_is_no_wait(tmp_path, server):
    server.faults[LARGE] = once_in(4, status(503, Retry_After="soon"))
    fetch(tmp_path, server)
    assert published(tmp_path) == CONTENT


def test_part_that_is_refused_more_often_than_the_attempts_allow_while_others_arrive(tmp_path, server):
    """As by a server that accepts few connections. It serves one other part after each refusal of the second part."""
    turns = threading.Semaphore(0)
    refusals = itertools.count(1)

    def limited(handler, start, end):
        if handler.command != "GET" or start == 0:
            return False
        if start != PART:
            turns.acquire(timeout=10)
            return False
        last = next(refusals) > 2 * SETTINGS.attempts
        turns.release(1000 if last else 1)
        return not last and status(503)(handler, start, end)

    server.faults[LARGE] = limited
    # Longer than one part takes on a busy machine.
    fetch(tmp_path, server, settings=replace(SETTINGS, backoff=0.2))
    assert published(tmp_path) == CONTENT


def test_server_errors_end_in_the_next_source(tmp_path, server, other):
    server.faults[LARGE] = lambda handler, start, end: handler.command == "GET" and status(500)(handler, start, end)
    assert "HTTP 500 Internal Server Error (attempt 3 without progress" in refused(tmp_path, server)
    outcome = fetch(tmp_path, server, other)
    assert published(tmp_path) == CONTENT
    assert outcome.source == other.url


def test_server_that_stalls_for_ever_is_dropped_for_the_next(tmp_path, server, other):
    def stall(handler, start, end):
        if handler.command != "GET" or start < 20 * PART:
            return False
        handler.server.released.wait(30)
        return True

    server.faults[LARGE] = stall
    started = time.monotonic()
    outcome = fetch(tmp_path, server, other, settings=replace(SETTINGS, stall_timeout=1.0))
    assert published(tmp_path) == CONTENT
    assert "no answer within 1 s" in outcome.skipped[0]
    assert time.monotonic() - started < 28
    # What the first one gave was kept.
    assert not any(wanted == f"bytes=0-{PART - 1}" for _method, _path, wanted in other.log)


def test_file_that_changes_on_the_server_half_way(tmp_path, server, other):
    changes = itertools.count()

    def change(handler, start, end):
        if handler.command == "GET":
            new = next(changes) > 12
            handler.server.headers[LARGE] = {"ETag": f'"{new}"'}
            if new:
                handler.server.files[LARGE] = bytes(SIZES["model.safetensors"])
        return False

    server.faults[LARGE] = change
    assert "it was changed on the server while it was fetched" in refused(tmp_path, server)
    # Neither version's beginning does harm.
    fetch(tmp_path, other)
    assert published(tmp_path) == CONTENT


@contextlib.contextmanager
def mounted(path, options):
    """Mount a small file system; skip where that is not allowed."""
    path.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounts a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_disk_that_fills_up_half_way(tmp_path, server, other):
    with mounted(tmp_path / "small", "size=256k") as small:
        message = refused(small, server, other)
        assert "model.safetensors.partial: cannot be written: No space left on device" in message
        assert not any(method == "GET" for method, _path, _range in other.log), "another source cannot help"
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        outcome = fetch(small, server)
        assert published(small) == CONTENT
        assert outcome.transferred < sum(SIZES.values()), "what had come was kept"


def test_target_that_cannot_be_written(tmp_path, server):
    with mounted(tmp_path / "fixed", "size=4m,ro") as fixed:
        with pytest.raises((WeightsError, OSError), match="Read-only file system"):
            fetch(fixed, server)
        assert not any(method == "GET" for method, _path, _range in server.log)


def test_revision_that_is_a_mount_point_is_one_clear_error(tmp_path, server):
    place = tmp_path / MANIFEST.path
    place.mkdir(parents=True)
    with mounted(place, "size=4m"):
        with pytest.raises((WeightsError, OSError), match=str(MANIFEST.revision)):
            fetch(tmp_path, server)
        assert published(tmp_path) == {}


def test_clock_that_jumps(tmp_path, server, monkeypatch):
    """Waits and stalls are measured by a clock that does not jump, dates by the server's own."""
    server.faults[LARGE] = once_in(9, cut)
    real, jumps = time.time, itertools.cycle([0, 86400 * 365, -86400 * 365])
    monkeypatch.setattr(time, "time", lambda: real() + next(jumps))
    started = time.monotonic()
    fetch(tmp_path, server, settings=replace(SETTINGS, limit=2_000_000))
    assert published(tmp_path) == CONTENT
    assert time.monotonic() - started < 100


CHILD = """
import sys
sys.path[:0] = [sys.argv[1]]
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import (
    FetchError,
    Settings,
    DownloadRequest,
    fetch_files,
)
location, dest, size, sha256 = sys.argv[2:]
print("ready", flush=True)
sys.stdin.readline()
try:
    request = DownloadRequest(location, dest, int(size), sha256)
    fetch_files([request], Settings(connections=2, part=16384, limit=8_000_000))
except FetchError as exc:
    sys.exit(str(exc))
"""


def test_runs_at_once_end_with_the_right_file(tmp_path, server):
    content = CONTENT["model.safetensors"]
    for number in range(5):
        dest = tmp_path / f"{number}.bin"
        words = [server.url + LARGE, str(dest), str(len(content)), hashlib.sha256(content).hexdigest()]
        command = [sys.executable, "-c", CHILD, str(TOP / ".collections"), *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        runs = [subprocess.Popen(command, **pipes) for _run in range(3)]
        assert [run.stdout.readline() for run in runs] == ["ready\n"] * 3
        for run in runs:
            run.stdin.write("go\n")
            run.stdin.flush()
        ends = [(run.communicate()[1], run.returncode) for run in runs]
        assert dest.read_bytes() == content
        assert any(code == 0 for _said, code in ends)
        assert all(code == 0 or "another process" in said for said, code in ends)
    assert not list(tmp_path.glob("*.partial"))


def partial_of(root):
    parent, revision = os.path.split(root / MANIFEST.path)
    return Path(parent) / f".{revision}.partial"


@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe", "directory"])
def test_partial_file_that_somebody_has_planted_is_not_written_to(tmp_path, server, kind):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    planted = partial_of(tmp_path) / "model.safetensors.partial"
    planted.parent.mkdir(parents=True)
    if kind == "symlink":
        planted.symlink_to(victim)
    elif kind == "hard link":
        planted.hardlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.mkdir()
    message = refused(tmp_path, server)
    assert f"{planted}: it is not a regular file with one name" in message
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("planted", ["file", "partial directory"])
def test_link_that_somebody_has_planted_is_not_followed(tmp_path, server, planted):
    outside = tmp_path / "outside"
    outside.mkdir()
    partial = partial_of(tmp_path)
    partial.parent.mkdir(parents=True)
    if planted == "file":
        (outside / "copy").write_bytes(CONTENT["model.safetensors"])
        partial.mkdir()
        (partial / "model.safetensors").symlink_to(outside / "copy")
    else:
        partial.symlink_to(outside)
    with contextlib.suppress(WeightsError):
        fetch(tmp_path, server)
        assert published(tmp_path) == CONTENT
    assert [path.name for path in outside.iterdir()] == (["copy"] if planted == "file" else [])
    assert not any(path.is_symlink() for path in (tmp_path / MANIFEST.path).glob("*"))


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "a/../../evil"])
def test_manifest_that_leads_out_of_its_directory_is_refused(name):
    files = {name: {"size": 1, "sha256": "0" * 64}}
    with pytest.raises(WeightsError, match="expected a relative path without"):
        parse_manifest({"repository": "acme/small", "revision": MANIFEST.revision, "files": files})
