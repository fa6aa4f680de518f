# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
import socket

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.wheelhouse import run_module

PLAIN = {"devices": [], "groups": [], "mounts": []}
DOCKER = {"ServerVersion": "20.10.24+dfsg1"}
PODMAN = {"host": {"cgroupVersion": "v2"}, "version": {"Version": "4.3.1"}}


@pytest.fixture
def commands(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.fixture
def config(tmp_path):
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc"


def look(config, containers=None, **options):
    ports = dict.fromkeys(containers or {}, 9)
    return run_module(
        "vllm_preflight", **{"ports": ports, "config_dir": str(config), "containers": containers or {}, **options}
    )


def test_no_engine_is_looked_for_without_containers(config, commands):
    assert look(config)["container"] == {}


def test_what_docker_is_and_can(config, commands):
    FakeEngine(commands, info=DOCKER)
    found = look(config, {"chat": PLAIN}, user="root")["container"]
    assert (found["engine"], found["version"], found["command"]) == (
        "docker",
        "20.10.24+dfsg1",
        str(commands / "docker"),
    )
    assert (found["uid"], found["gid"], found["quadlet"], found["init"]) == (0, 0, False, False)
    assert isinstance(found["limits"], bool)


def test_a_user_that_is_not_there_yet_has_no_number(config, commands):
    FakeEngine(commands, info=DOCKER)
    assert look(config, {"chat": PLAIN}, user="nobody-has-this-name")["container"]["uid"] is None


def test_podman_under_dockers_name_is_podman(config, commands):
    FakeEngine(commands, info=DOCKER, version_line="podman version 4.3.1")
    FakeEngine(commands, "podman", info=PODMAN)
    assert look(config, {"chat": PLAIN})["container"]["engine"] == "podman"


def test_a_docker_that_is_down_says_so(config, commands):
    FakeEngine(commands, info={"ServerErrors": ["Cannot connect to the Docker daemon"]})
    FakeEngine(commands, "podman", info=PODMAN)
    message = look(config, {"chat": PLAIN})["msg"]
    assert "docker is installed but does not answer (Cannot connect to the Docker daemon); start it" in message


def test_a_host_without_an_engine_is_told_what_to_install(config, commands):
    message = look(config, {"chat": PLAIN})["msg"]
    assert message.startswith(f"{os.uname().nodename}: the runtime 'container' needs docker or podman")
    assert "install the package docker.io" in message


def test_all_that_is_missing_is_said_at_once(config, commands):
    FakeEngine(commands, info=DOCKER)
    container = {
        "devices": ["/dev/davinci99"],
        "groups": ["nobody-has-this-group"],
        "mounts": ["/usr/local/dcmi99:/x:ro", "/srv/models/new:/srv/models/new:ro"],
    }
    message = look(config, {"chat": container, "more": container}, own_paths=["/srv/models"])["msg"]
    assert "/dev/davinci99 is missing, but needed by chat, more: it comes with Huawei's driver" in message
    assert "/usr/local/dcmi99 is missing" in message and "/srv/models" not in message
    assert "the group nobody-has-this-group, which may open the device nodes, is missing" in message


def test_nvidia_chips_without_a_way_to_give_them(config, commands):
    FakeEngine(commands, info=DOCKER)
    container = {**PLAIN, "devices": ["nvidia.com/gpu=all"]}
    assert "install the package nvidia-container-toolkit" in look(config, {"chat": container})["msg"]
    (commands / "nvidia-container-runtime-hook").write_text("")
    (commands / "nvidia-container-runtime-hook").chmod(0o755)
    assert look(config, {"chat": container})["container"]["gpus"] == "flag"


def test_the_numbers_of_groups_are_the_hosts(config, commands):
    FakeEngine(commands, info=DOCKER)
    assert look(config, {"chat": {**PLAIN, "groups": ["root"]}})["container"]["gids"] == {"root": 0}


def test_an_instance_that_goes_into_a_container_is_named(config, commands):
    FakeEngine(commands, info=DOCKER)
    for name in ("chat", "old"):
        (config / f"{name}.yaml").write_text("port: 1\n")
    found = look(config, {"chat": PLAIN}, ports={"chat": 9, "new": 10, "old": 11})
    assert found["installed"] == ["chat", "old"]
    assert found["units"] == {"chat": "template", "old": "template"}
    assert found["switched"] == ["chat"]


def test_a_user_with_another_home_or_shell_is_not_the_requested_one(config, commands):
    me = pwd.getpwuid(os.geteuid())
    own = {"user": me.pw_name, "home": me.pw_dir, "shell": me.pw_shell}
    assert look(config, **own)["has_user"]
    for change in ({"home": "/elsewhere"}, {"shell": "/bin/elsewhere"}, {"user": "nobody-has-this-name"}):
        assert not look(config, **{**own, **change})["has_user"]


def test_encodings_that_no_library_was_asked_about_are_not_accepted(config, commands, tmp_path):
    use = {
        "directory": str(tmp_path),
        "release": "0.32.0",
        "python": "/nowhere",
        "image": "",
        "user": "",
        "instances": [],
    }
    assert not look(config, encodings=[use])["encodings_accepted"]
    assert look(config)["encodings_accepted"]


def test_a_port_of_somebody_else_names_the_process(config, commands):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = look(config, ports={"chat": port})["msg"]
    assert message.startswith(f"port {port} of vllm_instances.chat is in use by process {os.getpid()} (")


@pytest.mark.skipif(not os.path.exists("/usr/lib/apt/apt-helper"), reason="needs apt")
def test_a_missing_library_and_a_silent_repository_are_one_error(config, commands, monkeypatch, tmp_path):
    (tmp_path / "sources.list").write_text("deb http://127.0.0.1:1/debian stable main\n")
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::sourcelist "{tmp_path}/sources.list"; Dir::Etc::sourceparts "-";\n')
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    message = look(config, libraries=["libmissing.so.9"])["msg"]
    assert "the package repository http://127.0.0.1:1/debian/dists/stable cannot be reached: " in message
    assert "It is needed for libmissing.so.9; " in message
    # Where nothing is missing, a host without a way to its repositories is fine.
    assert not look(config)["changed"]


def test_what_cannot_be_compiled_yet_is_reported_as_packages(config, commands, monkeypatch, tmp_path):
    python = tmp_path / "python3.12"
    python.write_text(f"#!/bin/sh\necho {tmp_path}/include\n")
    python.chmod(0o755)
    commands.mkdir(exist_ok=True)
    for name in ("gcc", "apt-get"):
        (commands / name).write_text("#!/bin/sh\n")
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(commands))
    (tmp_path / "include").mkdir()
    found = look(config, compilers={str(python): ["cc", "Python.h"]})
    # apt has no headers of a Python that is not the system's.
    assert found["failed"]
    assert "this host lacks Python's headers (Python.h); install the packages python3.12-dev" in found["msg"]
    (tmp_path / "include/Python.h").write_text("")
    assert look(config, compilers={str(python): ["cc", "Python.h"]})["missing_packages"] == []


def test_a_cache_directory_without_room_is_a_warning(config, tmp_path):
    # /proc has no free block.
    assert "/proc: its file system has 0 MB free" in str(look(config, cache_dir="/proc")["warnings"])


def test_an_address_that_the_host_does_not_have(config, commands):
    message = look(config, listens={"vllm_instances.chat.host": "192.0.2.1"})["msg"]
    assert ": vllm_instances.chat.host: found '192.0.2.1', expected an address of this host (" in message
