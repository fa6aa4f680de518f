# SPDX-License-Identifier: GPL-3.0-or-later
"""`inference` run as a process, with Ansible behind it; molecule/default runs it against a lab host."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible.release import __version__

from tests.fakes.inference_command import COMMAND, KEPT, TOP, run
from tools.command import main

# ansible-core 2.18 adds words of its own to an error.
IS_OLD = __version__.startswith("2.18.")


def test_the_new_site_is_planned(site):
    done = run("plan", "--json", cwd=site)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is True
    assert {plan["instance"] for plan in document["result"]} == {"chat", "chat-2"}
    assert all(plan["hosts"] == ["gpu-a-01", "gpu-a-02"] for plan in document["result"])


def test_a_new_site_of_virtual_environments_names_the_index_of_wheels(tmp_path):
    for chips, works in (("h200:2", True), ("cpu:1", False)):
        words = ("--hosts", "a=192.0.2.7", "--gateway", "none", "--runtime", "venv", "--accelerators", chips)
        done = run("init", chips[:3], *words, cwd=tmp_path)
        assert done.returncode == 0 and ("set vllm_wheel_index in group_vars/inference.yml" in done.stdout) != works
        done = run("plan", cwd=tmp_path / chips[:3])
        assert (done.returncode == 0) == works, done.stderr
    line = next(
        number
        for number, text in enumerate((tmp_path / "cpu/group_vars/inference.yml").read_text().splitlines(), 1)
        if text.startswith("vllm_wheel_index: ")
    )
    message = rf"a: vllm_wheel_index: found nothing, and .* \(group_vars/inference.yml:{line}\)$"
    assert re.search(message, done.stdout)


def test_the_new_site_keeps_its_keys_to_itself(site):
    assert {path.stat().st_mode & 0o777 for path in (site / ".keys").iterdir()} == {0o600}
    assert (site / ".keys").stat().st_mode & 0o777 == 0o700
    keys = [path.read_text().strip() for path in (site / ".keys").iterdir()]
    others = [path.read_text() for path in site.rglob("*.yml")]
    assert len(set(keys)) == 3
    assert not [text for text in others for key in keys if key in text]
    assert "/.keys/" in (site / ".gitignore").read_text()


def test_the_new_site_is_valid_yaml_with_comments(site):
    for path in site.rglob("*.yml"):
        assert isinstance(yaml.safe_load(path.read_text()), dict)
        assert path.read_text().startswith("---\n# ")


def test_a_host_that_does_not_exist_is_named_and_nothing_runs(site):
    done = run("plan", "gpu-a-09", cwd=site, ANSIBLE_FORCE_COLOR="1")
    assert done.returncode not in (0, main.USAGE)
    told = "target_hosts: no host or group of the inventory is called 'gpu-a-09'; nearest: 'gpu-a-0[12]'"
    assert re.search(told if IS_OLD else f"^{told}\n$", done.stderr)


@pytest.mark.skipif(IS_OLD, reason="an ansible-core of its own words")
@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("hosts.yml", "a: [", r"hosts\.yml:2:1: .*did not find"),
        ("hosts.yml", "- a", r"^/\S+/hosts\.yml: expected groups with their hosts, found a list$"),
        ("hosts.yml", "all: {hosts: [a]}", r'/hosts\.yml: Invalid "hosts" entry for "all" .* found a list instead'),
        (
            "group_vars/all.yml",
            "a: b: c",
            r"group_vars/all\.yml:1:5: Colons in unquoted values .* character, or the indentation is wrong",
        ),
        ("hosts.yml", "inference: {hosts: {gpu-1: {}}}", r"^no host of the inventory is in the group 'gateways'"),
    ],
)
def test_an_error_of_a_site_is_one_sentence_with_its_file(tmp_path, file, text, message):
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "hosts.yml").write_text("gateways: {hosts: {gw-1: {}}}\ninference: {hosts: {gpu-1: {}}}\n")
    (tmp_path / file).write_text(f"{text}\n")
    done = run("key", "add", "reports", cwd=tmp_path)
    told = done.stdout + done.stderr
    assert done.returncode == 4 and re.search(message, told), told
    assert len(told.strip().splitlines()) == 1, told


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "hosts.yml",
            "inference:",
            "inferrence:",
            r"group 'inferrence' .*gpu-a-01, gpu-a-02; nearest: 'inference'$",
        ),
        (
            "hosts.yml",
            '    gw1: {ansible_host: "192.0.2.5"}',
            "    gw1: {gateway_clients: {product: {tema: x, key_file: x}}}\n    gw2: {}",
            r"^gw1: gateway_clients.product: unknown key 'tema'; nearest: 'team' \(hosts.yml:\d+\)$",
        ),
        (
            "group_vars/gateways.yml",
            "gateway_tokens: true",
            "gateway_tokens: 7",
            "gw1: gateway_tokens: found 7, expected",
        ),
    ],
)
def test_a_plan_refuses_a_misspelt_group_and_what_a_gateway_could_not_take(site, tmp_path, file, old, new, message):
    shutil.copytree(site, tmp_path / "s")
    shutil.rmtree(tmp_path / "s/.keys")  # a plan needs no secret
    text = (tmp_path / "s" / file).read_text()
    (tmp_path / "s" / file).write_text(text.replace(old, new, 1))
    assert old in text
    done = run("plan", cwd=tmp_path / "s")
    told = done.stdout + done.stderr
    assert done.returncode and re.search(message, told, re.MULTILINE) and "are valid" not in told, told


def test_a_plan_is_short_and_all_has_the_rest(site):
    short, whole = (run("plan", *words, cwd=site).stdout for words in ((), ("--all",)))
    assert len(short.splitlines()) < 30 and "env.HOME" not in short and "PLAY" not in short
    assert "and 1 like it: chat-2 (listens on 0.0.0.0:8001, chip 1)" in short
    assert "env.HOME" in whole and "vllm serve" in whole


def test_a_plan_says_a_warning_once(site):
    """Below its instance; JSON has them of all in one list, too."""
    done = run("plan", "gpu-a-01", "gpu-a-02", cwd=site)
    told = " ".join((done.stdout + done.stderr).split())
    assert told.count("listens on 0.0.0.0 without an API key") == 1 and not done.stderr, told


def test_a_plan_says_what_it_does_not_judge_of_gateways(site):
    told = (
        "services, clients and limits of the gateways are valid; `inference check gateways` also reads keys, "
        "certificates and ports\n"
    )
    for words in (("gw1",), ("gw1", "--all")):
        done = run("plan", *words, cwd=site)
        assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
    done = run("plan", cwd=site)
    assert done.stdout.endswith(told) and "skipped because" not in done.stderr


def run_on_terminal(*words, cwd):
    """Return the lines that a terminal shows at the end, each without what was removed from it."""
    terminal, end = pty.openpty()
    with subprocess.Popen([*COMMAND, *words], cwd=cwd, env=KEPT, stdin=end, stdout=end, stderr=end) as process:
        os.close(end)
        parts = []
        while select.select([terminal], [], [], 60)[0]:
            try:
                parts.append(os.read(terminal, 65536))
            except OSError:  # the last process has closed it
                break
        process.wait(60)
    os.close(terminal)
    return [line.rstrip("\r").rpartition("\033[K")[2] for line in b"".join(parts).decode().split("\n")]


def test_on_a_terminal_a_line_does_not_begin_with_the_task(site):
    """Actions print in another process than the callback, which shows the task."""
    lines = run_on_terminal("plan", "gpu-a-01", "gpu-a-02", cwd=site)
    assert lines[0] == "chat on gpu-a-01, gpu-a-02", lines


def test_on_a_terminal_a_warning_does_not_begin_with_the_task(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    main.playbooks._relay(["[WARNING]: old\n", "[ERROR]: no\n", "[end]"], False)
    assert capsys.readouterr().err == "\r\033[K[WARNING]: old\n\r\033[Kno\n"


def test_an_error_of_ansible_is_one_sentence_with_its_host(site):
    done = run("key", "list", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=9", cwd=site)
    (line,) = done.stdout.splitlines()[:1]
    assert done.returncode and line.startswith("gw1: ") and ": not reachable: " in line and "127.0.0.1" in line
    assert "fatal:" not in done.stdout and "PLAY" not in done.stdout and "Task failed" not in line


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["plan", "-e", "vllm_runtime=nope"], "gpu-a-01, gpu-a-02, gw1: vllm_runtime: found 'nope'"),
        (["drain", "gpu-a-01", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=9"], ": not reachable: gw1: "),
    ],
)
def test_what_fails_once_for_all_hosts_is_no_failure_of_one_of_them(site, words, line):
    done = run(*words, cwd=site)
    told = done.stdout.splitlines()
    assert done.returncode and line in done.stdout and not [each for each in told if each.startswith("gpu-a-01: ")]
    found = json.loads(run(*words, "--json", cwd=site).stdout)
    assert not found["ok"] and {each["host"] for each in found["errors"]} == {""}, found
    assert not any(counts["failed"] or counts["unreachable"] for counts in found["hosts"].values()), found


def test_status_says_once_why_a_gateway_was_not_read(site):
    done = run("status", "-e", "ansible_host=127.0.0.1", "-e", "ansible_port=9", cwd=site)
    assert done.returncode and done.stdout.count("127.0.0.1 port 9") == 1, done.stdout
    assert "\ngw1 was not read: " in done.stdout and "hosts, " in done.stdout.splitlines()[0]


def test_a_file_that_is_not_utf_8_is_named():
    line = "Failed to parse inventory with 'yaml' plugin: YAML parsing failed: can't encode: surrogates not allowed"
    told = main.playbooks._sentence([f"[WARNING]: {line}\n", "Origin: /site/hosts.yml\n"])
    assert told == "/site/hosts.yml: not UTF-8; save it as UTF-8"


def test_hosts_may_stand_behind_l_too(site):
    done = run("plan", "--json", "-l", "gpu-a-02", cwd=site)
    assert all(plan["hosts"] == ["gpu-a-02"] for plan in json.loads(done.stdout)["result"])


def test_v_prints_the_line_of_ansible_which_does_the_same(site):
    done = run("plan", "-v", "gpu-a-02", "--json", cwd=site)
    line = next(line for line in done.stderr.splitlines() if line.startswith("+ "))
    assert re.search(
        r"^\+ \S*ansible-playbook -i \. \S+/playbooks/explain.yml .*'{\"target_hosts\": \"gpu-a-02\"}'", line
    )


def test_a_json_document_is_one_even_when_the_playbook_fails(site):
    done = run("fit", "--chips", "h2000", "--json", cwd=site)
    document = json.loads(done.stdout)
    assert (document["ok"], done.returncode == 0) == (False, False)
    assert document["errors"][0]["message"]


@pytest.mark.parametrize("words", [("plan", "gpu-a-09"), ("plan", "-e", "@/no"), ("plan",)], ids=" ".join)
def test_a_json_document_has_the_same_keys_where_ansible_runs_no_task(site, words):
    done = run(*words, "--json", cwd=site)
    document = json.loads(done.stdout)
    assert document["status"] == done.returncode
    assert document["ok"] is (done.returncode == 0) is (words == ("plan",))
    keys = {"ok", "hosts", "errors", "messages", "changes", "warnings", "status"}
    assert set(document) - {"result"} == keys | (set() if document["ok"] else {"problem"})


@pytest.mark.parametrize("words", [
    ("stauts",), ("plan", "--al"), ("chat", "a"), ("drain", "--timeout", "x", "a"), ("bench",), ("plan", "-i", "/no"),
    ("init", "/tmp"), ("--json", "plan"), ("key", "add"), ("remove", "a"), ("fit", "gpt"), ("usage", "--format", "x"),
])  # fmt: skip
def test_an_error_of_the_command_line_is_a_document_too(words, tmp_path):
    words = words if "--json" in words else (*words, "--json")
    done = run(*words, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"], document["ok"]) == (64, 64, False)
    assert document["problem"] == document["errors"][0]["message"] == done.stderr.strip()
    assert re.match(rf"inference( {words[0]})?( add)?: ", done.stderr)


def test_a_fault_of_a_gateway_is_one_json_document_too(site, tmp_path):
    """It is found before the run of the servers begins."""
    shutil.copytree(site, tmp_path / "s")
    clients = tmp_path / "s/group_vars/gateways.yml"
    clients.write_text(clients.read_text().replace("gateway_tokens: true", "gateway_tokens: 7", 1))
    done = run("apply", "--json", cwd=tmp_path / "s")
    document = json.loads(done.stdout)
    assert (done.returncode == 0, document["ok"], list(document["hosts"])) == (False, False, ["gw1"])
    assert "gateway_tokens: found 7" in document["errors"][0]["message"]


@pytest.mark.parametrize(
    ("mode", "owner", "of"),
    [(0o1777, 0, "."), (0o777, 0, "."), (0o755, 65534, "."), (0o644, 65534, "hosts.yml"), (0o666, 0, "hosts.yml")],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_directory_of_others_is_a_site_only_when_it_is_named(tmp_path, mode, owner, of):
    """Ansible runs what is executable in an inventory directory; /tmp may hold anybody's."""
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}}}\n")
    planted = tmp_path / "planted"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/harm\necho '{{}}'\n")
    planted.chmod(0o755)
    (tmp_path / of).chmod(mode)
    os.chown(tmp_path / of, owner, 0)
    done = run("plan", cwd=tmp_path)
    assert not (tmp_path / "harm").exists()
    assert done.returncode == main.USAGE
    assert f"no site: {tmp_path} or its hosts.yml belongs to another user" in done.stderr
    run("plan", "-i", ".", cwd=tmp_path)
    assert (tmp_path / "harm").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away")
