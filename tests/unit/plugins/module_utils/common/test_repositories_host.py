# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import repositories_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.repositories_host import (
    repository_problem,
    without_login,
)

# As apt of Debian 12 prints them; the indexes of a first update, too.
ADDRESSES = """\
'http://deb.example.org/debian/dists/bookworm/InRelease' deb.example.org_debian_dists_bookworm_InRelease 0
'http://deb.example.org/debian/dists/bookworm-updates/InRelease' deb.example.org_bookworm-updates_InRelease 0
'https://user:secret@site.example.org/old/dists/x/InRelease' site.example.org_old_dists_x_InRelease 0
'cdrom://[Debian]/dists/bookworm/InRelease' cdrom_InRelease 0
'http://deb.example.org/debian/dists/bookworm/main/binary-amd64/Packages.xz' deb.example.org_Packages 0
"""
HELPER = """#!/bin/sh
for word; do last=$previous; previous=$word; done
echo "$last" >> "{log}"
case "$last" in
{cases}
esac
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host whose apt answers as the cases of a shell say; returns what was asked."""

    def make(cases):
        log = tmp_path / "asked"
        log.write_text("")
        for name, text in {
            "APT_GET": "#!/bin/sh\ncat <<'END'\n" + ADDRESSES + "END\n",
            "HELPER": HELPER.format(log=log, cases=cases),
        }.items():
            path = tmp_path / name
            path.write_text(text)
            path.chmod(0o755)
            monkeypatch.setattr(repositories_host, name, str(path))
        return lambda: log.read_text().split()

    return make


def failed(pattern, reason):
    return f'{pattern}) echo "E: Failed to fetch $last  {reason}"; echo "E: Download Failed"; exit 100 ;;'


def test_repositories_that_answer_are_no_problem(host):
    asked = host("")
    assert repository_problem(["haproxy"]) == ""
    assert asked() == [
        "http://deb.example.org/debian/dists/bookworm/InRelease",
        "http://deb.example.org/debian/dists/bookworm-updates/InRelease",
        "https://user:secret@site.example.org/old/dists/x/InRelease",
    ]


def test_a_server_that_is_down_is_one_problem_and_is_asked_once(host):
    asked = host(failed("http*", "Could not resolve 'deb.example.org'"))
    assert repository_problem(["haproxy", "keepalived"]) == (
        "the package repository http://deb.example.org/debian/dists/bookworm cannot be reached: Could not resolve "
        "'deb.example.org'; the package repository https://site.example.org/old/dists/x cannot be reached: Could not "
        "resolve 'deb.example.org'. It is needed for haproxy, keepalived; correct the sources or the proxy of apt on "
        "the host, or install this beforehand"
    )
    assert len(asked()) == 2


def test_a_repository_with_a_detached_signature_answers_too(host):
    asked = host(failed("*/old/dists/x/InRelease", "404  Not Found"))
    assert repository_problem(["haproxy"]) == ""
    assert asked()[-1].endswith("/old/dists/x/Release")


def test_a_repository_that_is_not_there_is_a_problem(host):
    host(failed("*/bookworm/*Release", "404  Not Found [IP: 10.0.0.1 80]"))
    found = repository_problem(["haproxy"])
    assert "bookworm cannot be reached: 404  Not Found [IP: 10.0.0.1 80]. It is needed for haproxy" in found
    assert "secret" not in found


def test_a_repository_that_hangs_does_not_hold_the_run(host, monkeypatch):
    monkeypatch.setattr(repositories_host, "DEADLINE", 1)
    host("*bookworm/*) exec sleep 60 ;;")
    begun = time.monotonic()
    assert "bookworm cannot be reached: no answer within 1 s" in repository_problem(["haproxy"])
    assert time.monotonic() - begun < 20


def test_a_host_without_apt_is_not_asked(monkeypatch):
    monkeypatch.setattr(repositories_host, "HELPER", "/nonexistent/apt-helper")
    assert repository_problem(["haproxy"]) == ""


def test_no_login_is_shown():
    assert without_login("Could not reach https://me:pw@x.org/a") == "Could not reach https://x.org/a"
