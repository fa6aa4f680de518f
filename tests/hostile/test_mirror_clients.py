# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reaches the mirror wants what is not for him, or wants to keep others out: nginx with the role's site."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from tests.fakes import gateways, mirrors
from tests.fakes.gateways import until
from tests.fakes.mirrors import answer

pytestmark = pytest.mark.skipif(mirrors.NGINX is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs nginx")
TOP = Path(__file__).resolve().parents[2]
SERVED = (
    "caches/chat.tar.zst", "encodings/o200k_base.tiktoken", "evaluation/mmlu.csv", "public/ubuntu24.raw",
    "simple/index.html", "vendors/download.docker.com/gpg", "weights/org/model/1/config.json",
    "wheels/a-1-py3-none-any.whl",
)  # fmt: skip
# What lies on a disk that was filled as docs/start/air-gapped.md says, and what somebody left there.
CLOSED = (
    "controller/island/hosts.yml", "controller/island/group_vars/all.yml", "controller/collection.bundle",
    "bundle.json", "bundle.cdx.json", "SHA256SUMS", "SHA256SUMS.asc", "images/org/tiny/index.json", "id_ed25519",
    "inventory/hosts.yml", "lost+found/x", "weights.old/x", "weightsx/x", "x/weights/x",
)  # fmt: skip


@contextlib.contextmanager
def serving(root):
    port = gateways.free_port()
    with mirrors.place() as own, mirrors.nginx(own, mirror_root=str(root), mirror_port=port) as process:
        until(lambda: answer(port, "GET", "/")[0])
        assert process.poll() is None
        yield port


@pytest.fixture(scope="module")
def port():
    with mirrors.place() as root:
        for name in SERVED + CLOSED:
            path = root / "disk" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        with serving(root / "disk") as found:
            yield found


@pytest.mark.parametrize("name", SERVED)
def test_what_hosts_read_is_served_and_listed(port, name):
    assert answer(port, "GET", f"/{name}") == (200, name.encode())
    if not name.endswith("index.html"):
        directory, _slash, last = name.rpartition("/")
        assert f'href="{last}"'.encode() in answer(port, "GET", f"/{directory}/")[1]
    assert answer(port, "PUT", f"/{name}")[0] == 403


@pytest.mark.parametrize("before", ["/", "//", "/weights/../", "/weights/%2e%2e/", "/weights/..%2f", "/./", "/%2f"])
def test_nothing_else_of_the_disk_is(port, before):
    got = []
    for name in CLOSED:
        parts = name.split("/")
        paths = [before + "/".join(parts[:count]) + end for count in range(1, len(parts) + 1) for end in ("", "/")]
        got += [path for path in paths if answer(port, "GET", path)[0] not in (400, 404)]
    assert got == []


def test_the_top_is_not_listed(port):
    assert [answer(port, "GET", path)[0] for path in ("/", "//", "/weights/..", "/%2e")] == [404] * 4


def test_every_address_of_the_mirror_in_roles_and_pages_is_one_of_these():
    address = re.compile(r"https?://(?:mirror[a-z0-9-]*|10\.0\.0\.5)/([\w.-]+)", re.IGNORECASE)
    files = [path for name in ("docs", "inventories", "playbooks", "roles") for path in (TOP / name).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in files if path.suffix in (".md", ".yml", ".j2")]
    found = {name for text in texts for name in address.findall(text)}
    assert {"simple", "weights"} <= found <= {name.partition("/")[0] for name in SERVED}
