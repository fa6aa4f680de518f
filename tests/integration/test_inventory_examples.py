# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of docs/operate/inventory.md, taken out of the page and run: what it shows is what comes out.

A line with nothing but a file's name in backquotes and a colon names the block after it; that block is the file. A
block of the kind `console` is run in the example's directory, each `$ ` line a command and the lines below it what it
has to print, `...` standing for any text or lines. Files before the first example belong to all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field

import pytest

from tests.fakes import sysfs as fake_sysfs
from tests.fakes.redfish_machines import hgx, ibmc, idrac, plain
from tests.fakes.redfish_server import PASSWORD, USERNAME, Machine, RedfishServer, authority
from tests.integration import netbox_collection, netbox_server
from tests.integration.inventory_site import TOP, Site

IDS = {"h200": "10de:2335", "l40s": "10de:26b9"}
PAGE = TOP / "docs" / "operate" / "inventory.md"
EXAMPLE = re.compile(r"^### (\d)\. (.+)$", re.MULTILINE)
BLOCK = re.compile(r"(?:^`([^`\n]+)`:\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    files: dict[str, str] = field(default_factory=dict)
    commands: list[tuple[str, list[str]]] = field(default_factory=list)


def read_page():
    """Return the examples by number."""
    page = PAGE.read_text(encoding="utf-8")
    chapter = page[page.index("\n## Five complete examples\n") + 1 :]
    chapter = chapter[: chapter.index("\n## ", 4)]
    common, *parts = re.split(r"(?m)^(?=### \d\. )", chapter)
    shared = {name: text for name, _kind, text in BLOCK.findall(common)}
    examples = {}
    for part in parts:
        example = examples[int(EXAMPLE.match(part).group(1))] = Example(dict(shared))
        for name, kind, text in BLOCK.findall(part):
            if kind == "console":
                example.commands += commands_of(text)
            else:
                assert name, f"a block without a file name: {text[:80]!r}"
                example.files[name] = text
    return examples


def commands_of(text):
    commands = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


EXAMPLES = read_page()


def run_console(site, example):
    """Run the commands that the page shows; what they print has to be what it shows."""
    for command, wanted in example.commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], cwd=site.top, env=site.settings(), capture_output=True,
            text=True, check=False, timeout=1800,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert re.fullmatch("".join(map(pattern, wanted)), done.stdout), (
            f"{command}\nprinted:\n{done.stdout}\n{done.stderr}"
        )
        assert "[WARNING]" not in done.stderr, f"{command}\n{done.stderr}"


def pattern(line):
    return r"(?:.*\n)*?" if line == "..." else re.escape(line.rstrip()).replace(re.escape("..."), ".*") + r" *\n"


@pytest.fixture
def site(tmp_path, request):
    """The files of the example that the test's name has the number of, in a directory."""
    number = int(re.search(r"_(\d)_", request.node.name).group(1))
    made = Site(tmp_path / "site", tmp_path / "home")
    made.write(EXAMPLES[number].files)
    return made


def test_there_are_five_of_them_and_each_is_run():
    assert sorted(EXAMPLES) == [1, 2, 3, 4, 5]
    assert all(example.commands and "accelerators.yml" in example.files for example in EXAMPLES.values())


def test_1_a_static_list(site):
    run_console(site, EXAMPLES[1])
    listed = site.list()
    assert listed.of("gpu-a-01") == {"accel_cuda", "accel_hopper", "accel_h200", "cluster_fra1", "site_frankfurt"}
    assert {"accel_h200", "accel_l40s", "accel_ada", "accel_hopper"} < listed.of("gpu-m-01")
    mixed = listed.variables["gpu-m-01"]
    assert (mixed["accelerator"], mixed["accelerator_count"], mixed["accelerator_mixed"]) == ("h200", 4, True)
    assert listed.of("cpu-a-01") == {"accel_cpu", "cluster_hel1", "site_helsinki"}
    assert listed.variables["gpu-a-02"]["ansible_host"] == "10.1.1.2"
    # Of the two files that say what is served, that of the model has the word.
    assert listed.variables["gpu-a-01"]["vllm_instances"]["chat"]["recipe"] == "openai/gpt-oss-120b"
    assert listed.hosts("accel_cann") == listed.hosts("accel_unknown") == listed.hosts("accelerator_conflict") == set()


def test_2_a_spreadsheet(site):
    run_console(site, EXAMPLES[2])
    plain = site.list()
    assert plain.variables["gpu-a-01"]["accelerator_count"] == 8
    assert "accelerator_count" not in plain.variables["cpu-a-01"]
    assert plain.of("gpu-b-01") >= {"accel_b200", "accel_blackwell", "accel_cuda", "cluster_fra2", "rack_r08"}
    # As spreadsheets save it elsewhere: a mark of byte order, semicolons, lines that end as on Windows.
    for path in (site.top / "sites").iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b",", b";").replace(b"\n", b"\r\n"))
    saved = site.list()
    assert (saved.groups, saved.variables) == (plain.groups, plain.variables)


