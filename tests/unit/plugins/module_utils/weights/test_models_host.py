# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import stat
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import lock_host as _weights_lock
from ansible_collections.baremetal.inference.plugins.module_utils.weights.progress import (
    format_progress,
    parse_progress,
)

from tests.fakes.file_server import FileServer, serving
from tests.fakes.wheelhouse import run_module

REVISION = "0d7a1e6f4f5f0b1f6a3d0f6c5f0c8a1be2a1c0de"
MODEL = f"example/tiny/{REVISION}"
FILES = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "sub/extra.bin": b"x" * 100}


def manifest(files=None, **changes):
    entries = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in (files or FILES).items()
    }
    return {"repository": "example/tiny", "revision": REVISION, "files": entries, **changes}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        running.files = {f"/weights/{MODEL}/{name}": content for name, content in FILES.items()}
        yield running


@pytest.fixture
def root(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def weights(server, root, tmp_path):
    """Run the module as the role does."""

    def run(**arguments):
        defaults = {
            "models": [manifest()],
            "sources": [f"{server.url}/weights"],
            "root": str(root),
            "state_dir": str(tmp_path / "state"),
        }
        return run_module("weights", **{**defaults, **arguments})

    return run


@pytest.fixture
def unit(tmp_path, monkeypatch):
    """An instance called chat whose symlink leads to the model; returns a function that says in which state it is."""
    (tmp_path / "bin").mkdir()
    systemctl = tmp_path / "bin" / "systemctl"

    def state(word):
        # Other verbs are noted, with the file that an instance would read then.
        systemctl.write_text(
            f'#!/bin/sh\n[ "$*" = "is-active vllm@chat.service" ] && exec echo {word}\n'
            f'echo "$* $(cat {tmp_path}/models/{MODEL}/config.json)" >> {tmp_path}/verbs\n'
        )
        systemctl.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    instance = tmp_path / "state" / "chat"
    instance.mkdir(parents=True)
    (instance / "model").symlink_to(tmp_path / "models" / MODEL)
    return state


def tree(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def content(root):
    return {name: data for name, data in tree(root / MODEL).items() if name != ".verified.json"}


def test_model_arrives_whole_and_is_not_touched_again(weights, root, server):
    first = weights()
    assert first["changed"]
    assert content(root) == FILES
    (done,) = first["models"]
    assert done["path"] == str(root / MODEL)
    assert done["files_fetched"] == sorted(FILES)
    assert done["bytes"] == 5102
    assert done["source"] == f"{server.url}/weights"
    assert sorted(os.listdir(root / "example" / "tiny")) == [".lock", REVISION]
    server.log.clear()
    second = weights()
    assert not second["changed"]
    assert second["diff"] == []
    assert server.log == []


def test_all_users_may_read_whatever_the_umask(weights, root):
    before = os.umask(0o077)
    try:
        weights()
    finally:
        os.umask(before)
    for path in (root / MODEL).rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644)
    assert stat.S_IMODE((root / MODEL).stat().st_mode) == 0o755
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_check_mode_says_what_would_be_done_and_writes_nothing(weights, root):
    result = weights(_ansible_check_mode=True)
    assert result["changed"]
    assert result["models"][0]["files_fetched"] == sorted(FILES)
    assert result["diff"][0]["before"] == ""
    assert "  model.safetensors\n" in result["diff"][0]["after"]
    assert not root.exists()
    weights()
    assert not weights(_ansible_check_mode=True)["changed"]


def test_check_mode_without_sources_tells_of_changes_all_the_same(weights, root):
    unreachable = {"sources": ["http://127.0.0.1:9/weights"], "_ansible_check_mode": True}
    assert weights(**unreachable)["failed"]
    assert weights(**unreachable, check_sources=False)["changed"]
    assert not root.exists()


def test_local_path_is_a_source(weights, root, tmp_path):
    for name, data in FILES.items():
        path = tmp_path / "disk" / MODEL / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert weights(sources=[str(tmp_path / "disk")])["changed"]
    assert content(root) == FILES


def test_source_without_a_file_is_passed_over_with_the_reason(weights, server, root):
    server.files.update({path.replace("/weights/", "/poor/"): data for path, data in server.files.items()})
    del server.files[f"/poor/{MODEL}/sub/extra.bin"]
    result = weights(sources=[f"{server.url}/poor", f"{server.url}/weights"])
    reason = f"{server.url}/poor/{MODEL}/sub/extra.bin: HTTP 404 Not Found"
    assert result["models"][0]["skipped_sources"] == [reason]
    assert f"source skipped for example/tiny: {reason}" in json.dumps(result["warnings"])
    assert result["models"][0]["source"] == f"{server.url}/weights"
    assert content(root) == FILES


def test_source_that_stalls_is_left_for_the_next_one(weights, server, root):
    server.files.update({path.replace("/weights/", "/slow/"): data for path, data in server.files.items()})
    server.faults[f"/slow/{MODEL}/model.safetensors"] = "stall"
    server.cut_after = 0
    result = weights(sources=[f"{server.url}/slow", f"{server.url}/weights"], stall_timeout=1)
    (reason,) = result["models"][0]["skipped_sources"]
    # Over the other connection the small files may have come meanwhile.
    said = f"{server.url}/slow/{MODEL}/model.safetensors: no data arrived for 1 s (attempt "
    assert reason.startswith((said + "1 ", said + "2 ")), reason
    assert content(root) == FILES


def test_source_with_wrong_bytes_is_passed_over_and_its_good_files_kept(weights, server, root):
    server.files.update({path.replace("/weights/", "/bad/"): data for path, data in server.files.items()})
    server.files[f"/bad/{MODEL}/model.safetensors"] = b"v" * 5000
    # One after the other, so that the good file has come before the wrong one ends it.
    result = weights(sources=[f"{server.url}/bad", f"{server.url}/weights"], connections=1)
    assert "model.safetensors: found sha256" in result["models"][0]["skipped_sources"][0]
    assert content(root) == FILES
    gets = [path for method, path, _range in server.log if method == "GET"]
    assert f"/weights/{MODEL}/config.json" not in gets


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("model.safetensors", b"w" * 4999, "found 4999 bytes, expected 5000"),
        ("config.json", None, "HTTP 404 Not Found"),
    ],
)
def test_short_or_missing_file_is_found_before_anything_is_written(
    weights, server, root, name, data, reason, check_mode
):
    path = f"/weights/{MODEL}/{name}"
    server.files = (
        {**server.files, path: data} if data else {key: value for key, value in server.files.items() if key != path}
    )
    result = weights(_ansible_check_mode=check_mode)
    assert result["failed"]
    assert result["msg"] == (
        f"example/tiny revision {REVISION}: no source has its 3 missing files: {server.url}{path}: {reason}"
    )
    assert not root.exists()