def test_a_directory_of_root_or_of_a_group_is_a_site(tmp_path):
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}}}\n")
    tmp_path.chmod(0o775)
    assert "no site" not in run("plan", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("words", "books"),
    [
        ([], ["site", "gateway"]),
        (["gpu-a-01"], ["site"]),
        (["gw1"], ["gateway"]),
        (["gw1", "gpu-a-01"], ["site", "gateway"]),
        (["-i", str(TOP / "inventories/example")], ["site"]),
    ],
)
def test_apply_leaves_the_gateways_out_where_there_is_none_or_hosts_are_named(site, words, books):
    done = run("apply", *words, "--", "--list-tasks", cwd=site)
    assert done.returncode == 0, done.stderr
    assert [Path(found).stem for found in re.findall(r"^playbook: (.+)$", done.stdout, re.MULTILINE)] == books


def test_the_answer_of_a_model_moves_no_cursor():
    assert main.playbooks.printable("a\x1b[2Jb\n\x07") == "a\\x1b[2Jb\n\\x07"


@pytest.fixture
def here(tmp_path):
    """A site whose one host is this machine, without an instance."""
    (tmp_path / "hosts.yml").write_text("all: {hosts: {here: {ansible_connection: local}}}\n", encoding="utf-8")
    return tmp_path