@pytest.fixture
def netbox(site):
    """A NetBox, and the real plugin for it."""
    try:
        directory = netbox_collection.directory()
    except netbox_collection.UnavailableError as exc:
        if os.environ.get("NETBOX_REQUIRED"):
            raise
        pytest.skip(f"netbox.netbox cannot be had here: {exc}")
    with netbox_server.serving() as server:
        site.environment.update(
            NETBOX_API=server.url,
            NETBOX_TOKEN=netbox_server.TOKEN,
            ANSIBLE_COLLECTIONS_PATH=f"{TOP / '.collections'}:{directory}",
            PYTHONPATH=str(directory),
        )
        yield server


def test_3_on_top_of_netbox(site, netbox):
    run_console(site, EXAMPLES[3])
    listed = site.list()
    assert set(listed.variables) == {"gpu-a-01", "gpu-a-02", "amd-a-01", "amd-a-02"}
    assert listed.of("gpu-a-01") == {"accel_cuda", "accel_hopper", "accel_h200", "cluster_fra1", "site_frankfurt"}
    amd = listed.variables["amd-a-01"]
    assert (amd["accelerator"], amd["accelerator_count"], amd["ansible_host"]) == ("mi300x", 8, "10.2.1.1")
    # It was the real one that asked, page by page, with its token.
    assert any("offset=2" in path for path, _status in netbox.asked)
    assert {status for _path, status in netbox.asked} == {200}


def test_3_netbox_with_a_token_of_version_2(site, netbox):
    line = re.search(r"`(token: \{[^`]+\})`", PAGE.read_text(encoding="utf-8")).group(1)
    site.write({"netbox.yml": EXAMPLES[3].files["netbox.yml"] + line + "\n"})
    site.environment["NETBOX_TOKEN"] = netbox_server.TOKEN_V2
    assert site.list().hosts("accel_h200") == {"gpu-a-01", "gpu-a-02"}


def test_3_netbox_refuses_the_token(site, netbox):
    site.environment["NETBOX_TOKEN"] = "f" * 40
    done = site.run("ansible", "accel_cuda", "--list-hosts", check=False)
    assert done.returncode != 0, "the run went on with an empty fleet"
    assert {status for _path, status in netbox.asked} == {403}
    assert "f" * 40 not in done.stdout + done.stderr


def test_3_netbox_with_a_type_that_nobody_mapped(site, netbox):
    """strict makes that an error that names the variable; without it nothing is known of the host."""
    site.write({"group_vars/all.yml": "accelerator_of_type: {sys-821ge-tnhr: h200}\n"})
    done = site.run("ansible-inventory", "--list", check=False)
    assert done.returncode != 0
    assert "accelerator" in done.stderr and "amd-a-0" in done.stderr
    loose = EXAMPLES[3].files["accelerators.yml"].replace("strict: true", "strict: false")
    site.write({"accelerators.yml": loose})
    listed = site.list()
    assert not {group for group in listed.of("amd-a-01") if group.startswith("accel_")}
    assert listed.hosts("accel_h200") == {"gpu-a-01", "gpu-a-02"}


@pytest.fixture
def bmcs(site, tmp_path):
    """BMCs in place of those of the page, by its addresses; and what an administrator has: an authority, a password."""
    shown = {
        "10.1.0.1": hgx(), "10.1.0.2": hgx(), "10.2.0.1": idrac(), "10.2.0.2": ibmc(), "10.2.0.3": plain(),
    }  # fmt: skip
    here = {address: address.replace("10.", "127.1", 1) for address in shown}
    machines = {here[address]: Machine(documents) for address, documents in shown.items()}
    ca_file, tls = authority(tmp_path, list(machines))
    with RedfishServer(machines, tls) as server:
        fleet = EXAMPLES[4].files["bmcs.csv"]
        for address, own in here.items():
            fleet = re.sub(rf"\b{re.escape(address)}\b", f"{own}:{server.port}", fleet)
        site.write({"bmcs.csv": fleet, "bmc-ca.pem": ca_file.read_text()})
        site.environment.update(REDFISH_USERNAME=USERNAME, REDFISH_PASSWORD=PASSWORD)
        yield machines


def kept(site):
    """Return all that lies in the home directory: caches."""
    return b"".join(path.read_bytes() for path in site.home.rglob("*") if path.is_file())