def test_wrong_bytes_fail_and_publish_nothing(weights, server, root):
    server.files[f"/weights/{MODEL}/config.json"] = b"[]"
    result = weights()
    found, wanted = hashlib.sha256(b"[]").hexdigest(), hashlib.sha256(b"{}").hexdigest()
    assert f"config.json: found sha256 {found}, expected {wanted}" in result["msg"]
    assert not (root / MODEL).exists()


def test_interrupted_fetch_goes_on_where_it_was(weights, server, root):
    server.files[f"/weights/{MODEL}/sub/extra.bin"] = b"y" * 100
    # One after the other: with several at once the wrong one may fail before the others have come.
    assert weights(connections=1)["failed"]
    server.files[f"/weights/{MODEL}/sub/extra.bin"] = FILES["sub/extra.bin"]
    assert weights()["models"][0]["bytes"] == 100
    assert content(root) == FILES


def test_unreachable_mirror_and_missing_disk_are_both_named(weights, root):
    result = weights(sources=["http://127.0.0.1:9/weights", "/media/disk"])
    assert f"http://127.0.0.1:9/weights/{MODEL}/config.json: Connection refused; " in result["msg"]
    assert f"/media/disk/{MODEL}/config.json: No such file or directory" in result["msg"]
    assert not root.exists()


