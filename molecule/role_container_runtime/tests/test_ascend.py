# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's runtime in a real docker: its installer is a stand-in, what docker does with the runtime is not."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

INSTALLER = Path(__file__).resolve().parents[1] / "files/ascend-docker-runtime.sh"
HOME = "/usr/local/Ascend/Ascend-Docker-Runtime"
DAEMON_JSON = "/etc/docker/daemon.json"
# As the driver would have brought them; that they are there is all that is asked for.
NODES = ("/dev/davinci_manager", "/dev/hisi_hdc", "/dev/davinci0")


@pytest.fixture
def ascend(engines, request):
    """docker of a host with a chip of Ascend's, and afterwards as it was."""
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


def wish(engine, version="26.0.0", **more):
    """Put the installer where the host can have it, and return what a site says that wants it."""
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


def runs_with_it(engine):
    """Return whether a container starts with the runtime, and nothing else does unless it is told to."""
    engine.host.check_output("docker run --rm --network none --runtime ascend tiny:1 /bin/busybox true")
    return engine.info()["DefaultRuntime"] == "runc"


@pytest.mark.parametrize("ascend", ["cpu-12"], indirect=True)
def test_the_runtime_comes_under_a_running_container(ascend, playbook):
    name = ascend.run("survivor")
    before = ascend.started(name)
    text = ascend.host.check_output("cat %s", DAEMON_JSON)
    told = playbook(ascend, "--check", "--diff", **wish(ascend))
    assert told.rc == 0, told.output
    assert "Would be installed: Ascend Docker Runtime from file:///srv/ascend/Ascend-docker-runtime_26.0.0" in told.flat
    assert '"runtimes": {' in told.output
    assert ascend.host.check_output("cat %s", DAEMON_JSON) == text
    assert not ascend.host.file(HOME).exists
    done = playbook(ascend, "-v", **wish(ascend))
    assert done.rc == 0, done.output
    assert "toolkit: 26.0.0" in done.output
    assert ascend.started(name) == before
    assert runs_with_it(ascend)
    settings = json.loads(ascend.host.check_output("cat %s", DAEMON_JSON))
    assert settings == {
        **json.loads(text),
        "runtimes": {"ascend": {"path": f"{HOME}/ascend-docker-runtime", "runtimeArgs": []}},
    }
    assert ascend.host.file(DAEMON_JSON).mode == 0o644
    for options in ((), ("--check",)):
        again = playbook(ascend, *options, **wish(ascend))
        assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.parametrize("ascend", ["cpu-13"], indirect=True)
def test_what_is_not_accepted_or_not_the_file_that_was_named_is_not_run(ascend, playbook):
    refused = playbook(ascend, **wish(ascend, cann_licence_accepted=False))
    assert refused.rc != 0
    assert "Huawei's licence is not accepted" in refused.flat
    assert refused.changed == 0
    given = wish(ascend)
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
def test_an_installer_that_fails_or_is_cut_off_is_run_again(ascend, playbook):
    text = ascend.host.check_output("cat %s", DAEMON_JSON)
    ascend.host.check_output("touch /run/standin-fails")
    failed = playbook(ascend, **wish(ascend))
    assert failed.rc != 0
    assert (
        "installer of the Ascend Docker Runtime ended with status 1, and docker is unchanged; its last" in failed.flat
    )
    assert "return non-zero" in failed.flat
    assert ascend.host.check_output("cat %s", DAEMON_JSON) == text
    ascend.host.check_output("rm /run/standin-fails && touch /run/standin-cut-off")
    assert playbook(ascend, **wish(ascend)).rc != 0
    assert ascend.host.file(f"{HOME}/ascend-docker-runtime").exists
    ascend.host.check_output("rm /run/standin-cut-off")
    mended = playbook(ascend, **wish(ascend))
    assert mended.rc == 0, mended.output
    assert runs_with_it(ascend)
    assert playbook(ascend, **wish(ascend)).changed == 0


@pytest.mark.long
@pytest.mark.parametrize("ascend", ["cpu-13"], indirect=True)
def test_another_version_stays_or_comes_as_the_policy_says(ascend, playbook):
    assert playbook(ascend, **wish(ascend)).rc == 0
    name = ascend.run("survivor", "--runtime", "ascend")
    before = ascend.started(name)
    kept = playbook(ascend, **wish(ascend, "26.1.0"))
    assert (kept.rc, kept.changed) == (0, 0), kept.output
    assert "the Ascend Docker Runtime is 26.0.0, and container_runtime_ascend_file is 26.1.0; it works and" in kept.flat
    done = playbook(ascend, "-v", **wish(ascend, "26.1.0", container_runtime_policy="install"))
    assert done.rc == 0, done.output
    assert "toolkit: 26.1.0" in done.output
    assert ascend.started(name) == before
    lost = ascend.host.check_output("rm %s/ascend-docker-runtime && echo lost", HOME)
    assert lost == "lost"
    again = playbook(ascend, **wish(ascend, "26.1.0"))
    assert again.rc == 0, again.output
    assert runs_with_it(ascend)
