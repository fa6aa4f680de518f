# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a host, from the answers of its commands, and what its engine is told to be good for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime import check_host as checks
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime import host as host_module
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    EngineState,
    HostState,
    RuntimePlanError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.host import read_host

DOCKER_INFO = {
    "ServerVersion": "26.1.5+dfsg1",
    "DockerRootDir": "/var/lib/docker",
    "CgroupDriver": "systemd",
    "CDISpecDirs": [],
    "Runtimes": {"runc": {}, "io.containerd.runc.v2": {}},
    "RegistryConfig": {
        "Mirrors": ["http://mirror:5000/"],
        "IndexConfigs": {"docker.io": {"Secure": True}, "mirror:5000": {"Secure": False}},
    },
}
PODMAN_INFO = {
    "host": {"cgroupVersion": "v2"},
    "version": {"Version": "5.4.2"},
    "store": {"graphRoot": "/var/lib/containers/storage"},
}
ANSWERS = {
    "docker --version": "Docker version 26.1.5+dfsg1, build a72d7cd",
    "docker info": json.dumps(DOCKER_INFO),
    "docker ps": "vllm-chat\nregistry\n",
    "podman info": json.dumps(PODMAN_INFO),
    "podman ps": "",
    "systemctl show": "{ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// --data-root=/x $O ; pid=1 }",
    "dpkg-query --show": (
        "docker.io 26.1.5+dfsg1-9 hold installed\ncontainerd 1.7 install half-configured\n"
        "podman 5.4.2 deinstall config-files\n"
    ),
    "rpm --query": "docker-ce 28.5.1-1.el9\npackage runc is not installed\n",
}


def answers(change=None, absent=()):
    """Return the two functions that a host is read with."""
    table = {**ANSWERS, **(change or {})}

    def run(words):
        key = f"{words[0].rpartition('/')[2]} {words[1]}"
        if key == "dpkg-query --show" and "db:Status-Want" not in words[2]:
            return 0, "containerd half-configured\nbash installed\nzlib unpacked\n", ""
        answer = table.get(key)
        return (1, "", "no answer") if answer is None else (0, answer, "")

    return run, lambda name: None if name in absent else f"/usr/bin/{name}"


def test_a_host_of_debian():
    host = read_host("deb", *answers())
    assert host.engines["docker"] == EngineState(
        "docker",
        "/usr/bin/docker",
        "26.1.5+dfsg1",
        "exit status 0",
        containers=["registry", "vllm-chat"],
        root="/var/lib/docker",
        mirrors=["http://mirror:5000/"],
        insecure=["mirror:5000"],
        cgroup_driver="systemd",
        runtimes=["io.containerd.runc.v2", "runc"],
        flags=["-H", "--data-root"],
        cdi_dirs=[],
    )
    assert (host.engines["podman"].version, host.engines["podman"].root) == ("5.4.2", "/var/lib/containers/storage")
    assert host.packages == {"docker.io": "26.1.5+dfsg1-9"}
    assert (host.held, host.unfinished) == (["docker.io"], {"containerd": "half-configured", "zlib": "unpacked"})


def test_a_host_of_rhel():
    host = read_host("rpm", *answers(absent=["podman"]))
    assert (host.packages, host.held, list(host.engines)) == ({"docker-ce": "28.5.1-1.el9"}, [], ["docker"])


def test_only_package_sources_of_the_vendors_leave_the_host(tmp_path, monkeypatch):
    docker = "URIs: http://mirror/vendors/download.docker.com/linux/debian\n"
    (tmp_path / "docker.sources").write_text(docker)
    (tmp_path / "site.sources").write_text("URIs: https://reader:password@packages.example/debian\n")
    monkeypatch.setitem(host_module.SOURCES, "deb", (f"{tmp_path}/*.sources",))
    assert read_host("deb", *answers()).sources == {f"{tmp_path}/docker.sources": docker}