def test_no_sources_is_an_error_only_when_something_is_missing(weights):
    assert "weights_sources is empty" in weights(sources=[])["msg"]
    weights()
    assert not weights(sources=[])["changed"]


@pytest.mark.parametrize("source", ["weights", "ftp://mirror/weights"])
def test_source_that_is_none_is_refused(weights, source):
    message = weights(sources=[source])["msg"]
    assert message.startswith("weights_sources: ")
    assert source in message


def test_no_space_is_found_before_anything_is_written(weights, server, root):
    size = 1 << 60
    huge = manifest()
    huge["files"]["model.safetensors"]["size"] = size
    result = weights(models=[huge])
    assert "bytes (1073741824.00 GiB) are needed for example/tiny" in result["msg"]
    assert "are free; free some space, or set weights_root to a larger file system" in result["msg"]
    assert server.log == []
    assert not root.exists()


def test_space_is_summed_over_models(weights):
    half = os.statvfs("/tmp")
    size = half.f_bavail * half.f_frsize * 3 // 5
    models = [manifest(repository=f"example/{name}") for name in ("a", "b")]
    for model in models:
        model["files"]["model.safetensors"]["size"] = size
    assert "are needed for example/a, example/b" in weights(models=models)["msg"]


@pytest.mark.parametrize("name", [REVISION, f".{REVISION}.partial"])
def test_planted_symlink_is_refused_before_the_first_byte(weights, server, root, tmp_path, name):
    (root / "example" / "tiny").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (root / "example" / "tiny" / name).symlink_to(tmp_path / "elsewhere")
    assert weights()["msg"] == (
        f"{root}/example/tiny/{name}: found a symbolic link, expected a plain directory; remove the link"
    )
    assert server.log == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_damaged_file_is_fetched_again_alone(weights, server, root):
    weights()
    kept = (root / MODEL / "config.json").stat().st_ino
    (root / MODEL / "model.safetensors").write_bytes(b"v" * 5000)
    preview = weights(_ansible_check_mode=True)
    assert preview["models"][0]["files_fetched"] == ["model.safetensors"]
    assert "  config.json\n" in preview["diff"][0]["before"]
    assert "model.safetensors" not in preview["diff"][0]["before"]
    result = weights()
    assert result["models"][0]["bytes"] == 5000
    assert content(root) == FILES
    assert (root / MODEL / "config.json").stat().st_ino == kept
    assert sorted(os.listdir(root / "example" / "tiny")) == [".lock", REVISION]
    assert not weights()["changed"]


