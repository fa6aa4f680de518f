# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess

import pytest

from tests.fakes.signer import signer
from tests.fakes.wheelhouse import make_wheel, run_module


@pytest.fixture
def disk(tmp_path):
    """A directory with two files, and the module of it."""
    files = {"weights/a/b/1/x": b"weights", "encodings/y": b"words"}
    holds = {}
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(data)
        entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        holds.setdefault(path.partition("/")[0], {})[path.rpartition("/")[2]] = {path: entry}
    return tmp_path, holds


def run(root, **arguments):
    return run_module("mirror_bundle", root=str(root), **arguments)


def test_says_what_is_missing_and_how_much_room_there_is(disk):
    root, holds = disk
    (root / "encodings/y").unlink()
    result = run(root, state="planned", holds=holds, more=100)
    assert (result["missing"], result["missing_bytes"]) == (["encodings/y"], 105)
    assert result["free_bytes"] > 0 and not result["changed"]


def test_what_a_broken_off_run_has_brought_is_not_still_to_come(disk):
    root, holds = disk
    (root / "weights/a/b/.1.partial").mkdir()
    (root / "weights/a/b/1/x").rename(root / "weights/a/b/.1.partial/x.partial")
    assert run(root, state="planned", holds=holds)["missing_bytes"] == 0
    (root / "weights/a/b/.1.partial/x.partial").write_bytes(b"")
    assert run(root, state="planned", holds=holds)["missing_bytes"] == 7


def test_too_little_room_is_an_error_before_anything_comes(disk):
    root, holds = disk
    result = run(root / "new", state="planned", holds=holds, more=10**18)
    assert result["failed"] and "1000000.0 TB" in result["msg"] and "bundle_dir" in result["msg"]


def test_written_once_then_left_alone(disk):
    root, holds = disk
    assert run(root, holds=holds, _ansible_check_mode=True)["changed"]
    assert not (root / "bundle.json").exists()
    assert run(root, holds=holds)["changed"]
    before = (root / "bundle.json").stat()
    assert not run(root, holds=holds)["changed"]
    after = (root / "bundle.json").stat()
    # It was read, and nothing else.
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (before.st_mode & 0o777) == 0o644
    assert json.loads((root / "bundle.json").read_text())["bytes"] == 12
    assert sorted(path.name for path in root.iterdir() if path.is_file()) == [
        "SHA256SUMS", "bundle.cdx.json", "bundle.json"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["SHA256SUMS", "bundle.cdx.json"])
def test_a_lost_document_is_written_again(disk, name):
    root, holds = disk
    run(root, holds=holds)
    text = (root / name).read_text()
    (root / name).unlink()
    assert run(root, holds=holds)["changed"]
    assert (root / name).read_text().splitlines()[-1] == text.splitlines()[-1]


def test_sha256sum_accepts_the_disk(disk):
    root, holds = disk
    (root / "controller").mkdir()
    (root / "controller/collection.bundle").write_text("code")
    assert run(root, holds=holds, collection_version="0.7.0")["files"] == 3
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=root, check=True, capture_output=True, text=True
    )
    assert done.stdout.count(": OK\n") == 5
    bill = json.loads((root / "bundle.cdx.json").read_text())
    assert bill["metadata"]["tools"]["components"][0]["version"] == "0.7.0"


def test_the_controllers_files_must_be_files(disk):
    root, holds = disk
    (root / "controller").mkdir()
    (root / "controller/lib64").symlink_to("/usr")
    result = run(root, holds=holds)
    assert result["failed"] and "controller/lib64: expected a file" in result["msg"]


def test_not_written_while_a_file_is_missing(disk):
    root, holds = disk
    (root / "encodings/y").unlink()
    result = run(root, holds=holds)
    assert result["failed"] and "encodings/y" in result["msg"]
    assert not (root / "bundle.json").exists()


def test_a_bundle_of_an_earlier_fill_stays_in(disk):
    root, holds = disk
    run(root, holds={"weights": holds["weights"]})
    result = run(root, holds={"encodings": holds["encodings"]})
    assert result["files"] == 2
    (root / "weights/a/b/1/x").write_bytes(b"cut")
    result = run(root, holds={"encodings": holds["encodings"]})
    assert result["dropped"] == ["weights x"] and "is incomplete now" in str(result["warnings"])


def test_a_bundle_that_cannot_be_read_is_written_anew(disk):
    root, holds = disk
    (root / "bundle.json").write_text("{")
    result = run(root, holds=holds)
    assert result["changed"] and "written again" in str(result["warnings"])


def test_a_whole_disk_is_verified(disk):
    root, holds = disk
    run(root, holds=holds)
    result = run(root, state="verified")
    assert not result["changed"] and result["files"] == 2


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b"wo"), "has 2 bytes, expected 5"),
        (lambda path: path.write_bytes(b"wordz"), "has sha256"),
        (lambda path: (path.unlink(), path.mkdir()), "is missing"),
    ],
)
def test_damage_on_the_way_is_named(disk, damage, words):
    root, holds = disk
    run(root, holds=holds)
    damage(root / "encodings/y")
    result = run(root, state="verified")
    assert result["failed"] and "1 of 2 files" in result["msg"]
    assert result["problems"][0].startswith("encodings/y (encodings y): ") and words in result["problems"][0]


