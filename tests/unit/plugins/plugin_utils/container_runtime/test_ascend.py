# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's runtime for docker: which file is run with which words, what docker's file gets, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.container_runtime.model import Request

from tests.fakes.container_runtimes import DISTRO_DOCKER, FRESH, decide, docker_file, docker_host, podman_host

SHA256 = "0123456789abcdef" * 4
NAME = "Ascend-docker-runtime_26.0.0_linux-aarch64.run"
FILE = {"url": f"https://files.example/ascend/{NAME}", "sha256": SHA256}
RUNTIMES = {
    "ascend": {"path": "/usr/local/Ascend/Ascend-Docker-Runtime/ascend-docker-runtime", "runtimeArgs": []},
}
REQUEST = replace(DISTRO_DOCKER, stack="cann", toolkit="vendor", ascend_file=FILE, ascend_licence_accepted=True)
ARM = replace(FRESH, architecture="aarch64")
INSTALLER = {
    "name": "Ascend Docker Runtime",
    "url": FILE["url"],
    "path": f"/var/cache/ascend-docker-runtime/{NAME}",
    "sha256": SHA256,
    "argv": [
        f"/var/cache/ascend-docker-runtime/{NAME}",
        "--install",
        "--config-file-path=/var/cache/ascend-docker-runtime/daemon.json",
    ],
    "why": "version 26.0.0 is requested",
    "log": "/var/log/ascend-docker-runtime/installer.log",
    "stdin": "Y",
    "scratch": "/var/cache/ascend-docker-runtime/daemon.json",
}


def arm_host(**more):
    """Return a host of Ascend's whose docker matches the request except for the runtime."""
    state = {key: more.pop(key) for key in ("runtimes", "containers") if key in more}
    return replace(docker_host(**state), architecture="aarch64", **more)


def test_plain_devices_unless_the_runtime_is_asked_for():
    assert decide(replace(REQUEST, toolkit="auto"), host=ARM) == decide(DISTRO_DOCKER, host=ARM)


def test_a_fresh_host_runs_the_installer_and_the_role_alone_writes_dockers_file():
    found = decide(REQUEST, "Ubuntu_24", ARM)
    assert found.installers == [INSTALLER]
    assert (found.files, docker_file(found)) == ([], {"runtimes": RUNTIMES})
    assert (found.packages, found.toolkit, found.restart) == (["docker.io"], [], [])


def test_a_docker_that_runs_takes_the_runtime_up_by_reading_its_file_again():
    found = decide(REQUEST, "Debian_13", arm_host(containers=["vllm-chat"]))
    assert (found.restart, found.reload, found.installs) == ([], ["runtimes.ascend"], False)
    assert found.changes


def test_a_finished_host_needs_nothing_and_keeps_what_the_site_has_beside_it():
    settings = {"runtimes": {**RUNTIMES, "other": {"path": "other"}}}
    host = arm_host(ascend="26.0.0", runtimes=["ascend", "runc"], daemon_json=settings)
    assert not decide(REQUEST, "Debian_13", host).changes
    # The file of the installer may be gone by then, and so may the acceptance.
    assert not decide(replace(REQUEST, ascend_file={}, ascend_licence_accepted=False), "Debian_13", host).changes
    assert not decide(replace(REQUEST, source="none"), "Debian_13", host).changes


def test_an_entry_of_the_installers_own_is_brought_to_ours():
    settings = {"runtimes": {"ascend": {"path": "/opt/old/ascend-docker-runtime", "runtimeArgs": []}}}
    found = decide(REQUEST, "Debian_13", arm_host(ascend="26.0.0", daemon_json=settings))
    assert docker_file(found) == {"runtimes": RUNTIMES}


def test_another_version_goes_by_the_policy():
    host = arm_host(ascend="6.0.0", runtimes=["ascend", "runc"], daemon_json={"runtimes": RUNTIMES})
    kept = decide(REQUEST, "Debian_13", host)
    assert not kept.changes
    assert kept.notes == [
        "the Ascend Docker Runtime is 6.0.0, and container_runtime_ascend_file is 26.0.0; it works and stays unchanged "
        "(container_runtime_policy: retain)"
    ]
    replaced = decide(replace(REQUEST, policy="install"), "Debian_13", host)
    assert (replaced.installers, replaced.restart) == ([INSTALLER], [])
    with pytest.raises(RuntimePlanError, match=r"is 6.0.0, and .* is 26.0.0, and container_runtime_policy is halt"):
        decide(replace(REQUEST, policy="halt"), "Debian_13", host)


@pytest.mark.parametrize(
    "url",
    [
        f"http://mirror:8080/{NAME}",
        f"file:///srv/{NAME}",
        f"https://files.example/{NAME}?token=1",
        f"http://mirror/{NAME.replace('_26', '_v26')}",
    ],
)
def test_an_address_is_one_of_three_kinds(url):
    installer = decide(replace(REQUEST, ascend_file={**FILE, "url": url}), "Debian_13", ARM).installers[0]
    assert installer["url"] == url
    assert "?" not in installer["path"]


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            {"ascend_licence_accepted": False},
            "licence is not accepted, .*; read it at .* and set cann_licence_accepted",
        ),
        ({"ascend_file": {}}, r"container_runtime_ascend_file is empty, and .*_linux-aarch64\.run, or set"),
        ({"ascend_file": {"url": "", "sha256": None}}, "container_runtime_ascend_file is empty"),
        ({"ascend_file": {"url": FILE["url"]}}, r"ascend_file.sha256: found '', expected 64 hexadecimal digits"),
        ({"ascend_file": {**FILE, "sha256": "sha256:" + SHA256}}, "sha256: found 'sha256:0123.*', expected 64"),
        ({"ascend_file": {"sha256": SHA256}}, "ascend_file.url: found '', expected an address with http, https or"),
        ({"ascend_file": {**FILE, "url": f"ftp://m/{NAME}"}}, "ascend_file.url: found 'ftp://"),
        ({"ascend_file": {**FILE, "url": f"/srv/{NAME}"}}, "ascend_file.url: found '/srv/"),
        (
            {"ascend_file": {**FILE, "url": FILE["url"].replace("aarch64", "x86_64")}},
            r"found 'Ascend-docker-runtime_26\.0\.0_linux-x86_64\.run', expected .*_linux-aarch64\.run: the installer",
        ),
        ({"ascend_file": {**FILE, "url": "https://m/runtime.run"}}, "found 'runtime.run', expected Ascend-docker-run"),
        ({"source": "none"}, "the Ascend Docker Runtime is not on this host, and container_runtime_source is none"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(requested, message):
    with pytest.raises(RuntimePlanError, match=message):
        decide(replace(REQUEST, **requested), "Debian_13", arm_host())


def test_an_engine_that_has_no_use_for_it_is_named():
    with pytest.raises(RuntimePlanError, match="is for docker only; with podman set container_runtime_toolkit: auto"):
        decide(replace(REQUEST, engine="podman"), "Debian_13", podman_host())
    with pytest.raises(RuntimePlanError, match=r"needs docker 18\.09 or later, and this is 18\.6"):
        decide(REQUEST, "Debian_13", replace(docker_host("18.06.3"), architecture="aarch64"))


def test_without_the_word_none_of_it_is_looked_at():
    broken = replace(REQUEST, toolkit="none", ascend_file={"url": "nonsense"})
    assert decide(broken, "Debian_13", arm_host()).installers == []
    assert decide(Request(ascend_file={"url": "nonsense"})).installers == []
