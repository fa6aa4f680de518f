# SPDX-License-Identifier: GPL-3.0-or-later
"""Real docker and podman of Debian 12 and 13: what the role changes, and what it leaves unchanged."""

from __future__ import annotations

import json

import pytest

# A device that containers do not get by default.
DEVICE = "/dev/fuse"

MIRRORS = {
    "container_runtime_registry_mirrors": ["other:5000"],
    "container_runtime_insecure_registries": ["mirror:5000"],
}
# NVIDIA's chips, as the role accelerator would report them. Their toolkit is not available in the lab.
CUDA = {"pretended": {"stack": "cuda", "count": 1}, "container_runtime_toolkit": "none"}
SPECIFICATION = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": DEVICE}]}}],
}
# In the file of docker that prepare.yml writes.
PASSWORD = "opensesame"
VERSIONS = {
    ("cpu-12", "docker"): "20.10",
    ("cpu-13", "docker"): "26.1",
    ("cpu-12", "podman"): "4.3",
    ("cpu-13", "podman"): "5.4",
}


@pytest.mark.parametrize("which", VERSIONS, ids="-".join)
def test_the_version_is_the_one_that_plans_assume(engines, which):
    engine = engines[which]
    info = engine.info()
    version = info["ServerVersion"] if engine.name == "docker" else info["version"]["Version"]
    assert version.startswith(VERSIONS[which])


def test_docker_runs_now_and_at_boot_and_is_held(engines):
    for where in ("cpu-12", "cpu-13"):
        host = engines[where, "docker"].host
        service = host.service("docker")
        assert service.is_running, host.check_output("journalctl -u docker --no-pager -n 30")
        assert service.is_enabled
        assert "docker.io" in host.check_output("apt-mark showhold").split()


def test_docker_has_read_its_file_and_the_site_keeps_its_settings(engines):
    for where in ("cpu-12", "cpu-13"):
        engine = engines[where, "docker"]
        registries = engine.info()["RegistryConfig"]
        assert registries["Mirrors"] == ["http://mirror:5000/"]
        assert registries["IndexConfigs"]["mirror:5000"]["Secure"] is False
        assert json.loads(engine.host.file("/etc/docker/daemon.json").content_string) == {
            "log-opts": {"max-size": "9m", "tag": f"http://reader:{PASSWORD}@logs.example"},
            "features": {"buildkit": True},
            "registry-mirrors": ["http://mirror:5000"],
            "insecure-registries": ["mirror:5000"],
        }


def test_podman_knows_the_mirror(engines):
    for where in ("cpu-12", "cpu-13"):
        registries = engines[where, "podman"].info()["registries"]
        assert registries["docker.io"]["Mirrors"][0]["Location"] == "mirror:5000"
        assert registries["mirror:5000"]["Insecure"] is True


def test_the_role_vllm_finds_what_was_installed(engine, playbook):
    found = engine.host.check_output("%s --version", engine.name)
    assert engine.name in found.lower()
    fact = playbook(engine, "-v")
    assert fact.rc == 0, fact.output
    assert f"engine: {engine.name}" in fact.output
    is_warned = "set vllm_engine: podman" in fact.flat
    assert is_warned is (engine.name == "podman")


def test_a_container_and_its_device_survive_a_second_run_and_a_daemon_reload(engine, playbook):
    name = engine.run("survivor", "--device", DEVICE)
    engine.run("without")
    before = engine.started(name)
    assert engine.opens(name, DEVICE)
    assert not engine.opens("without", DEVICE)
    done = playbook(engine)
    assert (done.rc, done.changed) == (0, 0), done.output
    engine.host.check_output("systemctl daemon-reload")
    assert engine.started(name) == before
    assert engine.opens(name, DEVICE)


def test_check_mode_announces_a_change_with_its_lines_and_makes_none(engine, playbook):
    path = "/etc/docker/daemon.json" if engine.name == "docker" else "/etc/containers/registries.conf.d"
    before = engine.host.check_output("find %s -type f | xargs sha256sum", path)
    done = playbook(engine, "--check", "--diff", **MIRRORS)
    assert done.rc == 0, done.output
    assert done.changed > 0
    assert "+" in done.output
    assert "other:5000" in done.output
    assert engine.host.check_output("find %s -type f | xargs sha256sum", path) == before


@pytest.mark.long
def test_a_changed_mirror_reaches_the_engine_under_running_containers(engine, playbook):
    name = engine.run("survivor")
    before = engine.started(name)
    daemon = engine.host.check_output("systemctl show -P MainPID docker.service")
    done = playbook(engine, **MIRRORS)
    assert done.rc == 0, done.output
    assert done.changed > 0
    info = engine.info()
    if engine.name == "docker":
        assert info["RegistryConfig"]["Mirrors"] == ["https://other:5000/"]
    else:
        assert info["registries"]["docker.io"]["Mirrors"][0]["Location"] == "other:5000"
    assert engine.started(name) == before
    assert engine.host.check_output("systemctl show -P MainPID docker.service") == daemon
    again = playbook(engine, **MIRRORS)
    assert (again.rc, again.changed) == (0, 0), again.output
    back = playbook(engine, "-vvv", "--diff")
    assert back.rc == 0, back.output
    assert "mirror:5000" in back.output
    assert PASSWORD not in back.output