def test_credentials_stay_on_the_host(tmp_path, monkeypatch):
    secret = "hunter2"
    daemon = {
        "proxies": {"http-proxy": f"http://reader:{secret}@proxy:3128"},
        "log-opts": {"splunk-token": secret},
        "registry-mirrors": [f"https://reader:{secret}@old:5000"],
        "features": {"cdi": True},
    }
    (tmp_path / "daemon.json").write_text(json.dumps(daemon))
    (tmp_path / "cdi.yaml").write_text(f"containerEdits: {{env: [TOKEN={secret}]}}")
    source = f"URIs: https://reader:{secret}@mirror/download.docker.com/linux/debian?key={secret}\n"
    (tmp_path / "docker.sources").write_text(source)
    monkeypatch.setattr(host_module, "DAEMON_JSON", f"{tmp_path}/daemon.json")
    monkeypatch.setattr(host_module, "TEXT_FILES", ())
    monkeypatch.setattr(host_module, "MARKER_FILES", (f"{tmp_path}/cdi.yaml", f"{tmp_path}/none"))
    monkeypatch.setitem(host_module.SOURCES, "deb", (f"{tmp_path}/*.sources",))
    info = {**DOCKER_INFO, "RegistryConfig": {"Mirrors": [f"https://reader:{secret}@old:5000/"]}}
    command = f"{{ argv[]=/usr/sbin/dockerd --http-proxy=http://u:{secret}@p --log-opt splunk-token={secret} ; }}"
    host = read_host("deb", *answers({"docker info": json.dumps(info), "systemctl show": command}))
    assert secret not in json.dumps(host.as_dict())
    assert host.daemon_json == {"registry-mirrors": ["https://********@old:5000"], "features": {"cdi": True}}
    assert host.files == {f"{tmp_path}/cdi.yaml": ""}
    assert list(host.sources.values()) == ["URIs: https://********@mirror/download.docker.com/linux/debian?********\n"]
    assert host.engines["docker"].flags == ["--http-proxy", "--log-opt"]


def test_a_file_that_docker_cannot_read_is_described_without_its_text(tmp_path, monkeypatch):
    monkeypatch.setattr(host_module, "DAEMON_JSON", f"{tmp_path}/daemon.json")
    (tmp_path / "daemon.json").write_text('{"proxies": "hunter2" tru}')
    host = read_host("deb", *answers())
    assert host.daemon_json_error.startswith(
        f"{tmp_path}/daemon.json is not valid JSON: Expecting ',' delimiter: line 1"
    )
    assert (host.daemon_json, "hunter2" in host.daemon_json_error) == ({}, False)


def test_podman_under_dockers_name_is_no_docker():
    assert list(read_host("deb", *answers({"docker --version": "podman version 5.4.2"})).engines) == ["podman"]


def test_a_docker_that_does_not_answer_says_why():
    info = json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon"]})
    state = read_host("deb", *answers({"docker info": info, "docker ps": None})).engines["docker"]
    assert state.daemon
    assert (state.version, state.why, state.containers) == ("", "Cannot connect to the Docker daemon", [])


def test_dockers_command_without_a_daemon():
    answer = answers({"docker info": "{}", "docker ps": None}, absent=["dockerd"])
    assert not read_host("deb", *answer).engines["docker"].daemon
    assert read_host("deb", *answers(absent=["dockerd"])).engines["docker"].daemon


# Whether it works.

DOCKER = EngineState("docker", "/usr/bin/docker", "28.5.1", cdi_dirs=["/etc/cdi"], root="/var/lib/docker")
PODMAN = EngineState("podman", "/usr/bin/podman", "5.4.2", cdi_dirs=["/etc/cdi"])
SPECIFICATION = 'kind: nvidia.com/gpu\ndevices:\n  - name: "0"\n  - name: "1"\n  - name: GPU-1a\n  - name: all\n'


@pytest.fixture
def specification(monkeypatch):
    """Put a CDI specification on the host."""

    def put(text):
        monkeypatch.setattr(checks, "cdi_files", lambda _directories: ["/var/run/cdi/nvidia.yaml"])
        monkeypatch.setattr(checks, "text_of", lambda _path: text)

    put(SPECIFICATION)
    return put