def test_sizes_alone_are_quick_and_see_less(disk):
    root, holds = disk
    run(root, holds=holds)
    (root / "encodings/y").write_bytes(b"wordz")
    assert "failed" not in run(root, state="verified", read="sizes")
    (root / "encodings/y").write_bytes(b"wo")
    assert run(root, state="verified", read="sizes")["failed"]


def test_a_disk_without_a_bundle(tmp_path):
    result = run(tmp_path, state="verified")
    assert result["failed"] and "check that the disk is mounted" in result["msg"]
    assert "failed" not in run(tmp_path, state="verified", required=False)


def test_a_bundle_never_leads_out_of_its_directory(disk):
    root, holds = disk
    run(root, holds=holds)
    text = (root / "bundle.json").read_text()
    (root / "bundle.json").write_text(text.replace('"encodings/y"', '"../encodings/y"'))
    result = run(root, state="verified")
    assert result["failed"] and "found the path '../encodings/y'" in result["msg"]


@pytest.fixture(scope="module")
def keys():
    with signer() as found:
        yield found


@pytest.fixture
def signed(disk, keys):
    """A signed disk, and the check that requires the signature."""
    root, holds = disk
    (root / "controller").mkdir()
    (root / "controller/collection.bundle").write_text("code")
    name = "wheels/whole-1.0-py3-none-any.whl"
    sha256 = make_wheel(root / "wheels", "whole", "1.0")
    holds["wheels"] = {"whole": {name: {"size": (root / name).stat().st_size, "sha256": sha256}}}
    run(root, holds=holds)
    keys.sign(root / "SHA256SUMS")
    keyring = base64.b64encode(keys.public()).decode()

    def check(**more):
        return run(root, state="verified", keyring=keyring, **more)

    return root, holds, check


def test_a_signed_disk_is_accepted(signed):
    root, _holds, check = signed
    result = check()
    assert not result["changed"] and result["files"] == 4 and "failed" not in result
    # A fill leaves the lock of a model.
    (root / "weights/a/b/.lock").write_text("pid 812 on fill-01")
    assert "failed" not in check()
    (root / "weights/a/b/.lock").write_text("evil" * 1000)
    assert check()["problems"] == ["weights/a/b/.lock: is not signed"]


def test_the_index_that_the_role_makes_needs_no_signature(signed):
    root, _holds, check = signed
    assert run_module("wheel_index", root=str(root))["changed"]
    assert sorted(path.name for path in (root / "simple").rglob("*") if path.is_file()) == [
        ".wheels.json", "index.html", "index.html",
    ]  # fmt: skip
    assert "failed" not in check(read="sizes")
    # What a stranger wrote into it is written again.
    for name in ("index.html", "whole/index.html", ".wheels.json"):
        (root / "simple" / name).write_text((root / "simple" / name).read_text().replace("sha256", "evil"))
    assert "failed" not in check(read="sizes")
    run_module("wheel_index", root=str(root), trust_stamps=False)
    assert not [path for path in (root / "simple").rglob("*") if path.is_file() and "evil" in path.read_text()]


