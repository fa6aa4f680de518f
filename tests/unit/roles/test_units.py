# SPDX-License-Identifier: GPL-3.0-or-later
"""The units of all roles by systemd's own measure; those of instances are in vllm/test_templates.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"
# The exposure that systemd-analyze security may report, from 0 to 10.
EXPOSURE = {
    "baremetal-provisioner.service": 2.5,
    "gateway-agent.service": 2.0,
    "gateway-readers.service": 2.0,
    "gateway-usage.service": 2.0,
    "host-tuning.service": 4.0,
    "openings.service": 2.5,
    "prometheus-node-exporter.service": 4.0,
    "vllm-group@.service": 4.5,
    "vllm-health.service": 4.0,
    "vllm-scale.service": 4.0,
    "weights-scrub.service": 1.5,
}
IN_ITS_OWN_TEST = {
    "instance.service",
    "vllm@.service",
    "vllm-preload@.service",
    "vllm-residents@.service",
    "vllm-router@.service",
}


class AnyValue(jinja2.ChainableUndefined):
    def __str__(self):
        return "/x"


def render(path):
    environment = jinja2.Environment(undefined=AnyValue, loader=jinja2.FileSystemLoader(path.parent))
    environment.filters.update({"comment": lambda _text: "# x", "dirname": lambda text: os.path.dirname(str(text))})
    return environment.from_string(path.read_text()).render()


def test_every_unit_has_a_limit():
    names = {path.name[: -len(".j2")] for path in ROLES.glob("*/templates/*.service.j2")}
    assert names == {*EXPOSURE, *IN_ITS_OWN_TEST}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
@pytest.mark.parametrize("name", EXPOSURE)
def test_a_unit_is_closed_as_far_as_its_work_allows(tmp_path, name):
    (path,) = ROLES.glob(f"*/templates/{name}.j2")
    unit = tmp_path / name.replace("@", "@x")
    unit.write_text(render(path))
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found and float(found[1]) <= EXPOSURE[name], done.stdout + done.stderr


def test_a_unit_that_needs_devices_does_not_hide_them_by_protect_clock():
    """Up to systemd 252, ProtectClock allows the hardware clock alone of all devices."""
    units = [path for path in ROLES.glob("*/*/*") if path.is_file() and "[Service]" in path.read_text(errors="replace")]
    assert len(units) > 10
    for path in units:
        text = re.sub(
            r"{% include '(.*)' .*%}", lambda part, top=path.parent: (top / part[1]).read_text(), path.read_text()
        )
        if re.search(r"^ProtectClock=(true|yes)$", text, re.MULTILINE):
            assert re.search(r"^(PrivateDevices=(true|yes)|DeviceAllow=.*)$", text, re.MULTILINE), path


def test_no_unit_hides_that_its_program_failed():
    assert [
        str(path)
        for path in ROLES.glob("*/*/*")
        if path.is_file() and "ExecStart=-" in path.read_text("utf-8", "replace")
    ] == []


@pytest.mark.parametrize(("nginx", "nftables", "missing"), [
    (False, False, ["nginx", "nftables"]), (True, False, ["nftables"]), (True, True, []),
])  # fmt: skip
def test_a_mirror_of_an_older_release_gets_nftables(nginx, nftables, missing):
    template = yaml.safe_load((ROLES / "mirror/vars/main.yml").read_text())["__mirror_missing"]
    names = {"__mirror_host": {"nginx": nginx, "nftables": nftables, "registry": True}, "mirror_registry": False}
    environment = jinja2.Environment()
    environment.filters["bool"] = bool
    assert environment.from_string(template).render(names).strip() == str(missing)
