# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/accept.yml on this host, with a program in place of Python that prints what a burn-in prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.nvidia import h200_host
from tests.fakes.outputs import squeezed
from tests.fakes.wheelhouse import ROOT
from tests.unit.standins import test_amd, test_huawei

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
ROW = {
    "chip": 0,
    "address": "",
    "name": "cpu",
    "size": 1024,
    "lowest": 0.2,
    "highest": 0.4,
    "median": 0.3,
    "windows": [0.3],
}
PRINTS = """#!{python}
import json, sys
sys.stdin.read()
assert json.loads(sys.argv[2])["seconds"] == 1.2, sys.argv
for phase in ("products", "copy"):
    print(json.dumps({{"event": "result", "phase": phase, "value": [{row}]}}))
"""


@pytest.fixture
def host(tmp_path):
    """Return the inventory and the variables of a host without accelerators, and a Python that prints figures."""
    sysfs, proc = tmp_path / "sys", tmp_path / "proc"
    (sysfs / "bus/pci/devices").mkdir(parents=True)
    proc.mkdir()
    (proc / "cpuinfo").write_text("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: A Xeon\nflags\t\t: avx2\n")
    (proc / "meminfo").write_text("MemTotal:       65536000 kB\n")
    python = tmp_path / "python"
    python.write_text(PRINTS.format(python=sys.executable, row={**ROW, "wrong": 0}))
    python.chmod(0o755)
    weights = tmp_path / "models"
    weights.mkdir()
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "accelerator_sysfs_root": str(sysfs),
        "accelerator_proc_root": str(proc),
        "accept_python": str(python),
        "accept_minutes": 0.02,
        "accept_dir": str(tmp_path / "results"),
        "accept_storage_dir": str(weights),
        "accept_storage_bytes": 32 << 20,
    }