def test_an_instance_that_is_not_there_is_named(here):
    done = run("chat", "here", "chat", "hello", cwd=here)
    assert done.returncode
    assert done.stderr.startswith("here chat: instance chat is not installed on this host: /etc/vllm/chat.yaml")


def test_the_journal_of_an_instance_that_never_was_is_no_empty_one(here, tmp_path_factory):
    programs = tmp_path_factory.mktemp("programs")
    (programs / "journalctl").write_text("#!/bin/sh\necho '-- No entries --'\n")
    (programs / "journalctl").chmod(0o755)
    done = run("logs", "here", "chta", cwd=here, PATH=f"{programs}:{KEPT['PATH']}")
    assert done.returncode and not done.stdout
    assert re.fullmatch(
        "here chta: instance chta is not installed on this host: /etc/vllm/chta.yaml is not there; .*\n", done.stderr
    )
    (programs / "journalctl").write_text("#!/bin/sh\necho what a removed instance wrote\n")
    done = run("logs", "here", "chta", cwd=here, PATH=f"{programs}:{KEPT['PATH']}")
    assert (done.returncode, done.stdout) == (0, "what a removed instance wrote\n")


def test_verify_shows_its_table_even_where_every_host_fails(here):
    (here / "host_vars").mkdir()
    (here / "host_vars/here.yml").write_text("vllm_instances: {chat: {}}\nansible_become: false\n", encoding="utf-8")
    done = run("verify", cwd=here)
    assert done.returncode
    assert "host instance passed seconds answer" in " ".join(done.stdout.split())
    assert re.search(r"^here +chat +0 of 1 +0.0 +instance chat is not installed", done.stdout, re.MULTILINE)


