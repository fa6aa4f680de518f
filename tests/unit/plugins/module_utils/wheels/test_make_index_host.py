# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import pytest

from tests.fakes.wheelhouse import make_wheel, run_module, served


@pytest.fixture
def root(tmp_path):
    make_wheel(tmp_path / "wheels", "foo_bar", "1.0", requires_python=">=3.8")
    make_wheel(tmp_path / "wheels", "baz", "2.0")
    return tmp_path


def index(root, **arguments):
    return run_module("wheel_index", root=str(root), **arguments)


def tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_builds_an_index_and_changes_nothing_the_second_time(root):
    first = index(root)
    assert first["changed"]
    assert first["projects"] == ["baz", "foo-bar"]
    assert first["wheels"] == 2
    assert first["bytes"] == sum(path.stat().st_size for path in (root / "wheels").glob("*.whl"))
    before = tree(root)
    assert not index(root)["changed"]
    assert tree(root) == before


def test_pip_reads_the_index(root, tmp_path):
    index(root)
    with served(root) as (url, asked):
        command = [sys.executable, "-m", "pip", "--isolated", "download", "--no-deps", "--dest", str(tmp_path / "got")]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        subprocess.run([*command, "--index-url", f"{url}/simple/", "foo.bar"], check=True, env=environment)
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["foo_bar-1.0-py3-none-any.whl"]
    assert "/simple/foo-bar/" in asked


def test_files_are_readable_by_the_web_server_under_a_narrow_umask(root):
    before = os.umask(0o077)
    try:
        index(root)
    finally:
        os.umask(before)
    assert (root / "simple/baz").stat().st_mode & 0o777 == 0o755
    assert (root / "simple/baz/index.html").stat().st_mode & 0o777 == 0o644


def test_check_mode_predicts_and_writes_nothing(root):
    result = index(root, _ansible_check_mode=True, _ansible_diff=True)
    assert result["changed"]
    assert result["diff"]["before"] == ""
    assert [line.split()[0] for line in result["diff"]["after"].splitlines()] == [
        "baz-2.0-py3-none-any.whl",
        "foo_bar-1.0-py3-none-any.whl",
    ]
    assert not (root / "simple").exists()
    index(root)
    assert not index(root, _ansible_check_mode=True)["changed"]


def test_a_removed_wheel_leaves_the_index(root):
    index(root)
    (root / "wheels/baz-2.0-py3-none-any.whl").unlink()
    result = index(root, _ansible_diff=True)
    assert result["changed"]
    assert "baz" in result["diff"]["before"]
    assert "baz" not in result["diff"]["after"]
    assert not (root / "simple/baz").exists()
    assert not (root / "wheels/baz-2.0-py3-none-any.whl.metadata").exists()
    assert "baz" not in (root / "simple/index.html").read_text()


def test_other_peoples_files_stay(root):
    index(root)
    (root / "simple/baz/notes").write_text("mine")
    (root / "wheels/baz-2.0.tar.gz").write_bytes(b"an sdist")
    (root / "wheels/baz-2.0-py3-none-any.whl").unlink()
    index(root)
    assert (root / "simple/baz/notes").read_text() == "mine"
    assert (root / "wheels/baz-2.0.tar.gz").exists()


def test_metadata_lies_beside_the_wheel_and_comes_back(root):
    index(root)
    metadata = root / "wheels/foo_bar-1.0-py3-none-any.whl.metadata"
    text = metadata.read_text()
    assert "Name: foo_bar" in text
    metadata.write_text("something else")
    assert index(root)["changed"]
    assert metadata.read_text() == text


def test_half_a_wheel_is_an_error_that_changes_nothing(root):
    index(root)
    path = root / "wheels/new-1.0-py3-none-any.whl"
    make_wheel(root / "wheels", "new", "1.0")
    path.write_bytes(path.read_bytes()[:-40])
    (root / "wheels/baz-2.0-py3-none-any.whl").unlink()
    before = tree(root)
    result = index(root)
    assert result["failed"]
    assert result["msg"].startswith(f"{path}: not a whole wheel (")
    assert "copy the file again, or remove it" in result["msg"]
    assert tree(root) == before


def test_a_name_that_is_no_wheels_is_an_error(root):
    (root / "wheels/copy of baz.whl").write_bytes((root / "wheels/baz-2.0-py3-none-any.whl").read_bytes())
    assert index(root)["msg"].startswith("copy of baz.whl: not a wheel's file name")


@pytest.mark.parametrize("odd", [b"\xff\xfe", b"\x1b[2J"])
def test_a_name_that_is_no_text_or_moves_a_terminal_is_an_error(root, odd):
    name = os.fsdecode(odd + b"-1-py3-none-any.whl")
    (root / "wheels" / name).write_bytes((root / "wheels/baz-2.0-py3-none-any.whl").read_bytes())
    found = index(root)["msg"]
    assert "not a wheel's file name" in found and found.isprintable()
    assert not (root / "simple").exists()