def test_running_containers_prevent_another_storage_directory(engine, playbook):
    name = engine.run("survivor")
    before = engine.started(name)
    root = engine.info()["DockerRootDir"] if engine.name == "docker" else engine.info()["store"]["graphRoot"]
    done = playbook(engine, container_runtime_storage=f"{root}/moved")
    assert done.rc != 0
    assert "survivor" in done.flat
    assert "stop them first" in done.flat
    assert done.changed == 0
    assert engine.started(name) == before
    assert f"{root}/moved" not in engine.host.check_output(
        "cat /etc/docker/daemon.json /etc/containers/storage.conf || true"
    )


def test_a_file_that_docker_cannot_read_stays_unchanged(engines, playbook):
    engine = engines["cpu-13", "docker"]
    good = engine.host.check_output("cat /etc/docker/daemon.json")
    engine.host.check_output("echo '{\"debug\": tru}' > /etc/docker/daemon.json")
    done = playbook(engine)
    assert done.rc != 0
    assert "/etc/docker/daemon.json is not valid JSON" in done.flat
    assert engine.host.check_output("cat /etc/docker/daemon.json") == '{"debug": tru}'
    engine.host.check_output("printf '%%s\\n' %s > /etc/docker/daemon.json", good)
    assert playbook(engine).changed == 0


@pytest.mark.long
def test_an_interrupted_installation_is_completed(engines, playbook):
    engine = engines["cpu-12", "docker"]
    engine.host.check_output("cd /tmp && apt-get -qq download busybox-static && dpkg --unpack busybox-static_*.deb >&2")
    done = playbook(engine)
    assert done.rc == 0, done.output
    # dpkg completes what it can, apt the rest.
    assert done.changed == 2
    state = engine.host.check_output("dpkg-query -W -f '${db:Status-Status}' busybox-static")
    assert state == "installed"
    assert playbook(engine).changed == 0


def test_a_disabled_docker_is_started(engines, playbook):
    engine = engines["cpu-12", "docker"]
    engine.host.check_output("systemctl disable --now docker.socket docker.service >&2")
    done = playbook(engine)
    assert done.rc == 0, done.output
    assert engine.host.service("docker").is_running
    assert engine.host.service("docker").is_enabled


def test_devices_of_cdi_reach_containers_and_survive_a_daemon_reload(engines, playbook):
    engine = engines["cpu-13", "docker"]
    name = engine.run("survivor")
    done = playbook(engine, **CUDA)
    assert done.rc != 0
    assert "docker must be restarted (features.cdi), which stops its containers: survivor" in done.flat
    engine.host.check_output("docker rm -f %s", name)
    engine.host.check_output("mkdir -p /etc/cdi && echo %s > /etc/cdi/lab.json", json.dumps(SPECIFICATION))
    done = playbook(engine, **CUDA)
    assert done.rc == 0, done.output
    assert engine.info()["CDISpecDirs"]
    assert playbook(engine, **CUDA).changed == 0
    engine.run(name, "--device", "nvidia.com/gpu=0")
    assert engine.opens(name, "/dev/nvidia0")
    engine.host.check_output("systemctl daemon-reload")
    assert engine.opens(name, "/dev/nvidia0")
    more = playbook(engine, **{**CUDA, "pretended": {"stack": "cuda", "count": 2}})
    assert more.rc != 0
    assert (
        "NVIDIA's CDI specification lists 1 of 2 chips; run systemctl restart nvidia-cdi-refresh.service" in more.flat
    )
    engine.host.check_output("docker rm -f %s && rm /etc/cdi/lab.json", name)


def test_a_docker_without_cdi_manages_cgroups_and_the_error_names_the_missing_package(engines, playbook):
    engine = engines["cpu-12", "docker"]
    done = playbook(engine, **CUDA)
    assert done.rc != 0
    assert "NVIDIA's hook, is missing; install the package nvidia-container-toolkit" in done.flat
    assert "the driver is not loaded" in done.flat
    info = engine.info()
    assert info["CgroupDriver"] == "cgroupfs"
    assert "nvidia" in info["Runtimes"]


@pytest.mark.long
def test_podman_before_quadlet_supports_cdi(engines, playbook):
    engine = engines["cpu-12", "podman"]
    engine.host.check_output("mkdir -p /etc/cdi && echo %s > /etc/cdi/lab.json", json.dumps(SPECIFICATION))
    done = playbook(engine, "-v", **CUDA)
    assert done.rc == 0, done.output
    name = engine.run("survivor", "--device", "nvidia.com/gpu=0")
    engine.host.check_output("systemctl daemon-reload")
    assert engine.opens(name, "/dev/nvidia0")
    engine.host.check_output("podman rm -f %s && rm /etc/cdi/lab.json", name)


