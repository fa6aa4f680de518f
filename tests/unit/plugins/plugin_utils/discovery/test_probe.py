# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe, run by the shells of this machine, against the module's own eyes on the same trees."""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import read_cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.drivers_host import read_drivers
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import read_functions
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import match
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import (
    DiscoveryError,
    Observation,
    detected,
    parse_probe,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.probe import probe_script, probe_words

from tests.fakes.sysfs import (
    ASPEED,
    FIXTURES,
    MEMINFO,
    RECORDED_H200_VM,
    arm,
    line,
    lines,
    write_procfs,
    write_sysfs,
    x86,
)

CATALOGUE = load_catalogue()
_FIRST, *_MORE = [shell for shell in (["dash"], ["busybox", "sh"], ["bash", "--posix"]) if shutil.which(shell[0])]
SHELLS = [_FIRST, *(pytest.param(shell, marks=pytest.mark.slow) for shell in _MORE)]
IDS = [
    pci_id for model in yaml.safe_load((FIXTURES / "accelerator_ids.yml").read_text()).values() for pci_id in model[2]
]

BOARD = [
    line("8086:0d57", 0, "0600"),
    line("8086:352a", 1, "0604"),
    line("8086:a1a4", 2, "0580"),
    line("10de:22b1", 4, "0604"),
]
HOSTS = {
    "recorded H200 machine": RECORDED_H200_VM,
    "HGX H200": [*lines("10de:2335", 8), *lines("10de:22a3", 4, first=0x80, pci_class="0680"), ASPEED, *BOARD],
    "HGX A100": [*lines("10de:20b2", 8), *lines("10de:1af1", 6, first=0x80, pci_class="0680")],
    "MI300X": [*lines("1002:74a1", 8, pci_class="1200"), line("1002:1479", 0x60, "0604")],
    "MI210": lines("1002:740f", 4, pci_class="0380"),
    "guest with virtual functions": lines("1002:74b5", 2, first=0x20, pci_class="1200"),
    "Atlas A3": [*lines("19e5:d803", 16, pci_class="1200"), line("19e5:1711", 1, "0300")],
    "mixed": [*lines("10de:26b9", 2, first=0x60), *lines("10de:2335", 8)],
    "not served on": [*lines("10de:1db5", 4), *lines("10de:26b9", 2, first=0x60)],
    "40 and 80 GB": [*lines("10de:20b2", 2), *lines("10de:20b0", 2, first=0x60)],
    "shared memory": lines("1002:1586", 1, pci_class="0380"),
    "Intel cards and graphics": [*lines("8086:e223", 4, pci_class="0300"), line("8086:4680", 3, "0300")],
    "unknown": lines("10de:9999", 2),
    "unknown beside known": [*lines("10de:2335", 8), line("1da3:9999", 0x70, "1200")],
    "consoles and everyday graphics": [
        ASPEED,
        line("102b:0538", 4, "0300"),
        line("1af4:1050", 5, "0300"),
        line("8086:7d1d", 6, "1200"),
        line("1002:164e", 7, "0300"),
        line("10de:22be", 8, "0403"),
    ],
    "catalogued chip of an everyday class": [line("10de:2335", 1, "0100"), line("10de:22a3", 2, "0604")],
    "old kernel": ["0000:10:00.0 vendor=0x10de device=0x2335 class=0x030200"],
    "no function at all": [],
}


def run(root, shell=("sh",), catalogue=CATALOGUE, **environment):
    """Return what the probe prints about the host in a directory; its text comes over stdin, as from the action."""
    script = probe_script(catalogue, str(root / "sys"), str(root / "proc"), str(root / "version.info"))
    done = subprocess.run(
        [*shell, "-s"], input=script, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


def seen_by_the_module(root, catalogue=CATALOGUE):
    functions = read_functions(str(root / "sys"), sorted(catalogue.pci_vendors))
    cpu = read_cpu(str(root / "proc"), str(root / "sys"), platform.machine())
    drivers = read_drivers(str(root / "sys"), str(root / "proc"), str(root / "version.info"))
    return match(functions, catalogue, cpu, drivers).as_dict()


def seen_by_the_probe(root, *more, **options):
    return detected(parse_probe(run(root, *more, **options)), options.get("catalogue", CATALOGUE)).as_dict()


def host(root, functions, cpuinfo=None, nodes=2, files=None):
    write_sysfs(root / "sys", functions, nodes)
    write_procfs(root / "proc", cpuinfo)
    for name, text in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize("name", HOSTS)
def test_the_probe_says_what_the_module_says(tmp_path, name, shell):
    root = host(tmp_path, HOSTS[name])
    assert seen_by_the_probe(root, shell) == seen_by_the_module(root)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_probe_reads_the_modes_of_chips(tmp_path, shell):
    place = "sys/bus/pci/devices/0000:{}:00.0/current_{}_partition"
    modes = {"10": ("CPX\n", "NPS4\n"), "11": ("SPX\n", "NPS1\n"), "12": ("", "NPS1\n"), "13": ("\x1b[2J\n", "")}
    files = {
        place.format(at, what): text for at, pair in modes.items() for what, text in zip(("compute", "memory"), pair)
    }
    root = host(tmp_path, HOSTS["MI300X"], files=files)
    assert seen_by_the_probe(root, shell)["partition"] == "CPX/NPS4, NPS1, SPX/NPS1"
    assert seen_by_the_probe(root, shell) == seen_by_the_module(root)


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_the_probe_says_what_a_driver_does_not_drive(tmp_path, shell):
    bound = ("nvidia/0000:41:00.0", "amdgpu/0000:0e:00.0")
    functions = [
        *(line("10de:27b8", 1), line("10de:2321", 0x41), line("10de:2321", 0x81), line("10de:1fb0", 0x91, "0300")),
        *(line("1002:7551", 3, "0300"), line("1002:13c0", 0xE, "0300"), line("1002:515e", 2, "0300")),
    ]
    root = host(tmp_path, functions, files={f"sys/bus/pci/drivers/{name}": "" for name in bound})
    found = seen_by_the_probe(root, shell)
    assert found == seen_by_the_module(root)
    assert found["numbers"] == {"l4": [0], "r9700": [0]}
    stored = parse_probe(run(root, shell)).as_dict()
    assert [text.rpartition(" ")[2] for text in stored["functions"]].count("unbound") == 5
    assert Observation.from_dict(stored).as_dict() == stored


@pytest.mark.parametrize("pci_class", ["0302", "0600", "1200"])
def test_every_chip_of_the_vendors_tables_is_told(tmp_path, pci_class):
    root = host(tmp_path, [line(pci_id, number, pci_class) for number, pci_id in enumerate(IDS)])
    assert len(seen_by_the_module(root)["devices"]) > 100
    assert seen_by_the_probe(root) == seen_by_the_module(root)


ODD_IDS = ["10de:22a3", "10de:9999", "8086:352a", "1a03:2000", "1002:ffff", "19e5:1711", "19e5:9999"]
CLASSES = ["0300", "0302", "0380", "0403", "0600", "0604", "0680", "0880", "1101", "1200", "ffff", "0100"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_random_trees(tmp_path, seed):
    choose = random.Random(seed)
    functions = [
        line(choose.choice(IDS + ODD_IDS), number, choose.choice(CLASSES), choose.choice([-1, 0, 1]))
        for number in range(choose.randrange(40))
    ]
    sockets, cores = choose.randrange(1, 9), choose.randrange(1, 9)
    cpuinfo = choose.choice([x86(sockets=sockets, cores=cores), arm(cores=cores)])
    root = host(tmp_path, functions, cpuinfo, nodes=choose.randrange(9))
    for function in (root / "sys/bus/pci/devices").iterdir():
        spoil(function, choose)
    assert seen_by_the_probe(root) == seen_by_the_module(root)


def spoil(function, choose):
    """Make a function odd in one of several ways, or leave it."""
    name = choose.choice(["vendor", "device", "class"])
    oddity = choose.randrange(10)
    if oddity == 0:
        (function / name).unlink()
    elif oddity == 1:
        (function / name).write_text(choose.choice(["", "0x", "0x12", "zzzz"]))
    elif oddity == 2:
        os.symlink("..", function / "physfn")


def test_virtual_functions_beside_their_physical_one_are_not_told(tmp_path):
    root = host(tmp_path, [line("1002:74a1", 0x10, "1200"), *lines("1002:74b5", 8, first=0x20, pci_class="1200")])
    for number in range(8):
        os.symlink("../0000:10:00.0", root / f"sys/bus/pci/devices/0000:{0x20 + number:02x}:00.0/physfn")
    assert seen_by_the_probe(root) == seen_by_the_module(root)
    assert run(root).count("pci ") == 1


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    "cpuinfo",
    [
        x86(sockets=2, cores=3, threads=2),
        x86("fpu sse4_2 avx"),
        x86(sockets=1, cores=1, threads=1).rstrip("\n"),
        arm(),
        arm(implementer="0x48", part="0xd01", cores=192),
        arm(implementer="0x99", part="0x001"),
        "processor\t: 0\nflags\t: avx2\ncore id\t: 0\n\nprocessor\t: 1\nflags\t: avx2\ncore id\t: 0\n",
        "vendor_id: IBM/S390\nmachine : 3931\n\nprocessor 0: version = FF\n",
        "cpu model: odd\n\nprocessor\t: 0\ncpu\t\t: POWER9, altivec supported\n\nprocessor : 4\n\nplatform : PowerNV\n",
        "processor\t: 0\nmodel name\t: \\n * $HOME `id` 'x\"\nflags\t: avx2\n",
        "\n\nprocessor\t: 0\nflags\t: avx2\n",
        "",
    ],
)  # fmt: skip
def test_processors(tmp_path, cpuinfo, shell):
    root = host(tmp_path, [], cpuinfo)
    assert seen_by_the_probe(root, shell)["cpu"] == seen_by_the_module(root)["cpu"]


def test_a_host_with_512_threads_gives_a_small_answer(tmp_path):
    flags = " ".join(f"flag_number_{number}" for number in range(120)) + " avx2 avx512f"
    root = host(tmp_path, HOSTS["HGX H200"], x86(flags, sockets=2, cores=128, threads=2))
    assert (root / "proc/cpuinfo").stat().st_size > 900_000
    assert seen_by_the_probe(root) == seen_by_the_module(root)
    assert seen_by_the_module(root)["cpu"]["cores"] == 256
    assert len(run(root)) < 5000


@pytest.mark.parametrize("nodes", [0, 1, 12])
def test_numa_nodes(tmp_path, nodes):
    root = host(tmp_path, [], nodes=nodes)
    (root / "sys/devices/system/node/nodes").mkdir(parents=True)
    assert seen_by_the_probe(root)["cpu"]["numa_nodes"] == max(nodes, 1)
    assert seen_by_the_module(root)["cpu"]["numa_nodes"] == max(nodes, 1)


NVRM = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version:  gcc 13.3.0\n"
FIRMWARE = "sys/class/drm/card{}/device/fw_version/mec_fw_version"


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    ("files", "known"),
    [
        ({}, {}),
        ({"sys/module/nvidia/version": "580.159.04\n"}, {"nvidia": {"version": "580.159.04"}}),
        ({"proc/driver/nvidia/version": NVRM}, {"nvidia": {"version": "580.159.04"}}),
        ({"proc/driver/nvidia/version": "NVRM version: none\n"}, {}),
        (
            {
                "sys/module/amdgpu/version": "6.14.14\n",
                FIRMWARE.format(1): "0x000000b1\n",
                FIRMWARE.format(2): "0x000000af\n",
                FIRMWARE.format(3): "nothing\n",
                FIRMWARE.format(10): "\n",
            },
            {"amd": {"version": "6.14.14", "mec_firmware": 175}},
        ),
        ({FIRMWARE.format(0): "177"}, {"amd": {"mec_firmware": 177}}),
        ({"version.info": "package_version=25.5.1\nVersion=25.5.2\n"}, {"ascend": {"version": "25.5.2"}}),
        ({"version.info": "  VERSION = 24.1.rc3"}, {"ascend": {"version": "24.1.rc3"}}),
    ],
)
def test_drivers(tmp_path, files, known, shell):
    root = host(tmp_path, [], files=files)
    assert parse_probe(run(root, shell)).drivers == known
    assert read_drivers(str(root / "sys"), str(root / "proc"), str(root / "version.info")) == known


def test_memory_that_the_kernel_measured(tmp_path):
    root = host(tmp_path, lines("1002:74a1", 2, pci_class="1200"))
    (root / "sys/bus/pci/devices/0000:10:00.0/mem_info_vram_total").write_text("206141652992\n")
    probed = parse_probe(run(root))
    assert probed.memory_mib == {"0000:10:00.0": 196592}
    # The role, which detects again, makes the same plans as render.yml after discover.yml.
    found = match(read_functions(str(root / "sys")), load_catalogue(), probed.cpu, probed.drivers)
    assert found == detected(probed, load_catalogue()) and found.memory_mib == 196592


@pytest.mark.parametrize("text", ["", "-1", "many", "9" * 5000, "1048575"])
def test_memory_that_is_no_number_of_bytes_is_not_counted(tmp_path, text):
    root = host(tmp_path, lines("1002:74a1", 1, pci_class="1200"))
    (root / "sys/bus/pci/devices/0000:10:00.0/mem_info_vram_total").write_text(text)
    assert [function.memory_mib for function in read_functions(str(root / "sys"))] == [None]


def test_a_sites_own_vendor_and_class_count(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/acme.yml").write_text(
        "vendor: acme\nname: Acme\nstack: acme\nstacks: {acme: {}}\n"
        'pci_vendors: {abcd: {classes: ["0700"], unknown_is_error: true}}\n'
        'models: {rocket: {title: Acme Rocket, generation: r1, memory_gib: 8, pci_ids: {"abcd:0001": {}}}}\n'
    )
    own = load_catalogue([str(tmp_path / "own")])
    root = host(tmp_path, [line("abcd:0001", 1, "0200"), line("abcd:0002", 2, "0700"), line("abcd:0003", 3, "0200")])
    assert seen_by_the_probe(root, catalogue=own) == seen_by_the_module(root, own)
    assert seen_by_the_module(root, own)["mixed"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: shutil.rmtree(root / "sys"), "sys: no sysfs there, it has no directory 'bus'; mount sysfs or"),
        (lambda root: shutil.rmtree(root / "proc"), "proc/cpuinfo: cannot be read; is procfs mounted"),
        (lambda root: (root / "proc/meminfo").unlink(), "proc/meminfo: cannot be read; is procfs mounted"),
        (lambda root: (root / "proc/meminfo").write_text("MemFree: 1 kB\n"), "meminfo has no line 'MemTotal"),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, spoil, message):
    root = host(tmp_path, HOSTS["HGX H200"])
    spoil(root)
    with pytest.raises(DiscoveryError, match=message):
        parse_probe(run(root))


