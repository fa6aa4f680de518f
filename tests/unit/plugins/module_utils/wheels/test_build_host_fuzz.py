# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever an index of wheels answers and uv prints, there is uv with the lock's hash or one sentence."""

from __future__ import annotations

import hashlib
import platform

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.pinning import web as _web
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.build_host import ensure_uv
from ansible_collections.baremetal.inference.plugins.module_utils.wheels.venv import (
    VenvError,
    check_listed,
    explain_failure,
    parse_lock,
)
from ansible_collections.baremetal.inference.plugins.modules.uv_venv import Index

from tests.fakes.fuzz import HostileServer, assert_enough, assert_presentable, cases, mutated_text, told_apart, within
from tests.fakes.wheelhouse import make_wheel

MACHINE = platform.machine()
FAILED = (
    "Using Python 3.11.2\n  x No solution found when resolving dependencies:\n"
    "  `-> Because tiny was not found in the package registry and you require tiny==1.0, we can conclude that ...\n"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheels")
    make_wheel(directory, "uv", "9.1", tag=f"py3-none-manylinux_2_17_{MACHINE}", scripts={"uv": b"#!/bin/sh\n"})
    return next(directory.glob("uv-*.whl"))


@pytest.fixture
def lock(wheel):
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return parse_lock(
        f"# target: cp311-{MACHINE}\ntiny==1.0 --hash=sha256:{'0' * 64}\nuv==9.1 --hash=sha256:{digest}\n"
    )


@pytest.mark.slow
def test_whatever_an_index_answers_there_is_the_locks_uv_or_one_sentence(monkeypatch, tmp_path, wheel, lock):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(_web, "ATTEMPTS", 2)
    monkeypatch.setattr(_web.time, "sleep", lambda _seconds: None)
    content, installed, refused = wheel.read_bytes(), 0, 0

    def find(root, index):
        listed = index.projects()
        if listed is not None:
            check_listed(lock, listed, index.url)
        return ensure_uv(lock, index, str(root))

    for number, (label, choose) in enumerate(cases("index", 100)):
        root = tmp_path / str(number)
        root.mkdir()

        def script(head, choose=choose):
            path = head.split()[1].decode("latin-1")
            body = f'<a href="../../wheels/{wheel.name}#sha256={hashlib.sha256(content).hexdigest()}">u</a>'.encode()
            if path == "/simple/":
                body = b'<a href="tiny/">tiny</a><a href="uv/">uv</a>'
            elif path.endswith(".whl"):
                body = content[: choose.choice((None,) * 5 + (100, 0))] + choose.choice((b"",) * 5 + (b"x",))
            if not path.endswith(".whl") and choose.random() < 0.3:
                body = mutated_text(choose, body.decode()).encode("utf-8", "surrogatepass")
            answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            if choose.random() < 0.2:
                answer = mutated_text(choose, answer)
            yield answer.encode("utf-8", "surrogatepass")
            if choose.random() < 0.05:
                yield choose.choice((0.05, None))
            yield body

        with told_apart(label), HostileServer(script) as server:
            index = Index(f"{server.url}/simple/", None)
            try:
                within(60, lambda root=root, index=index: find(root, index))
                installed += 1
                assert sorted(path.name for path in root.iterdir()) == ["uv-9.1"]
                assert (root / "uv-9.1/uv").read_bytes() == b"#!/bin/sh\n"
            except VenvError as exc:
                refused += 1
                assert_presentable(str(exc), 6000)
                assert not list(root.iterdir())
    assert_enough(installed, 10, "installed")
    assert_enough(refused, 20, "refused")


def test_whatever_uv_prints_it_is_one_sentence():
    for label, choose in cases("uv", 400):
        with told_apart(label):
            output = mutated_text(choose, FAILED)
            assert_presentable(
                within(60, lambda output=output: explain_failure(output, "http://m/simple/", "/opt")), 9000
            )
