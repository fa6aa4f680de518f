# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import scrub_run_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import inspect_weights
from ansible_collections.baremetal.inference.plugins.module_utils.weights.lock_host import lock_model_directory
from ansible_collections.baremetal.inference.plugins.module_utils.weights.scrub_host import describe_damage

from tests.fakes.weights_store import FILES, A, B, flip, manifest, publish


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


def test_missing_file_is_damage(run, root):
    path = root / "example/tiny" / A / "model.safetensors"
    path.unlink()
    status, report = run()
    assert status == 1
    assert report["damaged"][str(path)]["found"] == "no file"
    assert "model.safetensors" not in stamp(root, A)


def test_a_disk_that_cannot_read_is_damage_and_another_error_is_not(run, root, monkeypatch):
    def broken(path, _size, _pace):
        number = errno.EIO if path.endswith("model.safetensors") else errno.EACCES
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(scrub_run_host, "direct_sha256", broken)
    status, report = run()
    assert status == 1
    assert {os.path.basename(path) for path in report["damaged"]} == {"model.safetensors"}
    assert set(report["skipped"].values()) == {"Permission denied"}
    assert "config.json" in stamp(root, A)


def test_what_was_not_read_for_longest_comes_first(run, root, monkeypatch):
    run()
    _status, report = run()
    oldest = str(root / "example/tiny" / B / "config.json")
    known = {**report, "checked": {**report["checked"], oldest: 5}}
    (root.parent / "state/report.json").write_text(json.dumps(known))
    order = []
    monkeypatch.setattr(scrub_run_host.Scrub, "examine", lambda _scrub, pinned: order.append(pinned.path))
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


def test_a_file_that_was_replaced_while_it_was_read_is_passed_over(run, root, monkeypatch):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)
    read = scrub_run_host.direct_sha256

    def replaced(name, size, pace):
        found = read(name, size, pace)
        if name == str(path):
            path.rename(path.with_name("old"))
            path.write_bytes(FILES["model.safetensors"])
        return found

    monkeypatch.setattr(scrub_run_host, "direct_sha256", replaced)
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


def open_to_others(path, way):
    """Let another user change something: by its mode, or as its owner (as root only)."""
    if way == "mode":
        path.chmod(path.stat().st_mode | 0o022)
    elif os.geteuid():
        pytest.skip("only root can give files away")
    else:
        os.chown(path, 65534, 65534)


@pytest.mark.parametrize("way", ["mode", "owner"])
@pytest.mark.parametrize("place", [f"{A}/.verified.json", A, ""])
def test_a_stamp_that_another_user_can_change_names_no_file_to_read(run, root, way, place, capsys):
    # It would have the scrub read any file of the host, or one without end before all others.
    mine = root / "alice/mine"
    publish(root / "x", A)
    mine.parent.mkdir()
    (root / "x/example/tiny").rename(mine)
    open_to_others(mine / place, way)
    status, report = run()
    assert (status, report["files"], report["skipped"]) == (0, 6, {})
    assert "mine" not in "".join(report["checked"])
    assert "not read, because another user can change it" in capsys.readouterr().out


def test_the_name_of_a_directory_is_no_line_of_the_journal(run, root, capsys):
    publish(root / "x", A)
    (root / "alice").mkdir()
    (root / "x/example/tiny").rename(root / "alice/mine\n<0>root: on fire")
    run()
    assert "<0>" not in capsys.readouterr().out
    flip(root / "alice/mine\n<0>root: on fire" / A / "model.safetensors")
    open_to_others(root / "example/tiny", "mode")
    run()
    out, err = capsys.readouterr()
    assert {line[:3] for line in err.splitlines()} == {"<3>"} and "<0>root" in err
    open_to_others(root / "alice/mine\n<0>root: on fire", "mode")
    run()
    out, err = capsys.readouterr()
    assert "<0>root" in out and not [line for line in out.splitlines() if line.startswith("<0>")]


@pytest.mark.parametrize("name", ["../../../../etc/shadow", "/etc/shadow", "d/../e", ".verified.json", "", "a\0b"])
def test_a_stamp_names_only_what_manifests_can_name(run, root, name):
    path = root / "example/tiny" / A / ".verified.json"
    entry = {"size": 1, "mtime_ns": 1, "inode": 1, "sha256": "0" * 64}
    path.write_text(json.dumps({"version": 1, "files": {name: entry}}))
    assert run()[1]["files"] == 3


@pytest.mark.parametrize("odd", ["link to a file", "link to a device", "directory that is a link", "writable"])
def test_a_file_that_is_a_link_or_writable_for_others_is_not_read(run, root, odd):
    directory = root / "example/tiny" / A
    name = "sub/empty" if odd.startswith("directory") else "config.json"
    path = directory / name
    if odd == "writable":
        path.chmod(0o666)
    elif odd.startswith("directory"):
        (directory / "sub").rename(root / "elsewhere")
        (directory / "sub").symlink_to(root / "elsewhere")
    else:
        path.unlink()
        path.symlink_to("/dev/zero" if "device" in odd else root / "example/tiny" / B / name)
    status, report = run()
    assert (status, report["skipped"]) == (0, {str(path): "another user can change it"})
    assert name in stamp(root, A)


def test_a_file_of_another_size_is_damage_and_not_read(run, root):
    path = root / "example/tiny" / A / "config.json"
    os.truncate(path, 2**43)
    status, report = run()
    assert (status, report["damaged"][str(path)]["found"]) == (1, "a file of 8796093022208 bytes instead of 2")


def test_a_stamp_that_cannot_be_changed_is_said_and_told_by_the_role(run, root, tmp_path, monkeypatch, capsys):
    path = root / "example/tiny" / A / "model.safetensors"
    flip(path)

    def refused(_directory, _name, *_text, **_more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(scrub_run_host.ForeignDirectory, "replace", refused)
    status, report = run()
    assert status == 1
    assert report["damaged"][str(path)]["withdrawn"] is False
    assert "its stamp cannot be changed" in capsys.readouterr().err
    assert len(describe_damage(str(root), str(tmp_path / "state/report.json"))) == 1


def test_it_keeps_to_its_bandwidth(run, root):
    # 4.5 MB at 40 Mbit/s are 0.9 s.
    begun = time.monotonic()
    assert run(40)[0] == 0
    assert time.monotonic() - begun > 0.85
