# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.index import Link
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import (
    Pin,
    Target,
    VenvError,
    check_host,
    check_listed,
    check_space,
    choose_tool,
    directory_name,
    explain_failure,
    join_locks,
    parse_lock,
    parse_target,
    render_lock,
    uv_environment,
)

LOCKS = sorted((Path(__file__).resolve().parents[5] / "catalog/releases/requirements").glob("*.txt"))
A, B = "a" * 64, "b" * 64
URL = "http://mirror/simple/"
LOCK = f"""\
# target: cp311-x86_64
# a comment
Foo_Bar==1.0 \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via something
baz==2.0+cpu ; python_version < "4" --hash=sha256:{A}
uv==0.13.8 --hash=sha256:{B}
"""


def test_parse_lock():
    lock = parse_lock(LOCK)
    assert lock.target == Target("3.11", "x86_64")
    assert lock.pins["foo-bar"] == Pin("foo-bar", "1.0", frozenset([A, B]))
    assert lock.pins["baz"].marker == 'python_version < "4"'
    assert [pin.name for pin in lock.contents()] == ["baz", "foo-bar"]
    assert lock.tool.version == "0.13.8"


def test_parse_lock_reads_what_render_lock_writes():
    pins = parse_lock(LOCK).pins
    again = parse_lock(render_lock("cp311-x86_64", "by a test", pins.values()))
    assert again.pins == pins
    assert again.target == Target("3.11", "x86_64")


@pytest.mark.parametrize(
    "line",
    [
        "foo==1.0",
        "foo>=1.0 --hash=sha256:" + A,
        "foo==1.0 --hash=md5:" + A,
        f"foo==1.0 --hash=sha256:{A} --hash=sha256:00",
        "--index-url http://elsewhere/simple/",
        "-r other.txt",
        "foo @ http://elsewhere/foo.whl --hash=sha256:" + A,
        "./foo --hash=sha256:" + A,
        f"foo[extra]==1.0 --hash=sha256:{A}",
    ],
)
def test_parse_lock_refuses_what_is_not_pinned(line):
    with pytest.raises(VenvError, match="expected NAME==VERSION with --hash=sha256"):
        parse_lock(f"{LOCK}{line}\n")


def test_a_lock_takes_over_what_has_one_wheel_for_all_targets():
    shared = "".join(
        f"{first} \\\n    --hash=sha256:{A}\n"
        for first in ("a==1", "b==1 \\\n    --hash=sha256:" + B, "c==1 ; python_version < '3.12'", "d-e==2")
    )
    own = f"# target: cp311-x86_64\n# besides: all.txt\nb==1 \\\n    --hash=sha256:{B}\n"
    assert join_locks(own, shared) == (
        f"# target: cp311-x86_64\na==1 \\\n    --hash=sha256:{A}\nb==1 \\\n    --hash=sha256:{B}\n"
        f"d-e==2 \\\n    --hash=sha256:{A}\n"
    )


def test_parse_lock_refuses_a_second_version():
    with pytest.raises(VenvError, match="foo-bar is pinned twice"):
        parse_lock(f"{LOCK}foo.bar==2 --hash=sha256:{A}\n")


def test_parse_lock_refuses_nothing():
    with pytest.raises(VenvError, match="no project is pinned"):
        parse_lock("# nothing\n")


def test_a_lock_without_uv_says_what_to_add():
    with pytest.raises(VenvError, match="add uv==VERSION"):
        assert parse_lock(f"foo==1 --hash=sha256:{A}").tool


@pytest.mark.parametrize("text", ["311-x86_64", "cp311", "cp311-riscv64", ""])
def test_parse_target_refuses(text):
    with pytest.raises(VenvError, match="expected something like cp311-x86_64"):
        parse_target(text)


def test_directory_name_follows_the_content_but_not_a_lost_last_line_end():
    expected = "0.32.0-cpu-" + hashlib.sha256(LOCK.encode()).hexdigest()[:12]
    assert directory_name("0.32.0-cpu", LOCK) == directory_name("0.32.0-cpu", LOCK.rstrip()) == expected
    assert directory_name("0.32.0-cpu", LOCK + "# more\n") != expected


def test_check_host():
    check_host(Target("3.11", "x86_64"), "/usr/bin/python3", "3.11", "x86_64")
    check_host(None, "/usr/bin/python3", "3.13", "aarch64")
    with pytest.raises(
        VenvError, match=r"/usr/bin/python3 is Python 3\.13, but the lock's wheels are for Python 3\.11"
    ):
        check_host(Target("3.11", "x86_64"), "/usr/bin/python3", "3.13", "x86_64")
    with pytest.raises(VenvError, match="this host is aarch64, but the lock's wheels are for x86_64"):
        check_host(Target("3.11", "x86_64"), "/usr/bin/python3", "3.11", "aarch64")


