# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a container engine cannot give the chips of a host to containers, on real files in the place of CDI's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime import check_host
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.check_host import (
    check,
    listed_devices,
    missing_libraries,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError

from tests.fakes.container_runtimes import docker_host, podman_host

# As nvidia-ctk 1.17 writes it, and as docker shows it in JSON.
YAML = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: "1"
- name: all
containerEdits:
  mounts:
  - hostPath: {library}
    containerPath: /usr/lib/libcuda.so.1
"""
JSON = '{"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "all"}, {"name":"GPU-1b"}]}'
MIG = 'kind: nvidia.com/gpu\ndevices:\n- name: "0:0"\n- name: "0:1"\n- name: all\n'


@pytest.fixture
def cdi(tmp_path, monkeypatch):
    """Write a specification of CDI; return what does."""
    monkeypatch.setattr(check_host, "CDI_DIRS", (str(tmp_path),))
    (tmp_path / "libcuda.so.580").touch()

    def write(text=YAML, library=None):
        (tmp_path / "nvidia.yaml").write_text(text.replace("{library}", str(library or tmp_path / "libcuda.so.580")))

    write()
    return write


def with_cdi(*packages):
    host = docker_host("28.3.0", packages or ["docker-ce"], cdi_dirs=["/etc/cdi"])
    return replace(host, cdi_kinds=["nvidia.com/gpu"], drivers=["cuda"])


def run(_words):
    return 0, "starting\nfailed to load /etc/docker/daemon.json\n", ""


def checked(host, stack="cuda", count=2, toolkit="vendor", partition="", engine="docker", numbers=()):
    return check(engine, stack, count, toolkit, host, lambda _name: None, run, partition, numbers)


def refusal(host, **options):
    with pytest.raises(RuntimePlanError) as caught:
        checked(host, **options)
    return str(caught.value)


def test_devices_are_counted_in_both_forms_and_other_names_are_not():
    assert [listed_devices(text) for text in (YAML, JSON, MIG, "")] == [{0, 1}, {0}, set(), set()]


def test_libraries_that_a_driver_has_removed_are_found(tmp_path):
    (tmp_path / "liba.so.1").touch()
    texts = [f"hostPath: {tmp_path}/liba.so.1\nhostPath: /nowhere/libb.so.2\n", '{"hostPath": "/nowhere/libb.so.2"}']
    assert missing_libraries([*texts, "hostPath: /nowhere/bin"]) == ["/nowhere/libb.so.2"]


def test_docker_with_cdi_gives_its_chips(cdi):
    host = with_cdi("nvidia-container-toolkit-base")
    fact, warnings = checked(host)
    assert (fact["engine"], fact["gpus"], fact["toolkit"], warnings) == ("docker", "cdi", "28.3.0", [])
    _fact, (warning,) = checked(replace(host, unlinked=("/dev/nvidia0",)))
    assert warning.startswith("/dev/nvidia0: no link below /dev/char")


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        (YAML, {"count": 4}, "lists 2 of 4 chips; run systemctl restart nvidia-cdi-refresh.service"),
        (MIG, {"count": 1}, "lists MIG instances, and plans take whole chips; set accelerator_partition"),
        (MIG, {"count": 2, "partition": "2x3g.71gb"}, "lists 2 of 4 MIG instances"),
        # Beside another GPU, which has the number 0.
        (YAML, {"count": 2, "numbers": [1, 2]}, "lists 1 of 2 chips"),
        (MIG, {"count": 1, "numbers": [1], "partition": "2x3g.71gb"}, "lists 0 of 2 MIG instances"),
        (YAML, {"library": "/nowhere/libcuda.so.1"}, "mounts /nowhere/libcuda.so.1, which does not exist (1 such"),
        (YAML.replace("nvidia.com", "amd.com"), {}, "lists 0 of 2 chips"),
    ],
)  # fmt: skip
def test_a_specification_that_does_not_fit_the_host_is_explained(cdi, text, options, reason):
    cdi(text, options.pop("library", None))
    assert reason in refusal(with_cdi(), **options)


def test_mig_instances_of_every_chip_are_enough(cdi):
    cdi(MIG)
    assert checked(with_cdi(), count=1, partition="2x3g.71gb")[0]["gpus"] == "cdi"


def test_an_engine_that_is_silent_or_missing_is_explained_with_its_journal():
    assert refusal(podman_host()).startswith("docker is not on this host; run the role container_runtime")
    said = refusal(docker_host("", why="exit status 1"))
    assert "docker does not answer (exit status 1)" in said and said.endswith("see systemctl status docker")
    assert "its journal ends with: starting | failed to load /etc/docker/daemon.json" in said


def test_the_state_of_the_driver_is_part_of_the_refusal():
    assert "the driver is not loaded" in refusal(docker_host("28.3.0"))
    assert "the driver is loaded, so see journalctl" in refusal(replace(docker_host("28.3.0"), drivers=["cuda"]))


def test_chips_of_others_need_their_device_nodes(tmp_path, monkeypatch):
    monkeypatch.setattr(check_host, "NODES", {"rocm": (str(tmp_path / "kfd"),), "cann": ()})
    assert f"{tmp_path}/kfd does not exist, and containers on rocm need it" in refusal(docker_host(), stack="rocm")
    assert checked(docker_host(), stack="rocm", count=0)[0]["gpus"] == ""
    (tmp_path / "kfd").touch()
    assert checked(docker_host(), stack="rocm")[0]["engine"] == "docker"
    assert "/dev/davinci0 does not exist" in refusal(docker_host(), stack="cann")


def test_docker_needs_the_ascend_runtime_by_its_files_and_by_its_name():
    assert "is incomplete" in refusal(docker_host(), stack="cann", count=0)
    host = replace(docker_host(), ascend="7.1.RC1")
    assert "docker has the runtimes runc, and ascend is not among them" in refusal(host, stack="cann", count=0)
    named = replace(docker_host(runtimes=["runc", "ascend"]), ascend="7.1.RC1")
    assert checked(named, stack="cann", count=0)[0]["toolkit"] == "7.1.RC1"
    assert checked(docker_host(), stack="cann", count=0, toolkit="none")[1] == []


def test_another_engine_that_the_role_vllm_would_use_is_a_warning():
    both = replace(docker_host(), engines={**docker_host().engines, **podman_host().engines})
    _fact, warnings = checked(both, stack="rocm", count=0, engine="podman")
    assert [warning.partition(" is also")[0] for warning in warnings] == ["docker"]
    assert checked(both, stack="rocm", count=0)[1] == []
