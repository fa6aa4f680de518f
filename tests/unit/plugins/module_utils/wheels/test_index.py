# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.index import (
    Wheel,
    WheelError,
    changed_pages,
    list_files,
    normalise_name,
    parse_links,
    parse_name,
    render_pages,
    stale_pages,
)

DIGEST = "ab" * 32


def wheel(filename, requires_python=""):
    return Wheel(filename, DIGEST, requires_python, "cd" * 32)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Foo", "foo"), ("foo_bar", "foo-bar"), ("foo.bar", "foo-bar"), ("Foo-_.Bar", "foo-bar"), ("a--b", "a-b")],
)
def test_normalise(name, expected):
    assert normalise_name(name) == expected


def test_parse_name_of_a_plain_wheel():
    name = parse_name("anyio-4.16.0-py3-none-any.whl")
    assert (name.project, name.version, name.build, set(name.tags)) == ("anyio", "4.16.0", "", {("py3", "none", "any")})


def test_parse_name_expands_compressed_tags():
    name = parse_name("uv-0.13.8-py2.py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    assert len(name.tags) == 4
    assert ("py2", "none", "manylinux2014_x86_64") in name.tags


def test_parse_name_takes_a_build_tag_for_no_version():
    name = parse_name("Foo_Bar-1.0-2_local-cp311-cp311-linux_x86_64.whl")
    assert (name.project, name.version, name.build) == ("foo-bar", "1.0", "2_local")


def test_parse_name_keeps_a_local_version():
    assert parse_name("torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl").version == "2.13.0+cpu"


@pytest.mark.parametrize(
    "filename", ["foo.whl", "foo-1.0.whl", "foo-1.0-py3-any.whl", "a-b-1.0-py3-none-any.whl", "foo-1.0.tar.gz"]
)
def test_parse_name_refuses(filename):
    with pytest.raises(WheelError, match=f"^{filename}: not a wheel's file name; expected NAME-VERSION"):
        parse_name(filename)


# The bytes of a name on a disk may be no text at all, and a terminal or a browser could obey it.
@pytest.mark.parametrize(
    "odd",
    ["\x1b]0;a\x07", "\udcff", "\u202ea", "\u0130", 'x"onmouseover="alert(1)', "<img\u2062src=x>", "&amp;", "a\\b"],
)
@pytest.mark.parametrize("filename", ["{}-1.0-py3-none-any.whl", "foo-1{}-py3-none-any.whl", "foo-1.0-py3-none-{}.whl"])
def test_parse_name_refuses_what_no_wheel_has_in_its_name(filename, odd):
    with pytest.raises(WheelError, match="expected NAME-VERSION"):
        parse_name(filename.format(odd))


def test_render_pages_groups_by_normalised_name_and_writes_the_root_last():
    pages = render_pages(
        [wheel("Foo_Bar-2-py3-none-any.whl"), wheel("b-1-py3-none-any.whl"), wheel("foo.bar-1-py3-none-any.whl")]
    )
    assert list(pages) == ["b/index.html", "foo-bar/index.html", "index.html"]
    assert pages["foo-bar/index.html"].count("<a ") == 2
    assert '<a href="foo-bar/">foo-bar</a>' in pages["index.html"]


def test_render_pages_escapes():
    page = render_pages([wheel("torch-1+cpu-cp311-cp311-linux_x86_64.whl", '>=3.8,<4 "x" & y')])["torch/index.html"]
    assert 'href="../../wheels/torch-1%2Bcpu-cp311-cp311-linux_x86_64.whl#sha256=' + DIGEST in page
    assert 'data-requires-python="&gt;=3.8,&lt;4 &quot;x&quot; &amp; y"' in page
    assert f'data-core-metadata="sha256={"cd" * 32}"' in page
    assert "data-dist-info-metadata" not in page


def test_render_pages_of_nothing_is_an_empty_root_page():
    pages = render_pages([])
    assert list(pages) == ["index.html"]
    assert "<a " not in pages["index.html"]


def test_links_reads_what_render_writes():
    page = render_pages([wheel("torch-1+cpu-cp311-cp311-linux_x86_64.whl")])["torch/index.html"]
    (link,) = parse_links(page, "http://mirror/simple/torch/")
    assert link.filename == "torch-1+cpu-cp311-cp311-linux_x86_64.whl"
    assert link.url == "http://mirror/wheels/torch-1%2Bcpu-cp311-cp311-linux_x86_64.whl"
    assert link.sha256 == DIGEST


def test_links_without_a_digest():
    assert parse_links('<a href="x-1.tar.gz#md5=00">x</a><a>nothing</a>', "http://i/x/")[0].sha256 is None


def test_a_page_with_a_declaration_that_nobody_knows():
    (link,) = parse_links('<![x]><a href="x-1.tar.gz">x</a><![', "http://i/x/")
    assert link.filename == "x-1.tar.gz"


def test_comparison_finds_changed_and_stale_pages():
    old = render_pages([wheel("a-1-py3-none-any.whl"), wheel("b-1-py3-none-any.whl"), wheel("c-1-py3-none-any.whl")])
    new = render_pages([wheel("a-1-py3-none-any.whl"), wheel("b-2-py3-none-any.whl")])
    assert changed_pages(new, old) == ["b/index.html", "index.html"]
    assert stale_pages(new, old) == ["c/index.html"]
    assert changed_pages(new, new) == stale_pages(new, new) == []


def test_listing_shows_files():
    assert list_files(render_pages([wheel("a-1-py3-none-any.whl")])) == f"a-1-py3-none-any.whl sha256={DIGEST}\n"
