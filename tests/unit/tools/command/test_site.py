# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference init`: what it writes and refuses. All tests but three answer what it asks of Ansible in this process."""

from __future__ import annotations

import argparse
import json
import re
import shutil

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import RECIPES, known_names
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.runtime import DEFAULT_RELEASES

from tests.fakes.actions import run_action
from tests.fakes.inference_command import TOP, run
from tests.fakes.own_chip import ACME
from tests.unit.tools.command.conftest import SERVERS
from tools.command import main
from tools.command.playbooks import run_ad_hoc
from tools.command.site import RELEASES

FOUR = ("h200", 8, "cuda")


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The trial of a model without a start of Ansible."""

    def answer(_given, _words, module, arguments):
        paths = {name: [] for name in arguments if name.endswith("_path")}
        try:
            found = run_action(module.rpartition(".")[2], {**arguments, **paths}, {})
        except AnsibleActionFail as exc:
            return {"results": {}, "errors": [{"host": "localhost", "message": str(exc)}]}
        return {"results": {"localhost": found}, "errors": []}

    monkeypatch.setattr(main.site.playbooks, "run_ad_hoc", answer)


def test_detected_accelerators_are_written(tmp_path, monkeypatch):
    found = {"gpu-a-01": FOUR}
    monkeypatch.setattr(main.site, "detect", lambda given, servers, user: found if user == "ops" else {})
    assert main.main(["init", str(tmp_path / "s"), "--hosts", SERVERS, "--login", "ops", "--gateway", "none"]) == 0
    text = (tmp_path / "s/hosts.yml").read_text()
    assert "accelerator: h200, accelerator_count: 8" in text
    assert "# What gpu-a-02 has is not known" in text
    assert not (tmp_path / "s/group_vars/gateways.yml").exists()


def test_the_servers_are_asked_for_their_accelerators(tmp_path):
    """As a user runs it; one server is this machine, the other one cannot be reached."""
    hosts = ("--hosts", "here=127.0.0.1,gone=127.0.0.2", "--gateway", "none")
    connection = "{{ 'local' if inventory_hostname == 'here' else 'ssh' }}"
    variables = json.dumps({"ansible_connection": connection, "ansible_port": 9})
    done = run("init", str(tmp_path / "s"), *hosts, "-e", variables)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^gone: .*127\.0\.0\.2", done.stdout, re.MULTILINE)
    written = yaml.safe_load((tmp_path / "s/hosts.yml").read_text())["inference"]["hosts"]
    assert (set(written["here"]) > {"accelerator"}, "accelerator" in written["gone"]) == (True, False)


def test_a_new_site_pins_the_release_of_its_chips(tmp_path, monkeypatch):
    assert RELEASES == DEFAULT_RELEASES
    found = {"gpu-a-01": FOUR, "gpu-a-02": ("ascend_a3", 16, "cann")}
    monkeypatch.setattr(main.site, "detect", lambda *given: found)
    assert main.main(["init", str(tmp_path / "s"), "--hosts", SERVERS]) == 0
    hosts = yaml.safe_load((tmp_path / "s/hosts.yml").read_text())["inference"]["hosts"]
    assert {name: host["vllm_release"] for name, host in hosts.items()} == {"gpu-a-01": "0.33.0", "gpu-a-02": "0.30.0"}
    assert "vllm_release" not in yaml.safe_load((tmp_path / "s/group_vars/inference.yml").read_text())


def test_accelerators_may_be_named_where_no_server_can_be_asked(tmp_path, capsys):
    words = ["--hosts", SERVERS, "--gateway", "none", "--accelerators", "ascend_a3:16"]
    assert main.main(["init", str(tmp_path / "s"), *words]) == 0
    assert "Asking" not in capsys.readouterr().out
    hosts = yaml.safe_load((tmp_path / "s/hosts.yml").read_text())["inference"]["hosts"]
    assert {(host["accelerator"], host["accelerator_count"]) for host in hosts.values()} == {("ascend_a3", 16)}
    assert yaml.safe_load((tmp_path / "s/group_vars/inference.yml").read_text())["vllm_release"] == RELEASES["cann"]


def test_each_recipe_may_be_named():
    """One that lists no chip, too: what init asks has a trial of each."""
    names = known_names("recipes", RECIPES, ())
    trials = run_action("recipe_trial", {"recipes": names, "accelerators": ["cpu"]}, {})["trials"]
    assert {trial["recipe"] for trial in trials} == {*names}


def test_a_server_that_never_answers_keeps_nobody_from_the_others(tmp_path, monkeypatch, capsys):
    """It lets ssh in, and then says nothing."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 30\n")
    ssh.chmod(0o755)
    monkeypatch.setattr(main.site.playbooks, "run_ad_hoc", run_ad_hoc)
    monkeypatch.setitem(main.site.TABLE, "patience", "5")
    monkeypatch.setenv("ANSIBLE_SSH_EXECUTABLE", str(ssh))
    connection = "{{ 'local' if inventory_hostname == 'here' else 'ssh' }}"
    variables = json.dumps({"ansible_connection": connection})
    given = argparse.Namespace(verbose=[], extra_vars=[variables], passed_on=[])
    found = main.site.detect(given, [("here", "127.0.0.1"), ("mute", "127.0.0.2")], "root")
    assert list(found) == ["here"]
    assert re.search(r"^mute: .*\b5\b", capsys.readouterr().out, re.MULTILINE)