def check(engine="docker", stack="cpu", count=0, engines=(DOCKER,), journal="", toolkit="auto", partition="", **state):
    host = HostState(engines={found.name: found for found in engines}, **state)
    return checks.check(
        engine, stack, count, toolkit, host, lambda _name: None, lambda _words: (0, journal, ""), partition
    )


def test_the_fact_says_what_runs_containers():
    fact, warnings = check(packages={"nvidia-container-toolkit-base": "1.20.0-1"})
    assert (fact, warnings) == (
        {
            "engine": "docker",
            "version": "28.5.1",
            "toolkit": "1.20.0-1",
            "gpus": "",
            "quadlet": False,
            "storage": "/var/lib/docker",
        },
        [],
    )


def test_the_role_vllm_is_told_which_of_two_engines():
    _fact, warnings = check("podman", engines=(DOCKER, PODMAN))
    assert warnings == [
        "docker is also on this host, and the role vllm uses it by default: set container_runtime_engine: podman "
        "in the inventory, which vllm_engine follows, or set vllm_engine: podman"
    ]
    assert check("docker", engines=(DOCKER, PODMAN))[1] == []


def test_silence_shows_the_end_of_the_journal():
    silent = replace(DOCKER, version="", why="Cannot connect")
    with pytest.raises(
        RuntimePlanError, match=r"does not answer \(Cannot connect\); its journal ends with: a \| b; see"
    ):
        check(engines=(silent,), journal="a\nb\n")
    with pytest.raises(RuntimePlanError, match="podman is not on this host"):
        check("podman")


def test_nvidias_chips_are_counted(specification):
    kinds = {"cdi_kinds": ["nvidia.com/gpu"], "drivers": ["cuda"]}
    assert check(stack="cuda", count=2, **kinds)[0]["gpus"] == "cdi"
    with pytest.raises(RuntimePlanError, match=r"lists 2 of 8 chips; run systemctl restart nvidia-cdi-refresh.service"):
        check(stack="cuda", count=8, **kinds)
    specification('{"kind":"nvidia.com/gpu","devices":[{"name":"0"},{"name":"1"},{"name":"2"}]}')
    assert check(stack="cuda", count=3, **kinds)[0]["gpus"] == "cdi"
    # Chips that are cut up are listed by their parts, also beside whole ones.
    for parts in ('  - name: "0:0"\n  - name: "0:1"\n', '  - name: "0"\n  - name: "1:0"\n'):
        specification(f"kind: nvidia.com/gpu\ndevices:\n{parts}")
        with pytest.raises(
            RuntimePlanError, match="lists MIG instances, and plans take whole chips; set accelerator_p"
        ):
            check(stack="cuda", count=1, **kinds)


def test_mig_instances_that_plans_are_for_are_counted(specification):
    kinds = {"cdi_kinds": ["nvidia.com/gpu"], "drivers": ["cuda"], "partition": "2x3g.40gb"}
    specification(
        "kind: nvidia.com/gpu\ndevices:\n" + "".join(f'  - name: "{name}"\n' for name in ("0:0", "0:1", "1:0"))
    )
    assert check(stack="cuda", count=1, **kinds)[0]["gpus"] == "cdi"
    with pytest.raises(RuntimePlanError, match=r"lists 3 of 4 MIG instances \(accelerator_partition\); run systemctl"):
        check(stack="cuda", count=2, **kinds)
    # Those that the specification had before MIG was switched on are the whole chips.
    specification("kind: nvidia.com/gpu\ndevices:\n  - name: '0'\n")
    with pytest.raises(RuntimePlanError, match="lists 0 of 2 MIG instances"):
        check(stack="cuda", count=1, **kinds)