def change(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


ADDED = (
    "ansible.cfg", "install.sh", ".bashrc", "site.yml", "README.txt", "bundle.json.bak", "SHA256SUMS.old",
    "Weights/a/b/1/x", "WEIGHTS/x", "Controller/collection.bundle", "encodings/Y", "encodings/.hidden", "encodings/z",
    "weights/a/b/1/.hidden", "weights/a/b/1/x.partial", "weights/a/b/.1.partial/x", "weights/a/b/.1.old/x",
    "weights/a/b/1/model.safetensors", "weights/a/b/2/x", "weights/a/b/2/.verified.json", "weights/x.whl.metadata",
    "wheels/evil-1.0-py3-none-any.whl", "wheels/evil-1.0-py3-none-any.whl.metadata", "wheels/.evil.fetched.json",
    "wheels/.fetch-1/x.whl", "wheels/pip.conf", "images/evil/index.json", "images/.hidden", "controller/.profile",
    "controller/ansible.cfg", "controller/x.partial", "controller/x.whl.metadata", "simple/evil/index.html",
    "simple/whole/index.htm", "simple/whole/.htaccess", "simple/evil.html", "simple/whole/x/index.html",
    "lost+found/x", "new/x", "weights/a/b/1/x ", "weights/a/c/.lock", "encodings/.lock", "weights/a/b/1/.lock",
)  # fmt: skip


@pytest.mark.parametrize("path", ADDED)
def test_an_added_file_is_named_wherever_it_is(signed, path):
    root, _holds, check = signed
    change(root / path, "evil")
    result = check()
    assert result["failed"] and result["problems"] == [f"{path}: is not signed"]


def to(target):
    def make(path):
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


@pytest.mark.parametrize(
    ("path", "make", "words"),
    [
        ("x", to("/"), "x: is a link"), (".x", to("/etc/passwd"), ".x: is a link"), ("weights/x", to("/"), "is a link"),
        ("weights/a/b/1/x", to("/dev/null"), "weights/a/b/1/x: is a link"), ("y", to("encodings/y"), "y: is a link"),
        ("simple", to("/"), "simple: is a link"), ("controller/x", to("collection.bundle"), "controller/x: is a link"),
        ("SHA256SUMS.bak", to("SHA256SUMS"), "SHA256SUMS.bak: is a link"),
        ("encodings/f", os.mkfifo, "encodings/f: is not a file"), ("pipe", os.mkfifo, "pipe: is not a file"),
    ],
)  # fmt: skip
def test_a_link_and_anything_else_but_a_file_is_refused(signed, path, make, words):
    root, _holds, check = signed
    make(root / path)
    result = check()
    assert result["failed"] and words in "; ".join(result["problems"])


def test_a_directory_that_was_replaced_by_a_link_to_the_same_content_is_refused(signed, tmp_path_factory):
    root, _holds, check = signed
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "weights"
    (root / "weights").rename(elsewhere)
    (root / "weights").symlink_to(elsewhere)
    assert check()["problems"] == ["weights: is a link, and only files can be signed; remove it"]


def test_what_a_fill_notes_for_the_next_one_is_signed(disk, keys):
    root, holds = disk
    change(root / "weights/a/b/1/.verified.json", "{}")
    change(root / "wheels/.cu130.fetched.json", "{}")
    run(root, holds=holds)
    keys.sign(root / "SHA256SUMS")
    keyring = base64.b64encode(keys.public()).decode()
    assert "failed" not in run(root, state="verified", keyring=keyring)
    (root / "wheels/.cu130.fetched.json").write_text('{"evil": 1}')
    (root / "weights/a/b/1/.verified.json").unlink()
    problems = run(root, state="verified", keyring=keyring)["problems"]
    assert [line.split(" ")[0] for line in problems] == ["weights/a/b/1/.verified.json:", "wheels/.cu130.fetched.json:"]


def test_an_older_signed_state_is_named(signed, tmp_path_factory):
    _root, _holds, check = signed
    record = tmp_path_factory.mktemp("host") / "lib/accepted"
    assert check(record=str(record), _ansible_check_mode=True)["changed"] and not record.exists()
    assert check(record=str(record))["changed"]
    assert not check(record=str(record))["changed"]
    record.write_text(f"{int(record.read_text()) + 3600}\n")
    result = check(record=str(record))
    assert (
        result["failed"]
        and f"remove {record}" in result["msg"]
        and "this host has accepted content of" in result["msg"]
    )
    record.write_text("damaged")
    assert check(record=str(record))["changed"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("encodings/y", "encodings/y (encodings y): has sha256"),
        ("controller/collection.bundle", "controller/collection.bundle (controller collection.bundle): has sha256"),
        ("bundle.cdx.json", "bundle.cdx.json: has sha256"),
        ("images/evil/index.json", "images/evil/index.json: is not signed"),
        ("controller/.profile", "controller/.profile: is not signed"),
        ("SHA256SUMS", "changed after it was signed"),
    ],
)
def test_a_changed_byte_is_named_by_file(signed, path, words):
    root, _holds, check = signed
    change(root / path, "WORDS" if path.startswith("enc") else "evil")
    result = check()
    assert result["failed"] and words in result["msg"], result["msg"]


def test_a_list_that_was_made_again_is_refused(signed):
    """The files and every list agree; only the signature is of another content."""
    root, holds, check = signed
    (root / "encodings/y").write_text("WORDS")
    holds["encodings"]["y"]["encodings/y"]["sha256"] = hashlib.sha256(b"WORDS").hexdigest()
    result = run(root, holds=holds)
    assert "sign the directory again" in str(result["warnings"])
    assert not (root / "SHA256SUMS.asc").exists()
    assert "failed" not in run(root, state="verified")
    result = check()
    assert result["failed"] and "only a signed disk is accepted" in result["msg"]


def test_bundle_json_alone_cannot_be_exchanged(signed):
    root, _holds, check = signed
    text = (root / "bundle.json").read_text()
    changed = text.replace(hashlib.sha256(b"words").hexdigest(), hashlib.sha256(b"WORDS").hexdigest())
    (root / "bundle.json").write_text(changed)
    (root / "encodings/y").write_text("WORDS")
    problems = [line.split(" has ")[0] for line in check(required=False)["problems"]]
    assert problems == ["bundle.json:", "encodings/y:"]


def test_an_empty_directory_is_unsigned(tmp_path, keys):
    keyring = base64.b64encode(keys.public()).decode()
    assert "failed" in run(tmp_path, state="verified", required=False, keyring=keyring)
    result = run(tmp_path, state="verified", keyring="no base64!")
    assert result["failed"] and "encoded with Base64" in result["msg"]


def test_a_second_fill_with_nothing_new_keeps_the_signature(signed):
    root, holds, check = signed
    assert not run(root, holds=holds)["changed"]
    assert "failed" not in check()