def test_check_space():
    check_space("/opt", 5, 5)
    with pytest.raises(VenvError, match=r"/opt has 1\.0 GB free, the environment needs 4\.3 GB"):
        check_space("/opt", 10**9, 2**32)


def test_check_listed_names_every_missing_project():
    check_listed(parse_lock(LOCK), ["Foo.Bar", "uv"], URL)  # baz has a marker: it may not be meant for this host
    with pytest.raises(VenvError, match=f"^{URL} has no foo-bar, uv; carry the missing wheels"):
        check_listed(parse_lock(LOCK), [], URL)


def test_choose_tool_takes_the_wheel_of_this_machine():
    names = [
        "uv-0.13.8.tar.gz",
        "uv-0.13.8-py3-none-win_amd64.whl",
        "uv-0.13.8-py3-none-manylinux_2_17_aarch64.whl",
        "uv-0.13.9-py3-none-manylinux_2_17_x86_64.whl",
        "uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    ]
    offered = [Link(name, f"{URL}uv/{name}", B) for name in names]
    link, digests = choose_tool(parse_lock(LOCK).tool, offered, "x86_64", URL)
    assert link.filename == names[-1]
    assert digests == {B}
    with pytest.raises(VenvError, match=r"has no wheel of uv 0\.13\.8 for riscv64"):
        choose_tool(parse_lock(LOCK).tool, offered, "riscv64", URL)


def test_choose_tool_refuses_another_digest():
    name = "uv-0.13.8-py3-none-manylinux_2_17_x86_64.whl"
    with pytest.raises(VenvError, match="with a sha256 of the lock"):
        choose_tool(parse_lock(LOCK).tool, [Link(name, URL + name, A)], "x86_64", URL)


def test_environment_drops_what_the_host_has_configured():
    inherited = {
        "UV_INDEX": "x",
        "PIP_INDEX_URL": "x",
        "PYTHONPATH": "x",
        "VIRTUAL_ENV": "x",
        "PATH": "/bin",
        "http_proxy": "p",
    }
    variables = uv_environment(inherited, URL, "/ca.pem", "/cache")
    assert variables["UV_DEFAULT_INDEX"] == URL
    assert variables["SSL_CERT_FILE"] == "/ca.pem"
    assert variables["PATH"] == "/bin"
    assert variables["http_proxy"] == "p"
    assert not {"UV_INDEX", "PIP_INDEX_URL", "PYTHONPATH", "VIRTUAL_ENV"} & set(variables)
    assert "SSL_CERT_FILE" not in uv_environment({}, URL, None, "/cache")


# What uv 0.13.8 printed.
UV_MISSING = """Using Python 3.11.2 environment at: .x.partial
error: No solution found when resolving dependencies
  cause: Because there is no version of anyio==4.15.9 and you require anyio==4.15.9, we can conclude that your
         requirements are unsatisfiable.
"""


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (UV_MISSING, f"{URL} has no wheel of anyio==4.15.9 that the lock and this Python accept"),
        (
            "  ├── No solution\n  └──> Because foo was not found in the package registry and",
            f"{URL} has no wheel of foo that",
        ),
        (
            "Hash mismatch for `anyio==4.16.0`\n\nExpected:",
            f"{URL} serves a file for anyio==4.16.0 whose sha256 is not that",
        ),
        (
            "failed to write: No space left on device (os error 28)",
            "/opt/vllm became full while the environment was created",
        ),
        ("error: something\n  new", f"uv could not create the environment from {URL}: error: something new"),
    ],
)
def test_explain(output, sentence):
    assert explain_failure(output, URL, "/opt/vllm").startswith(sentence)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_shipped_lock_is_whole(path):
    lock = parse_lock(path.read_text(encoding="utf-8"))
    assert lock.target == parse_target("-".join(path.stem.rsplit("-", 2)[1:]))
    assert lock.tool
    assert all(len(pin.hashes) == 1 for pin in lock.pins.values())
    # One file of requirements for each Python, or one for all of them.
    assert any(path.with_name(f"{stem}.in").exists() for stem in (path.stem, path.stem.rsplit("-", 2)[0]))
    assert path.read_text(encoding="utf-8").count("://") == 0


def test_there_are_shipped_locks():
    assert LOCKS
