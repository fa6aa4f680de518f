# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.files_host import locked, publish
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import UnreadableError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning import record as _record
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import ProvisionError
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.record import Record, RecordFile

FIRST = Record("order1", "ssh-ed25519 AAAA", "SRV1", "serial number S1", "debian13", "build1")


def test_a_record_is_kept_finished_and_removed(tmp_path):
    file = RecordFile(tmp_path / "provisioned.yml")
    assert file.read() == {}
    file.note("gpu-01", FIRST)
    file.note("gpu-02", Record("order2"))
    file.finish("gpu-01", "2026-11-28T18:00:00Z")
    assert file.read()["gpu-01"].done == "2026-11-28T18:00:00Z"
    assert file.read()["gpu-02"] == Record("order2")
    file.remove("gpu-01")
    assert list(file.read()) == ["gpu-02"]


@pytest.mark.slow
def test_the_record_is_an_inventory_of_its_own(tmp_path):
    RecordFile(tmp_path / "provisioned.yml").note("gpu-01", FIRST)
    words = [sys.executable, "-m", "ansible", "inventory", "-i", str(tmp_path), "--host", "gpu-01"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["provisioned"]["bmc_serial"] == "SRV1"


@pytest.mark.parametrize(
    "text", ["- 1", "all: {}", "all: {hosts: {a: {provisioned: {order: 1}}}}", "all: {hosts: {a: 1}}"]
)
def test_another_file_is_never_taken_for_the_record(tmp_path, text):
    path = tmp_path / "provisioned.yml"
    path.write_text(text)
    with pytest.raises(ProvisionError, match=r"provisioned\.yml: "):
        RecordFile(path).note("gpu-01", FIRST)
    assert path.read_text() == text


def test_two_runs_never_work_with_one_record(tmp_path, monkeypatch):
    monkeypatch.setattr(_record, "WAIT", 0.05)
    file, shown, order = RecordFile(tmp_path / "provisioned.yml"), [], []

    def second():
        with file.held(shown.append):
            order.append("second")

    thread = threading.Thread(target=second)
    with file.held(shown.append):
        thread.start()
        while not shown:
            time.sleep(0.01)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert "waits for the other run that works with it: process " in shown[0]


def test_what_is_no_yaml_is_named(tmp_path):
    (tmp_path / "provisioned.yml").write_text("a: [")
    with pytest.raises(UnreadableError, match="provisioned"):
        RecordFile(tmp_path / "provisioned.yml").read()


def test_the_threads_of_one_run_wait_for_each_other_in_turn_however_many_hosts_it_has(tmp_path, monkeypatch):
    """The lock of the file is for other runs: its wait has an end, and nothing says whose turn is next."""
    monkeypatch.setattr(_record, "locked", lambda path, wait: locked(path, wait=0))
    monkeypatch.setattr(_record, "publish", lambda *words: (time.sleep(0.01), publish(*words)))
    file = RecordFile(tmp_path / "provisioned.yml")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: file.note(f"gpu-{number}", FIRST), range(16)))
    assert len(file.read()) == 16