@pytest.fixture
def vendor(engines):
    """The variables of a site with its own mirror of Docker's repository, which it signs itself."""
    host = engines["cpu-12", "docker"].host
    host.check_output("systemctl is-active vendors")
    return {
        "container_runtime_source": "mirror",
        "container_runtime_policy": "install",
        "container_runtime_mirror_url": "http://127.0.0.1:8099",
        "container_runtime_mirror_fingerprints": [host.check_output("cat /srv/vendors/fingerprint")],
    }


def installed(host, *names):
    """Return which of these packages are installed."""
    form = "${Package} ${db:Status-Status}\n"
    lines = [host.run("dpkg-query -W -f %s %s", form, name).stdout.split() for name in names]
    return [line[0] for line in lines if line[1:] == ["installed"]]


DOCKER_PACKAGES = ("docker.io", "containerd", "runc", "docker-ce", "docker-ce-cli", "containerd.io")


def test_an_engine_of_another_source_stays_by_default(engines, playbook, vendor):
    done = playbook(engines["cpu-12", "docker"], **{**vendor, "container_runtime_policy": "retain"})
    assert (done.rc, done.changed) == (0, 0), done.output
    assert "it works and stays unchanged (container_runtime_policy: retain)" in done.flat


@pytest.mark.long
def test_an_untrusted_or_unreachable_repository_leaves_the_engine_unchanged(engines, playbook, vendor):
    engine = engines["cpu-12", "docker"]
    before = installed(engine.host, *DOCKER_PACKAGES)
    daemon = engine.host.check_output("systemctl show -P MainPID docker.service")
    wrong = playbook(engine, **{**vendor, "container_runtime_mirror_fingerprints": []})
    assert wrong.rc != 0
    assert "expected 9DC858229FC7DD38854AE2D88D81803C0EBFCD88; nothing was installed" in wrong.flat
    gone = playbook(engine, **{**vendor, "container_runtime_mirror_url": "http://127.0.0.1:8098"})
    assert gone.rc != 0
    assert "the key at http://127.0.0.1:8098/download.docker.com/linux/debian/gpg cannot be downloaded" in gone.flat
    engine.host.check_output(
        "cd /srv/vendors && mkdir -p empty && cp --parents download.docker.com/linux/debian/gpg empty"
    )
    empty = playbook(engine, **{**vendor, "container_runtime_mirror_url": "http://127.0.0.1:8099/empty"})
    assert empty.rc != 0
    assert "packages cannot be read, and nothing was installed: " in empty.flat
    assert "http://127.0.0.1:8099/empty/download.docker.com/linux/debian bookworm" in empty.flat
    engine.run("victim")
    running = playbook(engine, **vendor)
    assert running.rc != 0
    assert "must be removed before docker-ce is installed, and containers run: victim; stop them first" in running.flat
    assert installed(engine.host, *DOCKER_PACKAGES) == before
    assert engine.host.check_output("systemctl show -P MainPID docker.service") == daemon
    assert not engine.host.file("/etc/apt/sources.list.d/docker.sources").exists
    engine.host.check_output("docker rm -f victim")


@pytest.mark.long
def test_an_engine_of_another_source_is_replaced_in_one_step(engines, playbook, vendor):
    engine = engines["cpu-12", "docker"]
    preview = playbook(engine, "--check", **vendor)
    assert preview.rc == 0, preview.output
    assert "Would be installed: docker-ce, docker-ce-cli, containerd.io" in preview.flat
    assert "docker.io" in installed(engine.host, *DOCKER_PACKAGES)
    done = playbook(engine, **vendor)
    assert done.rc == 0, done.output
    assert installed(engine.host, *DOCKER_PACKAGES) == ["docker-ce", "docker-ce-cli", "containerd.io"]
    assert "docker-ce" in engine.host.check_output("apt-mark showhold").split()
    assert engine.info()["RegistryConfig"]["Mirrors"] == ["http://mirror:5000/"]
    again = playbook(engine, **vendor)
    assert (again.rc, again.changed) == (0, 0), again.output


# Last, because the images are not moved.


@pytest.mark.long
@pytest.mark.parametrize("where", ["cpu-12", "cpu-13"])
def test_with_permission_docker_moves_its_storage_under_running_containers(engines, playbook, where):
    engine = engines[where, "docker"]
    engine.run("victim")
    request = {"container_runtime_storage": "/var/lib/docker/moved", "container_runtime_restart_allowed": True}
    done = playbook(engine, **request)
    assert done.rc == 0, done.output
    assert engine.info()["DockerRootDir"] == "/var/lib/docker/moved"
    assert "images of /var/lib/docker stay there" in done.flat
    again = playbook(engine, **request)
    assert (again.rc, again.changed) == (0, 0), again.output


@pytest.mark.long
@pytest.mark.parametrize("where", ["cpu-12", "cpu-13"])
def test_podman_moves_its_storage(engines, playbook, where):
    engine = engines[where, "podman"]
    request = {"container_runtime_storage": "/var/lib/containers/moved"}
    done = playbook(engine, **request)
    assert done.rc == 0, done.output
    assert engine.info()["store"]["graphRoot"] == "/var/lib/containers/moved"
    again = playbook(engine, **request)
    assert (again.rc, again.changed) == (0, 0), again.output