def test_the_last_faults_are_rows_of_the_document(here, tmp_path_factory):
    """Also beside a host that was not read, and what a host wrote is no escape sequence."""
    line = "1795000000.5 a vllm-health[7]: chat is sick: xid 64 of 0000:5d:00.0: \x1b[2Jbad (isolate_host)"
    programs = tmp_path_factory.mktemp("programs")
    (programs / "journalctl").write_text(f"#!/bin/sh\necho '{line}'\n")
    (programs / "journalctl").chmod(0o755)
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_retries": 0}
    hosts = {"here": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}, "gone": gone}
    (here / "hosts.yml").write_text(yaml.safe_dump({"inference": {"hosts": hosts}}))
    done = run("status", "--faults", "--json", cwd=here, PATH=f"{programs}:{KEPT['PATH']}")
    document = json.loads(done.stdout)
    text = "xid 64 of 0000:5d:00.0: \\x1b[2Jbad (isolate_host)"
    assert document["faults"] == [{"at": 1795000000, "host": "here", "instance": "chat", "text": text}]
    assert (document["ok"], "gone" in document["errors"][-1]["message"]) == (False, True), document
    document = json.loads(run("status", "--json", cwd=here).stdout)
    assert "faults" not in document
    assert [row["host"] for row in document["fleet"]] == ["gone", "here"] and document["totals"]["states"]["sick"] == 0
    assert document["instances"] == document["services"] == document["changes"] == []