def test_a_bus_that_cannot_be_listed_is_an_error(tmp_path):
    root = host(tmp_path, [])
    shutil.rmtree(root / "sys/bus/pci/devices")
    (root / "sys/bus/pci/devices").write_text("")
    with pytest.raises(DiscoveryError, match="sys/bus/pci/devices: cannot be listed"):
        parse_probe(run(root))


def test_a_host_without_a_pci_bus_has_no_functions(tmp_path):
    root = host(tmp_path, [])
    shutil.rmtree(root / "sys/bus/pci")
    assert seen_by_the_probe(root) == seen_by_the_module(root)


def test_a_directory_can_have_any_name(tmp_path):
    root = host(tmp_path / "it's $HOME; * here", lines("10de:2335", 1))
    assert seen_by_the_probe(root)["models"] == {"h200": 1}


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_nothing_but_the_shell_sed_and_uname_is_needed(tmp_path, shell):
    path = tmp_path / "bin"
    path.mkdir()
    for program in ("sed", "uname"):
        (path / program).symlink_to(shutil.which(program))
    root = host(tmp_path, HOSTS["HGX H200"], files={"proc/driver/nvidia/version": NVRM})
    assert seen_by_the_probe(root, [shutil.which(shell[0]), *shell[1:]], PATH=str(path)) == seen_by_the_module(root)


def test_a_script_that_is_cut_prints_nothing(tmp_path):
    root = host(tmp_path, [])
    script = probe_script(CATALOGUE, str(root / "sys"), str(root / "proc")).rstrip("\n")
    call = script.rindex("probe /")
    for end in (*range(0, call, 97), call):
        done = subprocess.run(["sh", "-s"], input=script[:end], capture_output=True, text=True, check=False)
        assert done.stdout == ""


def test_words_name_everything_that_counts():
    words = probe_words(CATALOGUE)
    assert {"10de", "10de:2335", "10de:22a3", "10de/0302", "1002/1200"} <= set(words)
    assert MEMINFO and words == sorted(words)


def test_shellcheck_finds_nothing():
    script = probe_script(CATALOGUE)
    done = subprocess.run(["shellcheck", "-s", "sh", "-"], input=script, capture_output=True, text=True, check=False)
    assert done.stdout == ""