def test_a_specification_whose_libraries_are_gone(specification, tmp_path):
    kinds = {"cdi_kinds": ["nvidia.com/gpu"], "drivers": ["cuda"]}
    there, gone = tmp_path / "libcuda.so.580.159.04", tmp_path / "libnvidia-ml.so.580.95.05"
    there.write_text("")
    mounts = "containerEdits:\n  mounts:\n    - hostPath: {}\n      containerPath: {}\n"
    specification(SPECIFICATION + mounts.format(there, there))
    assert check(stack="cuda", count=2, **kinds)[0]["gpus"] == "cdi"
    specification(SPECIFICATION + mounts.format(gone, gone))
    with pytest.raises(
        RuntimePlanError, match=rf"mounts {gone}, which does not exist \(1 such libraries\): the driver"
    ):
        check(stack="cuda", count=2, **kinds)


def test_nodes_that_a_daemon_reload_would_take_are_a_warning(specification):
    _fact, warnings = check(
        stack="cuda", cdi_kinds=["nvidia.com/gpu"], drivers=["cuda"], unlinked=["/dev/nvidia0", "/dev/nvidiactl"]
    )
    assert warnings[0].startswith("/dev/nvidia0, /dev/nvidiactl: no link below /dev/char, so systemctl daemon-reload")


def test_no_specification_says_whether_the_driver_is_there():
    with pytest.raises(
        RuntimePlanError, match=r"no CDI specification .*; the driver is not loaded .* install it first"
    ):
        check(stack="cuda", count=8)
    with pytest.raises(RuntimePlanError, match="the driver is loaded, so see journalctl -u nvidia-cdi-refresh"):
        check(stack="cuda", count=8, drivers=["cuda"])


@pytest.mark.parametrize(("stack", "node"), [("rocm", "/dev/kfd"), ("cann", "/dev/davinci_manager")])
def test_nodes_that_are_not_there_are_named(stack, node, monkeypatch):
    monkeypatch.setattr(checks.os.path, "exists", lambda path: path != node)
    with pytest.raises(RuntimePlanError, match=f"{node} does not exist, and containers on {stack} need it"):
        check(stack=stack, count=8)


def test_every_card_of_ascend_has_its_node(monkeypatch):
    monkeypatch.setattr(checks.os.path, "exists", lambda path: path != "/dev/davinci7")
    assert check(stack="cann", count=7)[1] == []
    with pytest.raises(RuntimePlanError, match="/dev/davinci7 does not exist"):
        check(stack="cann", count=8)


def test_docker_has_to_know_the_runtime_of_ascend_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(checks.os.path, "exists", lambda _path: True)
    ascend = {"stack": "cann", "count": 8, "toolkit": "vendor"}
    knows = replace(DOCKER, runtimes=["ascend", "runc"])
    assert check(engines=(knows,), ascend="26.0.0", **ascend)[0]["toolkit"] == "26.0.0"
    with pytest.raises(RuntimePlanError, match=r"docker has the runtimes runc, and ascend is not among them"):
        check(engines=(replace(DOCKER, runtimes=["runc"]),), ascend="26.0.0", **ascend)
    with pytest.raises(
        RuntimePlanError, match=r"the Ascend Docker Runtime is incomplete \(/usr/local/Ascend/Ascend-Dock"
    ):
        check(engines=(knows,), **ascend)
    # Plain devices need none of it.
    assert check(engines=(DOCKER,), **{**ascend, "toolkit": "auto"})[0]["toolkit"] == ""


def test_a_runtime_of_ascend_counts_with_its_program_and_what_its_installer_writes_last(tmp_path, monkeypatch):
    info, program = tmp_path / "install.info", tmp_path / "ascend-docker-runtime"
    monkeypatch.setattr(host_module, "INFO", str(info))
    monkeypatch.setattr(host_module, "PROGRAM", str(program))
    program.write_text("")
    assert read_host("deb", *answers()).ascend == ""
    info.write_text("version=v26.0.0\narch=aarch64\nos=linux\npath=/usr/local/Ascend/Ascend-Docker-Runtime\n")
    assert read_host("deb", *answers()).ascend == "26.0.0"
    program.unlink()
    assert read_host("deb", *answers()).ascend == ""
