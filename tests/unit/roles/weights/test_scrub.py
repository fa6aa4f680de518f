# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scrub of the role weights, as a host runs it, and what the next run of the role makes of its report."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import scrub_host as _weights_scrub
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import inspect_weights
from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import (
    stat_files,
    write_stamp,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.lock_host import lock_model_directory
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import parse_manifest

PROGRAM = Path(__file__).resolve().parents[4] / "roles/weights/files/weights-scrub.py"
A, B = "a" * 40, "b" * 40
# Neither a multiple of the disk's blocks nor of what is read at once.
FILES = {"config.json": b"{}", "model.safetensors": bytes(range(251)) * 9000, "sub/empty": b""}


@pytest.fixture
def scrub():
    """The program as a module, loaded anew."""
    spec = importlib.util.spec_from_file_location("weights_scrub", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def manifest(revision, files=None):
    entries = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in (files or FILES).items()
    }
    return parse_manifest({"repository": "example/tiny", "revision": revision, "files": entries})


@pytest.fixture
def root(tmp_path):
    """A store with two revisions, as the role publishes them."""
    for revision in (A, B):
        publish(tmp_path / "models", revision)
    return tmp_path / "models"


def publish(root, revision, files=None):
    files = files or FILES
    directory = root / "example/tiny" / revision
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    pinned = manifest(revision, files)
    write_stamp(str(directory), pinned, stat_files(str(directory), pinned))


@pytest.fixture
def run(scrub, root, tmp_path):
    """Run it; returns the exit status and the report."""

    def run(*arguments):
        status = scrub.main(["--root", str(root), "--report", str(tmp_path / "state/report.json"), *arguments])
        return status, json.loads((tmp_path / "state/report.json").read_text())

    return run


def flip(path, offset=1_000_000):
    """Change one byte and nothing that stat tells."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def stamp(root, revision):
    return json.loads((root / "example/tiny" / revision / ".verified.json").read_text())["files"]


def paths(root, revision):
    return {str(root / "example/tiny" / revision / name) for name in FILES}


def test_everything_right_is_read_and_said_to_be(run, root, capsys):
    status, report = run()
    assert status == 0
    assert set(report["checked"]) == paths(root, A) | paths(root, B)
    assert (report["damaged"], report["skipped"], report["files"]) == ({}, {}, 6)
    assert report["bytes"] == 2 * sum(map(len, FILES.values()))
    assert report["started"] <= report["finished"]
    out, err = capsys.readouterr()
    assert "read 6 files" in out
    assert err == ""


def test_flipped_byte_is_found_withdrawn_and_fetched_again_by_the_role(run, root, capsys):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)
    assert inspect_weights(str(root), manifest(A)).missing == ()
    stamped = (root / "example/tiny" / A / ".verified.json").stat().st_mtime_ns
    status, report = run()
    assert status == 1
    assert list(report["damaged"]) == [str(path)]
    assert str(path) not in report["checked"]
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert err[0].startswith(f"<3>{path}: damaged: found ")
    assert sorted(stamp(root, A)) == ["config.json", "sub/empty"]
    assert (root / "example/tiny" / A / ".verified.json").stat().st_mtime_ns == stamped
    assert sorted(stamp(root, B)) == sorted(FILES)
    assert [file.name for file in inspect_weights(str(root), manifest(A)).missing] == ["model.safetensors"]


def test_damage_is_told_until_the_file_is_right_again(run, root, tmp_path):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)
    report = str(tmp_path / "state/report.json")
    run()
    (sentence,) = _weights_scrub.describe_damage(str(root), report)
    assert sentence.startswith(f"{path}: damaged when the scrub read it on 20")
    assert run()[0] == 1
    assert _weights_scrub.describe_damage(str(root), report) == [sentence]
    publish(root, A)
    assert _weights_scrub.describe_damage(str(root), report) == []
    status, found = run()
    assert (status, found["damaged"]) == (0, {})


def test_a_scrub_is_installed_as_long_as_its_timer_is_there(tmp_path):
    assert not _weights_scrub.has_scrub(str(tmp_path / "timer"))
    (tmp_path / "timer").symlink_to("/nowhere")
    assert _weights_scrub.has_scrub(str(tmp_path / "timer"))


def test_damage_is_forgotten_with_its_model(run, root, tmp_path):
    flip(root / "example/tiny" / A / "model.safetensors")
    run()
    (root / "example/tiny" / A).rename(tmp_path / "elsewhere")
    assert _weights_scrub.describe_damage(str(root), str(tmp_path / "state/report.json")) == []
    status, report = run()
    assert (status, report["damaged"]) == (0, {})


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "damaged": {"x": 1}}', '{"version": 1, "damaged": []}']
)
def test_report_that_is_none_says_nothing_and_is_written_anew(run, root, tmp_path, text):
    report = tmp_path / "state/report.json"
    report.parent.mkdir()
    report.write_text(text)
    assert _weights_scrub.describe_damage(str(root), str(report)) == []
    assert run()[0] == 0


def test_missing_file_is_damage(run, root):
    path = root / "example/tiny" / A / "model.safetensors"
    path.unlink()
    status, report = run()
    assert status == 1
    assert report["damaged"][str(path)]["found"] == "no file"
    assert "model.safetensors" not in stamp(root, A)


def test_a_disk_that_cannot_read_is_damage_and_another_error_is_not(scrub, run, root, monkeypatch):
    def broken(path, _pace):
        number = errno.EIO if path.endswith("model.safetensors") else errno.EACCES
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(scrub, "sha256_of", broken)
    status, report = run()
    assert status == 1
    assert {os.path.basename(path) for path in report["damaged"]} == {"model.safetensors"}
    assert set(report["skipped"].values()) == {"Permission denied"}
    assert "config.json" in stamp(root, A)


def test_what_was_not_read_for_longest_comes_first(scrub, run, root, monkeypatch):
    run()
    _status, report = run()
    oldest = str(root / "example/tiny" / B / "config.json")
    known = {**report, "checked": {**report["checked"], oldest: 5}}
    (root.parent / "state/report.json").write_text(json.dumps(known))
    order = []
    monkeypatch.setattr(scrub, "examine", lambda pinned, *_rest: order.append(pinned.path))
    run()
    assert order[0] == oldest
    assert order[1:] == sorted(order[1:])


def test_a_model_that_is_being_fetched_is_passed_over(run, root):
    flip(root / "example/tiny" / A / "model.safetensors")
    with lock_model_directory(str(root / "example/tiny")):
        status, report = run()
    assert status == 0
    assert list(report["skipped"].values()) == ["its model is being fetched"]
    assert sorted(stamp(root, A)) == sorted(FILES)
    assert run()[0] == 1


def test_a_file_that_was_replaced_while_it_was_read_is_passed_over(scrub, run, root, monkeypatch):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)
    read = scrub.sha256_of

    def replaced(name, pace):
        found = read(name, pace)
        if name == str(path):
            path.rename(path.with_name("old"))
            path.write_bytes(FILES["model.safetensors"])
        return found

    monkeypatch.setattr(scrub, "sha256_of", replaced)
    status, report = run()
    assert (status, report["damaged"]) == (0, {})
    assert report["skipped"] == {str(path): "was replaced while it was read"}


def test_partial_and_foreign_directories_are_left_alone(run, root):
    for name in (f".{A}.partial", "main", f"{A}x"):
        publish(root / "x", A)
        (root / "x/example/tiny" / A).rename(root / "example/tiny" / name)
    (root / "example/tiny" / ("c" * 40)).symlink_to(root / "example/tiny" / A)
    assert run()[1]["files"] == 6


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 2, "files": {"config.json": {"sha256": "x"}}}', '{"version": 1, "files": [1]}']
)
def test_a_stamp_that_is_none_vouches_for_nothing(run, root, text):
    (root / "example/tiny" / A / ".verified.json").write_text(text)
    status, report = run()
    assert (status, report["files"]) == (0, 3)


def test_a_stamp_that_cannot_be_changed_is_said_and_told_by_the_role(scrub, run, root, tmp_path, monkeypatch, capsys):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)
    write = scrub.write_json

    def refused(name, *rest):
        if name.endswith(".verified.json"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        write(name, *rest)

    monkeypatch.setattr(scrub, "write_json", refused)
    status, report = run()
    assert status == 1
    assert report["damaged"][str(path)]["withdrawn"] is False
    assert "its stamp cannot be changed" in capsys.readouterr().err
    assert len(_weights_scrub.describe_damage(str(root), str(tmp_path / "state/report.json"))) == 1


def test_a_file_system_without_direct_reads_gives_the_same(scrub, run, root, monkeypatch):
    real, refused = os.open, []

    def through_the_cache(path, flags, *rest):
        if flags & os.O_DIRECT:
            refused.append(path)
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, *rest)

    monkeypatch.setattr(scrub.os, "open", through_the_cache)
    status, report = run()
    assert (status, report["damaged"], len(refused)) == (0, {}, 6)


def test_it_keeps_to_its_bandwidth(run, root):
    # 4.5 MB at 40 Mbit/s are 0.9 s.
    begun = time.monotonic()
    assert run("--bandwidth", "40")[0] == 0
    assert time.monotonic() - begun > 0.85


def test_stopped_it_goes_on_with_the_rest(root, tmp_path):
    big = {f"{number}.bin": bytes([number]) * 3_000_000 for number in range(8)}
    publish(root, "c" * 40, big)
    report = tmp_path / "report.json"
    command = [sys.executable, str(PROGRAM), "--root", str(root), "--report", str(report)]
    with subprocess.Popen([*command, "--bandwidth", "40"], stdout=subprocess.PIPE, text=True) as process:
        until(lambda: report.exists() and len(json.loads(report.read_text())["checked"]) > 6)
        process.send_signal(signal.SIGTERM)
        out, _err = process.communicate(timeout=30)
    first = json.loads(report.read_text())
    assert process.returncode == 0
    assert out.startswith("stopped after ")
    assert first["finished"] is None
    assert 6 < len(first["checked"]) < 14
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "read 14 files" in done.stdout
    assert len(json.loads(report.read_text())["checked"]) == 14


def test_killed_it_leaves_a_whole_report(root, tmp_path):
    report = tmp_path / "report.json"
    publish(root, "c" * 40, {f"{number}.bin": bytes([number]) * 3_000_000 for number in range(8)})
    command = [sys.executable, str(PROGRAM), "--root", str(root), "--report", str(report), "--bandwidth", "40"]
    with subprocess.Popen(command) as process:
        until(report.exists)
        process.kill()
    assert json.loads(report.read_text())["version"] == 1


def until(true):
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_program_knows_what_the_collection_knows(scrub):
    """It is alone on a host, so it has names of its own for what both write and read."""
    assert scrub.STAMP == _weights_scrub.STAMP_NAME
    assert scrub.REPORT_VERSION == _weights_scrub.VERSION
    assert scrub.parse(["--root", "/x"]).report == _weights_scrub.REPORT