def test_4_from_bmcs_alone(site, bmcs):
    run_console(site, EXAMPLES[4])
    asked = {address: len(machine.log) for address, machine in bmcs.items()}
    listed = site.list()
    assert listed.of("gpu-a-01") == {"accel_cuda", "accel_hopper", "accel_h200", "cluster_fra1", "site_frankfurt"}
    assert {"accel_mi300x", "accel_gfx942", "accel_rocm"} < listed.of("amd-a-01")
    assert "accel_cann" in listed.of("npu-a-01")
    assert "accel_cpu" in listed.of("cpu-a-01")
    assert listed.variables["gpu-a-02"]["accelerator_detected"]["count"] == 8
    # That came from the cache, where everything is but what must not be.
    assert all(asked.values())
    assert {address: len(machine.log) for address, machine in bmcs.items()} == asked
    assert b"h200" in kept(site) or b"10de:2335" in kept(site)
    assert PASSWORD.encode() not in kept(site)


def test_4_bmcs_that_give_no_answer_are_named_with_the_reason(site, bmcs):
    first, second, *_others = bmcs.values()
    first.fault = "html"
    site.write({"group_vars/cluster_hel1.yml": "accelerator_bmc_password: wrong\n"})
    listed = site.list()
    assert not {group for host in ("gpu-a-01", "amd-a-01") for group in listed.of(host) if group.startswith("accel")}
    assert listed.hosts("accel_h200") == {"gpu-a-02"}
    assert "gpu-a-01" in listed.warnings and "amd-a-01" in listed.warnings and "401" in listed.warnings
    assert "wrong" not in listed.warnings.replace("wrong password", "") and PASSWORD not in listed.warnings
    # Put right, it shows at once; who had answered is not asked again.
    first.fault, asked = "", len(second.log)
    site.write({"group_vars/cluster_hel1.yml": "{}\n"})
    again = site.list()
    assert again.hosts("accel_h200") == {"gpu-a-01", "gpu-a-02"} and again.hosts("accel_mi300x") == {"amd-a-01"}
    assert (len(second.log), again.warnings) == (asked, "")


# In place of ssh: a host is a directory with sysfs and procfs of a machine, and the probe that Ansible sends is run
# over them. An address without one does not answer.
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
machine=$MACHINES/$1
[ -d "$machine" ] || { echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255; }
sed "s#^probe /sys /proc #probe $machine/sys $machine/proc #" | sh -c "$2"
"""


@pytest.fixture
def machines(site, tmp_path):
    """Put a machine at an address, with so many functions of each PCI id."""
    directory = tmp_path / "machines"
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    site.environment.update(MACHINES=str(directory), ANSIBLE_SSH_EXECUTABLE=str(tmp_path / "ssh"))

    def put(address, **ids):
        shutil.rmtree(directory / address, ignore_errors=True)
        functions = [line for first, (name, count) in enumerate(ids.items(), 1)
                     for line in fake_sysfs.lines(IDS[name], count, first=0x10 * first)]  # fmt: skip
        fake_sysfs.write_sysfs(directory / address / "sys", functions, nodes=2)
        fake_sysfs.write_procfs(directory / address / "proc")

    put("10.1.1.1", h200=8)
    put("10.1.1.2", h200=8)
    put("10.1.1.9", h200=4, l40s=2)
    return put


def test_5_discovered(site, machines):
    before = site.list()
    assert not {group for host in before.variables for group in before.of(host) if group.startswith("accel")}
    run_console(site, EXAMPLES[5])
    listed = site.list()
    assert listed.of("gpu-a-01") == {"accel_cuda", "accel_hopper", "accel_h200", "cluster_fra1", "rack7"}
    found = listed.variables["gpu-m-01"]
    assert (found["accelerator_detected"]["models"], found["accelerator_mixed"]) == ({"h200": 4, "l40s": 2}, True)
    assert listed.hosts("accelerator_conflict") == set()


def test_5_again_after_a_card_went_and_a_host_was_switched_off(site, machines, tmp_path):
    site.run("ansible-playbook", "baremetal.inference.discover")
    machines("10.1.1.1", h200=7)
    shutil.rmtree(tmp_path / "machines" / "10.1.1.2")
    site.write({"group_vars/rack7.yml": "accelerator: h200\n", "host_vars/gpu-a-01.yml": "accelerator_count: 8\n"})
    site.run("ansible-playbook", "baremetal.inference.discover")
    listed = site.list()
    assert listed.hosts("accelerator_conflict") == {"gpu-a-01"}
    assert listed.variables["gpu-a-01"]["accelerator_conflict"] == "declared h200 x 8, but discovery says h200 x 7"
    assert "h200 x 7" in listed.warnings
    # It has not lost its chips; that it does not answer is said.
    assert "accel_h200" in listed.of("gpu-a-02")
    assert "No route to host" in listed.variables["gpu-a-02"]["accelerator_stale"]