def test_a_recipe_and_a_chip_of_the_site_may_be_named(tmp_path):
    """The directories that vllm_recipe_path and accelerator_catalog_path name count, as they do for fit."""
    (tmp_path / "recipes/org").mkdir(parents=True)
    shutil.copy(TOP / "catalog/recipes/openai/gpt-oss-20b.yml", tmp_path / "recipes/org/own.yml")
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips/acme.yml").write_text(ACME)
    paths = {"vllm_recipe_path": [str(tmp_path / "recipes")], "accelerator_catalog_path": [str(tmp_path / "chips")]}
    words = ("--hosts", "a", "--gateway", "none", "--model", "org/own", "--accelerators", "rocket:8")
    done = run("init", str(tmp_path / "s"), *words, "-e", json.dumps(paths))
    assert done.returncode == 0, done.stderr
    assert "accelerator: rocket, accelerator_count: 8" in (tmp_path / "s/hosts.yml").read_text()


def test_an_answer_without_a_trial_is_one_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(main.site.playbooks, "run_ad_hoc", lambda *_asked: {"results": {}, "errors": []})
    words = ["--hosts", "a", "--gateway", "none", "--accelerators", "h200:8"]
    assert main.main(["init", str(tmp_path / "s"), *words]) == main.USAGE
    assert "--model: Ansible's answer has no trial of this model" in capsys.readouterr().err


def test_the_site_to_read_is_what_init_writes(tmp_path, monkeypatch):
    """inventories/four-servers, without the keys. To write it again: copy what this test writes."""
    monkeypatch.setattr(main.site, "detect", lambda given, servers, user: {name: FOUR for name, _address in servers})
    servers = ",".join(f"gpu-a-0{number}=192.0.2.1{number}" for number in range(1, 5))
    assert main.main(["init", str(tmp_path / "s"), "--hosts", servers, "--gateway", "gw-1=192.0.2.10"]) == 0
    written, kept = (
        {path.relative_to(top).as_posix(): path.read_text() for path in top.rglob("*") if path.is_file()}
        for top in (tmp_path / "s", TOP / "inventories/four-servers")
    )
    assert {name: text for name, text in written.items() if not name.startswith(".keys/")} == kept