def test_chat_and_logs_print_one_document(here):
    for words in (["chat", "here", "chat", "hello"], ["logs", "here", "chat"]):
        document = json.loads(run(*words, "--json", cwd=here).stdout)
        assert set(document) >= {"ok", "hosts", "errors", "messages", "warnings", "results"}


@pytest.mark.parametrize("words", [["chat", "here", "chat"], ["plan", "--instance"]], ids=" ".join)
def test_no_text_of_a_user_is_a_template(here, words):
    """Somebody's words: a question from a chat, a reason from a ticket."""
    run(*words, f"a{{% if lookup('pipe', 'touch {here}/evaluated') %}}{{% endif %}}", cwd=here)
    assert not (here / "evaluated").exists()


def test_warnings_are_in_the_document(site):
    (site / "other.yml").write_text("spare: {hosts: {gpu-z: {accelerator: h200}}}\n", encoding="utf-8")
    document = json.loads(run("plan", "gpu-z", "--json", "-i", str(site / "other.yml")).stdout)
    (site / "other.yml").unlink()
    assert any("gpu-z" in text for text in document["warnings"])


def test_a_misspelt_switch_of_site_yml_is_named(site):
    done = run("plan", "-e", "site_healht=true", cwd=site)
    assert done.returncode
    assert "site_healht" in done.stdout + done.stderr
    group_vars = site / "group_vars/all.yml"
    group_vars.write_text("site_healht: true\n", encoding="utf-8")
    done = run("plan", cwd=site)
    group_vars.unlink()
    assert "site_healht is not a switch of site.yml; nearest: 'site_health'" in done.stdout + done.stderr