def test_hidden_files_are_not_listed(root):
    (root / "wheels/.new-1.0-py3-none-any.whl").write_bytes(b"half")
    assert index(root)["projects"] == ["baz", "foo-bar"]


def test_a_file_that_has_not_changed_is_not_read_again(root):
    index(root)
    stamps = root / "simple/.wheels.json"
    stored = json.loads(stamps.read_text())
    stored[0]["wheel"]["sha256"] = "00" * 32  # what only a reader of the stamp can know
    stamps.write_text(json.dumps(stored))
    index(root)
    assert "00" * 32 in (root / "simple/baz/index.html").read_text()
    os.utime(root / "wheels/baz-2.0-py3-none-any.whl", (1, 1))
    assert index(root)["changed"]
    assert "00" * 32 not in (root / "simple/baz/index.html").read_text()


def test_broken_stamps_are_made_anew(root):
    index(root)
    (root / "simple/.wheels.json").write_text("{")
    assert not index(root)["changed"]
    assert json.loads((root / "simple/.wheels.json").read_text())


def test_a_wheel_that_only_root_can_read_is_warned_about(root):
    (root / "wheels/baz-2.0-py3-none-any.whl").chmod(0o600)
    assert "baz-2.0-py3-none-any.whl" in str(index(root)["warnings"])


def test_no_wheels_directory_gives_an_empty_index(tmp_path):
    assert index(tmp_path)["projects"] == []
    assert (tmp_path / "simple/index.html").exists()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_a_fifo_or_a_link_holds_nobody_and_is_written_again(root, make):
    index(root)
    before = tree(root)
    names = [
        "simple/index.html",
        "simple/baz/index.html",
        "simple/.wheels.json",
        "wheels/baz-2.0-py3-none-any.whl.metadata",
    ]
    for name in names:
        (root / name).unlink()
        make(root / name)
    assert index(root)["changed"]
    assert tree(root) == before


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path)])
def test_a_wheel_that_is_a_fifo_or_a_link_is_named(root, make):
    make(root / "wheels/evil-1.0-py3-none-any.whl")
    assert "evil-1.0-py3-none-any.whl: found a link or a special file, expected a wheel" in index(root)["msg"]


@pytest.mark.parametrize("name", ["simple", "simple/baz", "wheels"])
def test_root_writes_nothing_where_a_link_leads(root, name):
    index(root)
    (root / name).rename(root / "moved")
    (root / name).symlink_to(root / "moved")
    before = tree(root / "moved")
    make_wheel(root / "moved", "new", "1.0")
    assert index(root)["msg"].startswith(f"{root}/{name}: found a link, expected a directory; nothing was changed")
    assert set(tree(root / "moved")) == {*before, "new-1.0-py3-none-any.whl"}


def test_a_description_without_end_is_refused(root):
    with zipfile.ZipFile(root / "wheels/evil-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("evil-1.0.dist-info/METADATA", bytes(5 << 20))
    assert "METADATA has more than 4194304 bytes" in index(root)["msg"]


def test_fields_without_end_are_refused_and_a_long_description_is_not(root):
    path = root / "wheels/evil-1.0-py3-none-any.whl"

    def describe(text):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("evil-1.0.dist-info/METADATA", text)

    describe(":\n" * (2 << 20))
    assert "METADATA has more than 262144 bytes before its first empty line" in index(root)["msg"]
    # numpy's licences are 58 kB of them.
    for end in ("\n", "\r\n"):
        fields = f"Name: evil{end}License: x{end}" + f" words{end}" * 20000 + f"Requires-Python: >=3.7{end}"
        describe(f"{fields}{end}" + ":\n" * (1 << 20))
        assert index(root)["changed"]
        page = (root / "simple/evil/index.html").read_text()
        assert 'data-requires-python="&gt;=3.7"' in page


def test_a_description_that_is_not_of_ascii_and_one_that_is_encrypted(root):
    name = root / "wheels/evil-1.0-py3-none-any.whl"
    with zipfile.ZipFile(name, "w") as archive:
        archive.writestr("evil-1.0.dist-info/METADATA", "Requires-Python: >=3\u00e9\n")
    assert index(root)["changed"]
    data = name.read_bytes()
    # The bit of a password, in both heads.
    name.write_bytes(
        data.replace(b"PK\x03\x04\x14\x00\x00", b"PK\x03\x04\x14\x00\x01").replace(
            b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"
        )
    )
    assert "password" in index(root)["msg"]