def accept(tmp_path, variables, *arguments, hosts=("cpu-1", "cpu-2"), path=""):
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": dict.fromkeys(hosts, variables)}}))
    command = [BIN / "ansible-playbook", "-i", tmp_path / "hosts.json", "playbooks/accept.yml", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment.update(
        ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"), ANSIBLE_NOCOLOR="1", PATH=f"{path}:{BIN}:{os.environ['PATH']}"
    )
    environment["ANSIBLE_COLLECTIONS_PATH"] = str(ROOT / ".collections")
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def result(variables):
    (path,) = Path(variables["accept_dir"]).glob("*.json")
    return json.loads(path.read_text()), path


def test_a_host_is_accepted_and_two_files_say_why(tmp_path, host):
    done = accept(tmp_path, host, "-l", "cpu-1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu-1: accepted" in done.stdout
    assert "not tried: chat (no instance of vLLM is installed)" in done.stdout
    document, path = result(host)
    assert (document["host"], document["accepted"], document["minutes"]) == ("cpu-1", True, 0.02)
    assert document["burn_in"]["measured"]["products"][0]["median"] == 0.3
    assert document["storage"]["gb_per_s"] > 0
    assert path.with_suffix(".html").is_file()
    assert list(Path(host["accept_storage_dir"]).iterdir()) == []
    assert document["driver"] == {}


@pytest.mark.long
def test_two_hosts_and_a_figure_that_falls_short_is_named(tmp_path, host):
    network = {"accept_peer": "cpu-2", "accept_peer_address": "127.0.0.1", "accept_network_gbit_per_s": 1e9}
    jobs = tmp_path / "async"
    jobs.mkdir()
    done = accept(tmp_path, {**host, **network, "ansible_async_dir": str(jobs)}, "-l", "cpu-1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cpu-1 is not accepted: network: " in done.stdout
    document, _path = result(host)
    (finding,) = document["findings"]
    assert (finding["where"], finding["unit"], finding["expected"]) == ("network", "Gbit/s", 1e9)
    assert document["network"]["peer"] == "cpu-2"
    assert list(jobs.iterdir()) == []


# While the chip works, its tool begins to report memory errors and heat.
BREAKS = """#!{python}
import json, pathlib, sys
report = pathlib.Path("{report}")
text = report.read_text().replace("<dram_correctable>0<", "<dram_correctable>3<", 1)
hot = "<clocks_event_reasons_counters_hw_therm_slowdown>{{}} us<"
report.write_text(text.replace(hot.format(0), hot.format(250)))
for phase, median in (("products", 512), ("copy", 4.25)):
    value = [{{**{row}, "median": median}}]
    print(json.dumps({{"event": "result", "phase": phase, "value": value}}))
print(json.dumps({{"event": "failed", "what": "CUDA error: an illegal instruction was encountered"}}))
sys.exit(1)
"""


def test_a_real_h200s_recording_that_falls_short_in_every_way(tmp_path, host):
    tree = h200_host(tmp_path / "gpu")
    report = tree / "bin/answers/nvidia-smi.1.out"
    python = Path(host["accept_python"])
    python.write_text(BREAKS.format(python=sys.executable, report=report, row={**ROW, "wrong": 0}))
    (tree / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: avx2\n")
    (tree / "proc/meminfo").write_text("MemTotal:       65536000 kB\n")
    roots = {"accelerator_sysfs_root": str(tree / "sys"), "accelerator_proc_root": str(tree / "proc")}
    done = accept(tmp_path, {**host, **roots}, "-l", "gpu-1", hosts=("gpu-1",), path=tree / "bin")
    assert done.returncode == 2, done.stdout + done.stderr
    document, _path = result(host)
    assert (document["accelerator"]["model"], document["driver"]["driver"]["version"]) == ("h200", "580.159.04")
    chip = "chip 0000:00:06.0"
    found = [f"{row['where']}: {row['what']}" for row in document["findings"]]
    for sentence in (
        "burn-in: the burn-in failed: CUDA error: an illegal instruction was encountered",
        f"{chip}: bf16 matrix products at 512 TFLOP/s, 0.65 of the expected 790 (measured: one H200 SXM, 700 W, driver "
        "580.159.04), at least 0.8 is acceptable",
        f"{chip}: ECC DRAM correctable rose from 0 to 3 during the burn-in",
        f"{chip}: it was slowed down during the burn-in (hw_therm_slowdown, at up to 41 C)",
    ):
        assert sentence in found
        assert sentence in done.stdout.replace("\n", "")
    # The driver's findings are those of this very system, which is no Ubuntu.
    assert not [sentence for sentence in found if sentence.startswith(chip) and "copies" in sentence]


# The tool of another vendor, and a burn-in of eight chips, one of which begins to report memory errors.
TOOL = """#!{python}
import sys
from pathlib import Path
sys.path.insert(0, "{top}")
from tests.standins.place import Place
from tests.standins.tool import answer
said = answer(Path(sys.argv[0]).name, sys.argv[1:], Place(Path("{root}")))
sys.stdout.write(said.out)
sys.stderr.write(said.err)
sys.exit(said.rc)
"""
WEARS = """#!{python}
import json, pathlib, sys
pathlib.Path("{state}/ecc").write_text("{chip} 2")
for phase, median in (("products", {products}), ("copy", {copy})):
    value = [{{**{row}, "chip": number, "median": median}} for number in range(8)]
    print(json.dumps({{"event": "result", "phase": phase, "value": value}}))
"""


@pytest.mark.long
@pytest.mark.parametrize(("name", "model"), [("mi300x", "mi300x"), ("atlas_a2", "ascend_a2")])
def test_a_stand_in_of_another_vendor_with_a_chip_that_reports_memory_errors(tmp_path, host, name, model):
    amd = name == "mi300x"
    root = tmp_path / "machine"
    root.mkdir()
    place = test_amd.host(root, name) if amd else test_huawei.installed(test_huawei.host(root, name))
    (place.proc / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Xeon\nflags\t\t: avx2\n")
    (place.proc / "meminfo").write_text("MemTotal:       65536000 kB\n")
    tool = tmp_path / "bin" / ("amd-smi" if amd else "npu-smi")
    tool.parent.mkdir()
    tool.write_text(TOOL.format(python=sys.executable, top=ROOT, root=root))
    tool.chmod(0o755)
    chips = place.machine().chips()
    figures = {"products": 700, "copy": 4.2} if amd else {"products": 250, "copy": 1.1}
    wears = WEARS.format(python=sys.executable, state=place.state, chip=chips[3], row={**ROW, "wrong": 0}, **figures)
    Path(host["accept_python"]).write_text(wears)
    roots = {"accelerator_sysfs_root": str(place.sys), "accelerator_proc_root": str(place.proc)}
    done = accept(tmp_path, {**host, **roots}, "-l", "gpu-1", hosts=("gpu-1",), path=tool.parent)
    assert done.returncode == 2, done.stdout + done.stderr
    document, _path = result(host)
    assert (document["accelerator"]["model"], document["accelerator"]["count"]) == (model, 8)
    rose = [row["where"] for row in document["findings"] if " rose from 0 to 2 during the burn-in" in row["what"]]
    assert rose == [f"chip {chips[3]}"]
    assert len(document["figures"]) == 16
    assert not [row for row in document["findings"] if row["where"].startswith("chip ") and "rose" not in row["what"]]


def test_check_mode_runs_and_writes_nothing(tmp_path, host):
    done = accept(tmp_path, host, "-l", "cpu-1", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not tried: burn-in (check mode runs nothing)" in done.stdout
    assert not Path(host["accept_dir"]).exists()


@pytest.mark.long
def test_no_torch_is_a_finding_and_a_new_host_without_a_directory_for_weights_is_none(tmp_path, host):
    variables = {**host, "accept_python": "/nowhere/python", "weights_root": str(tmp_path / "weights")}
    del variables["accept_storage_dir"]
    done = accept(tmp_path, variables, "-l", "cpu-1")
    assert done.returncode == 2
    assert f"not tried: storage ({tmp_path}/weights is not a directory on this host" in done.stdout
    assert [finding["where"] for finding in result(host)[0]["findings"]] == ["burn-in"]
    assert "cpu-1 is not accepted: burn-in: accept_python: /nowhere/python is not a program on this host" in done.stdout


@pytest.mark.parametrize(
    ("changes", "arguments", "sentence"),
    [
        ({}, [], "This would put every host in the inventory under full load. Limit it with -l HOST"),
        ({"accept_minutes": "long"}, ["-l", "cpu-1"], "accept_minutes: found 'long', expected a number from 0 on"),
        ({"accept_minute": 2}, ["-l", "cpu-1"], "accept_minute: accept.yml has no variable of this name"),
        ({"accept_peer": "gone"}, ["-l", "cpu-1"], "accept_peer: 'gone' is not a host of the inventory"),
        ({"accept_peer": "cpu-2"}, ["-l", "all"], "accept_peer: "),
        (
            {"accept_dir": "/proc/results"},
            ["-l", "cpu-1"],
            "accept_dir: no result can be written to /proc/results on the",
        ),
    ],
)
def test_wrong_options_end_before_anything_is_run(tmp_path, host, changes, arguments, sentence):
    done = accept(tmp_path, {**host, **changes}, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert squeezed(sentence) in squeezed(done.stdout + done.stderr)
    assert "Put the chips under full load" not in done.stdout