def test_damage_that_stat_cannot_see_is_found_by_full_verification(weights, root):
    weights()
    path = root / MODEL / "model.safetensors"
    before = path.stat()
    path.write_bytes(b"v" * 5000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not weights()["changed"]
    assert weights(verify="full")["models"][0]["files_fetched"] == ["model.safetensors"]
    assert content(root) == FILES


def test_touched_file_gets_a_new_stamp_and_no_fetch(weights, server, root):
    weights()
    os.utime(root / MODEL / "config.json")
    server.log.clear()
    result = weights()
    assert result["changed"]
    assert result["models"][0]["files_fetched"] == []
    assert server.log == []
    assert not weights()["changed"]


def test_directory_that_was_copied_there_is_adopted(weights, server, root):
    for name, data in FILES.items():
        (root / MODEL / name).parent.mkdir(parents=True, exist_ok=True)
        (root / MODEL / name).write_bytes(data)
    assert weights()["models"][0]["bytes"] == 0
    assert server.log == []
    stamp = json.loads((root / MODEL / ".verified.json").read_text())
    assert sorted(stamp["files"]) == sorted(FILES)


@pytest.mark.parametrize("state", ["active", "activating"])
def test_directory_of_a_running_instance_is_left_alone(weights, root, unit, state):
    unit(state)
    weights()
    (root / MODEL / "config.json").write_bytes(b"[]")
    result = weights()
    assert result["msg"] == (
        f"{root / MODEL}: config.json must be fetched again, but vllm@chat.service runs from this directory; "
        "run again with -e weights_repair=true, which fetches the files, then stops the instance and starts it again"
    )
    assert content(root) == {**FILES, "config.json": b"[]"}


def test_check_mode_reports_a_running_instance_with_everything_else(weights, root, unit):
    unit("active")
    weights()
    (root / MODEL / "config.json").write_bytes(b"[]")
    result = weights(serving="report", _ansible_check_mode=True)
    assert result["changed"] and result["models"][0]["files_fetched"] == ["config.json"]
    assert "config.json must be fetched again, but vllm@chat.service runs from" in str(result["warnings"])
    # Only check mode leaves it at that.
    assert "must be fetched again" in weights(serving="report")["msg"]


def test_a_running_instance_is_stopped_for_the_repair_alone(weights, root, unit, tmp_path):
    unit("active")
    weights()
    assert not (tmp_path / "verbs").exists()
    (root / MODEL / "config.json").write_bytes(b"[]")
    result = weights(serving="repair")
    assert result["changed"], result
    assert content(root) == FILES
    assert (tmp_path / "verbs").read_text().splitlines() == [
        "stop vllm@chat.service []", "--no-block start vllm@chat.service {}"
    ]  # fmt: skip


def test_an_instance_is_not_stopped_before_the_files_are_there(weights, root, unit, tmp_path):
    unit("active")
    weights()
    (root / MODEL / "config.json").write_bytes(b"[]")
    assert "no source has" in weights(serving="repair", sources=[])["msg"]
    assert not (tmp_path / "verbs").exists() and content(root)["config.json"] == b"[]"


def test_directory_of_a_stopped_instance_is_repaired(weights, root, unit):
    unit("inactive")
    weights()
    (root / MODEL / "config.json").write_bytes(b"[]")
    assert weights()["changed"]
    assert content(root) == FILES


def test_rest_of_another_manifest_is_swept_away(weights, root):
    rest = root / "example" / "tiny" / f".{REVISION}.partial"
    (rest / "sub").mkdir(parents=True)
    (rest / "sub" / "old.bin").write_bytes(b"old")
    (rest / "config.json").write_bytes(b"[]")
    weights()
    assert content(root) == FILES


def test_second_run_waits_for_the_first_and_finds_its_work_done(weights, server, root, monkeypatch):
    monkeypatch.setattr(_weights_lock, "PAUSE_SECONDS", 0.01)
    repository = root / "example" / "tiny"
    repository.mkdir(parents=True)
    descriptor = os.open(repository / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    holder = f"process {os.getpid()} of {platform.node()} (uid {os.geteuid()})"
    assert f"{holder} is still downloading into it after 0 s of waiting" in weights(lock_timeout=0)["msg"]

    def first():
        for name, data in FILES.items():
            (root / MODEL / name).parent.mkdir(parents=True, exist_ok=True)
            (root / MODEL / name).write_bytes(data)
        os.close(descriptor)

    server.log.clear()
    timer = threading.Timer(0.3, first)
    timer.start()
    result = weights()
    timer.join()
    assert result["models"][0]["bytes"] == 0
    assert [method for method, _path, _range in server.log if method == "GET"] == []
    assert not weights()["changed"]


@pytest.mark.parametrize(
    ("option", "value"), [("connections", 0), ("bandwidth", -1), ("keep", -2), ("progress", -1), ("lock_timeout", -1)]
)
def test_number_that_is_none_is_refused(weights, option, value):
    least = {"connections": 1, "keep": -1}.get(option, 0)
    assert weights(**{option: value})["msg"] == f"weights_{option}: found {value}, expected {least} or more"


def test_token_goes_to_its_source_and_stays_nowhere(weights, server, root, tmp_path):
    handed = tmp_path / "access.json"
    handed.write_text(json.dumps({"0": {"token": "canary-token"}}))
    result = weights(access_file=str(handed))
    assert not handed.exists()
    assert content(root) == FILES
    assert {headers.get("Authorization") for headers in server.seen} == {"Bearer canary-token"}
    assert "canary" not in json.dumps(result)


def test_token_is_gone_from_the_host_also_where_the_run_fails_at_once(weights, tmp_path):
    handed = tmp_path / "access.json"
    handed.write_text("{}")
    assert weights(models=[manifest(revision="main")], access_file=str(handed))["failed"]
    assert not handed.exists()
    handed.write_text("{}")
    assert weights(connections=0, access_file=str(handed))["failed"]
    assert not handed.exists()


def test_progress_is_told_while_sources_are_asked(weights, server, root, tmp_path):
    path, seen = tmp_path / "progress.json", []

    def look(handler, _start, _end):
        if handler.command == "HEAD" and not seen:
            # The report is written by its own thread.
            while not path.exists():
                time.sleep(0.01)
            seen.append(path.read_text())
        return False

    server.faults[f"/weights/{MODEL}/config.json"] = look
    assert weights(progress_file=str(path))["changed"]
    found = parse_progress(seen[0])
    assert format_progress(found).endswith(": checking the files on the host and the sources")
    assert not path.exists()


def test_files_that_were_pushed_are_looked_at_and_published(weights, server, root):
    growing = root / "example" / "tiny" / f".{REVISION}.partial"
    for name, data in FILES.items():
        (growing / name).parent.mkdir(parents=True, exist_ok=True)
        (growing / name).write_bytes(data)
    result = weights(sources=[], pushed="controller:/srv/weights")
    assert (result["models"][0]["source"], result["models"][0]["bytes"]) == ("controller:/srv/weights", 5102)
    assert content(root) == FILES
    assert server.log == []


def test_pushed_file_that_is_wrong_is_fetched_from_the_next_source(weights, root):
    growing = root / "example" / "tiny" / f".{REVISION}.partial"
    for name, data in FILES.items():
        (growing / name).parent.mkdir(parents=True, exist_ok=True)
        (growing / name).write_bytes(data if name == "config.json" else b"v" * len(data))
    result = weights(pushed="controller:/srv/weights")["models"][0]
    assert result["bytes"] == 5100
    assert result["skipped_sources"] == [
        "controller:/srv/weights: model.safetensors, sub/extra.bin: the sha256 is not that of the manifest"
    ]
    assert content(root) == FILES


def test_pushed_file_that_is_wrong_is_named_where_there_is_no_other_source(weights, root):
    growing = root / "example" / "tiny" / f".{REVISION}.partial"
    for name, data in FILES.items():
        (growing / name).parent.mkdir(parents=True, exist_ok=True)
        (growing / name).write_bytes(b"v" * len(data))
        (growing / name).chmod(0o600)
    message = weights(sources=[], pushed="controller:/srv/weights")["msg"]
    assert "no source has its 3 missing files: controller:/srv/weights: config.json, model" in message, message


def test_pushed_files_are_readable_for_all_whatever_the_umask_was(weights, root):
    growing = root / "example" / "tiny" / f".{REVISION}.partial"
    for name, data in FILES.items():
        (growing / name).parent.mkdir(parents=True, exist_ok=True)
        (growing / name).write_bytes(data)
        (growing / name).chmod(0o640)
    weights(sources=[], pushed="controller:/srv/weights")
    assert {stat.S_IMODE((root / MODEL / name).stat().st_mode) for name in FILES} == {0o644}


def test_models_without_a_source_are_all_named_with_what_they_lack(weights, root):
    models = [manifest(), manifest(repository="example/absent")]
    result = weights(models=models, sources=["/media/disk"])
    assert [model["path"] for model in result["unsourced"]] == [MODEL, f"example/absent/{REVISION}"]
    assert result["unsourced"][0]["files"] == {name: len(data) for name, data in FILES.items()}
    assert result["unsourced"][0]["partial"] == str(root / "example" / "tiny" / f".{REVISION}.partial")


def test_no_model_is_fetched_when_another_one_has_no_source(weights, root):
    result = weights(models=[manifest(), manifest(repository="example/absent")])
    assert result["msg"].startswith(f"example/absent revision {REVISION}: no source has its 3 missing files")
    assert not root.exists()


def test_wrong_manifest_is_named(weights):
    assert weights(models=[manifest(revision="main")])["msg"].startswith(
        "manifest of example/tiny: revision: found 'main'"
    )
