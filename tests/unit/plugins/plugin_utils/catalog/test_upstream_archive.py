# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a source distribution; tests/unit/plugins/action/test_upstream_recipes.py has the ways to it."""

from __future__ import annotations

import tarfile

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_archive import read_archive
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.upstream_recipes import UpstreamError

from tests.fakes.upstream import CONTENTS, VERSION, write_archive


def test_only_recipes_and_the_licence_are_read(tmp_path):
    odd = {
        "recipes/models/../../etc/x.yaml": b"1",
        "recipes/models/a/b/c.yaml": b"2",
        "recipes/models/big/x.yaml": b" " * 2**21,
    }
    archive = write_archive(tmp_path / "x.tar.gz", {**CONTENTS, **odd})
    wanted = ("LICENSE", "recipes/models/org/tiny.yaml", "recipes/models/org/big.yaml")
    assert read_archive(archive, VERSION) == {name: CONTENTS[name] for name in wanted}


def test_a_link_is_not_followed(tmp_path):
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo(f"vllm-{VERSION}/recipes/models/org/tiny.yaml")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    assert read_archive(archive, VERSION) == {}


@pytest.mark.parametrize("content", [b"", b"nothing", b"\x1f\x8b\x08\x00broken"])
def test_anything_else_is_one_sentence(tmp_path, content):
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(UpstreamError, match=r"x\.tar\.gz: not a source distribution"):
        read_archive(tmp_path / "x.tar.gz", VERSION)
