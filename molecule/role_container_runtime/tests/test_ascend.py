# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's runtime in a real docker. Only its installer is a stand-in."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

INSTALLER = Path(__file__).resolve().parents[1] / "files/ascend-docker-runtime.sh"
HOME = "/usr/local/Ascend/Ascend-Docker-Runtime"
DAEMON_JSON = "/etc/docker/daemon.json"
# The driver would create them; the role checks only that they exist.
NODES = ("/dev/davinci_manager", "/dev/hisi_hdc", "/dev/davinci0")


@pytest.fixture
def ascend(engines, request):
    """docker of a host with an Ascend chip; the fixture restores its files afterwards."""
    engine = engines[request.param, "docker"]
    before = engine.host.check_output("cat %s", DAEMON_JSON)
    for node in NODES:
        engine.host.check_output("ln -sf null %s", node)
    yield engine
    engine.host.run("docker rm -f $(docker ps -aq)")
    engine.host.check_output(
        "rm -rf /usr/local/Ascend /etc/ascend-docker-runtime.d /var/cache/ascend-docker-runtime /srv/ascend "
        "/var/log/ascend-docker-runtime "
        "/run/standin-fails /run/standin-cut-off"
    )
    for node in NODES:
        engine.host.check_output("rm %s", node)
    engine.host.check_output("printf '%%s\\n' %s > %s && systemctl reload docker", before, DAEMON_JSON)


def request_runtime(engine, version="26.0.0", **more):
    """Put the installer on the host, and return the variables of a site that requests it."""
    name = f"Ascend-docker-runtime_{version}_linux-{engine.host.check_output('uname -m')}.run"
    engine.host.check_output("mkdir -p /srv/ascend && printf %%s %s > /srv/ascend/%s", INSTALLER.read_text(), name)
    return {
        "pretended": {"stack": "cann", "count": 1},
        "container_runtime_toolkit": "vendor",
        "container_runtime_ascend_file": {
            "url": f"file:///srv/ascend/{name}",
            "sha256": hashlib.sha256(INSTALLER.read_bytes()).hexdigest(),
        },
        "cann_licence_accepted": True,
        **more,
    }


def runs_with_ascend(engine):
    """Return whether a container starts with the runtime, and runc remains the default of all others."""
    engine.host.check_output("docker run --rm --network none --runtime ascend tiny:1 /bin/busybox true")
    return engine.info()["DefaultRuntime"] == "runc"


@pytest.mark.parametrize("ascend", ["cpu-12"], indirect=True)
def test_the_runtime_is_installed_under_a_running_container(ascend, playbook):
    name = ascend.run("survivor")
    before = ascend.started(name)
    text = ascend.host.check_output("cat %s", DAEMON_JSON)
    preview = playbook(ascend, "--check", "--diff", **request_runtime(ascend))
    assert preview.rc == 0, preview.output
    assert (
        "Would be installed: Ascend Docker Runtime from file:///srv/ascend/Ascend-docker-runtime_26.0.0" in preview.flat
    )
    assert '"runtimes": {' in preview.output
    assert ascend.host.check_output("cat %s", DAEMON_JSON) == text
    assert not ascend.host.file(HOME).exists
    done = playbook(ascend, "-v", **request_runtime(ascend))
    assert done.rc == 0, done.output
    assert "toolkit: 26.0.0" in done.output
    assert ascend.started(name) == before
    assert runs_with_ascend(ascend)
    settings = json.loads(ascend.host.check_output("cat %s", DAEMON_JSON))
    assert settings == {
        **json.loads(text),
        "runtimes": {"ascend": {"path": f"{HOME}/ascend-docker-runtime", "runtimeArgs": []}},
    }
    assert ascend.host.file(DAEMON_JSON).mode == 0o644
    for options in ((), ("--check",)):
        again = playbook(ascend, *options, **request_runtime(ascend))
        assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.long
@pytest.mark.parametrize("ascend", ["cpu-13"], indirect=True)
def test_an_installer_without_licence_or_checksum_is_not_run(ascend, playbook):
    refused = playbook(ascend, **request_runtime(ascend, cann_licence_accepted=False))
    assert refused.rc != 0
    assert "Huawei's licence is not accepted" in refused.flat
    assert refused.changed == 0
    given = request_runtime(ascend)
    given["container_runtime_ascend_file"]["sha256"] = "0" * 64
    wrong = playbook(ascend, **given)
    assert wrong.rc != 0
    assert "cannot be downloaded as container_runtime_ascend_file describes it" in wrong.flat
    assert "and nothing was run: The checksum" in wrong.flat
    given["container_runtime_ascend_file"]["url"] = "http://127.0.0.1:9/Ascend-docker-runtime_1_linux-x86_64.run"
    gone = playbook(ascend, **given)
    assert gone.rc != 0
    assert "and nothing was run: Request failed" in gone.flat
    assert (
        ascend.host.check_output("find /var/cache/ascend-docker-runtime /var/log/ascend-docker-runtime -type f || true")
        == ""
    )
    assert not ascend.host.file(HOME).exists


@pytest.mark.long
@pytest.mark.parametrize("ascend", ["cpu-12"], indirect=True)
def test_an_installer_that_fails_or_is_interrupted_runs_again(ascend, playbook):
    text = ascend.host.check_output("cat %s", DAEMON_JSON)
    ascend.host.check_output("touch /run/standin-fails")
    failed = playbook(ascend, **request_runtime(ascend))
    assert failed.rc != 0
    assert (
        "installer of the Ascend Docker Runtime ended with status 1, and docker is unchanged; its last" in failed.flat
    )
    assert "return non-zero" in failed.flat
    assert ascend.host.check_output("cat %s", DAEMON_JSON) == text
    ascend.host.check_output("rm /run/standin-fails && touch /run/standin-cut-off")
    assert playbook(ascend, **request_runtime(ascend)).rc != 0
    assert ascend.host.file(f"{HOME}/ascend-docker-runtime").exists
    ascend.host.check_output("rm /run/standin-cut-off")
    mended = playbook(ascend, **request_runtime(ascend))
    assert mended.rc == 0, mended.output
    assert runs_with_ascend(ascend)
    assert playbook(ascend, **request_runtime(ascend)).changed == 0


@pytest.mark.long
@pytest.mark.parametrize("ascend", ["cpu-13"], indirect=True)
def test_the_policy_decides_on_another_version(ascend, playbook):
    assert playbook(ascend, **request_runtime(ascend)).rc == 0
    name = ascend.run("survivor", "--runtime", "ascend")
    before = ascend.started(name)
    kept = playbook(ascend, **request_runtime(ascend, "26.1.0"))
    assert (kept.rc, kept.changed) == (0, 0), kept.output
    assert "the Ascend Docker Runtime is 26.0.0, and container_runtime_ascend_file is 26.1.0; it works and" in kept.flat
    done = playbook(ascend, "-v", **request_runtime(ascend, "26.1.0", container_runtime_policy="install"))
    assert done.rc == 0, done.output
    assert "toolkit: 26.1.0" in done.output
    assert ascend.started(name) == before
    lost = ascend.host.check_output("rm %s/ascend-docker-runtime && echo lost", HOME)
    assert lost == "lost"
    again = playbook(ascend, **request_runtime(ascend, "26.1.0"))
    assert again.rc == 0, again.output
    assert runs_with_ascend(ascend)