@pytest.mark.parametrize(("count", "known"), [(8, 8), ("x", 1), ([], 1), (10**9, 1), (-1, 1), (True, 1)])
def test_a_server_names_no_number_of_chips_that_no_server_has(monkeypatch, count, known):
    document = {"results": {"gpu-a-01": {"accelerator": {"model": "h200", "count": count}}}, "errors": []}
    monkeypatch.setattr(main.site.playbooks, "run_ad_hoc", lambda *_asked: document)
    assert main.site.detect(None, [("gpu-a-01", "192.0.2.10")], "root")["gpu-a-01"][1] == known


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["init", "{empty}", "--hosts", "True=192.0.2.1"],
            "found 'True=192.0.2.1', a word that YAML or Ansible reads as",
        ),
        (["init", "{empty}", "--hosts", "a,None"], "found 'None'"),
        (["init", "{empty}", "--hosts", "a", "--gateway", "all"], "--gateway: expected none or NAME=ADDRESS"),
        (["init", "{empty}", "--hosts", "a", "--gateway", "none", "--teams", "x"], "only a gateway has teams"),
        (["init", "{empty}", "--hosts", "a", "--gateway", "b", "--teams", "x,x"], "--teams: x stands there twice"),
        (
            ["init", "{empty}", "--hosts", "a", "--gateway", "b", "--teams", "x,no"],
            "such as product, found 'no', a word",
        ),
        (["init", "{empty}", "--hosts", "a", "--gateway", "b", "--teams", "2026-11-29"], "--teams: expected names"),
        (["init", "{empty}", "--hosts", "a=1.2.3.4,b=1.2.3.4"], "a=1.2.3.4 and b=1.2.3.4: one host has one name"),
        (["init", "{empty}", "--hosts", "a=1.2.3.4", "--gateway", "a=1.2.3.5"], "a=1.2.3.5 and a=1.2.3.4: one host"),
        (["init", "{empty}", "--hosts", "a", "--login", "on"], "such as root, found 'on', a word"),
        (["init", "{full}/file/x", "--hosts", "a", "--no-detect"], "Not a directory"),
        (["init", " ", "--hosts", "a"], "found nothing, expected a value"),
        (["init", "{empty}", "--hosts", "a=10.0.0.999"], "such as gpu-a-01=192.0.2.10, found 'a=10.0.0.999'"),
        (["init", "{empty}", "--no-detect"], "--hosts is missing: expected names such as gpu-a-01=192.0.2.10"),
        (["init", "{empty}", "--hosts", "a b"], "--hosts: expected names such as gpu-a-01=192.0.2.10, found 'a b'"),
        (["init", "{empty}", "--hosts", "a,a", "--no-detect"], "--hosts: a stands there twice"),
        (["init", "{empty}", "--hosts", "a", "--model", "gpt"], "--model: expected ORGANISATION/NAME, found 'gpt'"),
        (
            ["init", "{empty}", "--hosts", "a", "--model", "openai/gpt-oss-2b"],
            "--model: no recipe 'openai/gpt-oss-2b' in {top}/catalog/recipes; nearest: 'openai/gpt-oss-20b'",
        ),
        (["init", "{empty}", "--hosts", "a", "--model", "OpenAI/GPT-OSS-20B"], "nearest: 'openai/gpt-oss-20b'"),
        (["init", "{empty}", "--hosts", "a", "--model", "qwen/qwen3-8b"], "nearest of vLLM's own: 'Qwen/Qwen3-8B'"),
        (
            ["init", "{empty}", "--hosts", "a", "--accelerators", "h20o:8"],
            "--accelerators: found 'h20o:8', which is in no file of the catalogue; nearest: 'h20'",
        ),
        (["init", "{empty}", "--hosts", "a", "--accelerators", "h200:0"], "--accelerators: found 'h200:0', expected"),
        (["init", "{empty}", "--hosts", "a", "--accelerators", "h200"], "found 'h200', expected a chip and its number"),
        (["init", "{full}", "--hosts", "a"], "exists and is not empty"),
        (["init", "{empty}", "--hosts", "a", "--accelerators", "rocket:8"], "the catalogue; none of "),
    ],
)
def test_a_wrong_answer_is_one_sentence(tmp_path, monkeypatch, capsys, words, message):
    empty, full = tmp_path / "empty", tmp_path / "full"
    for directory in (empty, full):
        directory.mkdir()
    (full / "file").touch()
    monkeypatch.chdir(empty)
    given = [word.replace("{empty}", str(empty)).replace("{full}", str(full)) for word in words]
    try:
        status = main.main(given)
    except SystemExit as exc:
        status = exc.code
    error = capsys.readouterr().err
    assert status == main.USAGE
    assert message.replace("{top}", str(TOP)) in error
    assert len(error.strip().splitlines()) == 1, error
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]
