# SPDX-License-Identifier: GPL-3.0-or-later
"""Verbs and options of `inference`: what is on its page, in its help and its completion, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.fakes.inference_command import TOP, run
from tools.command import main
from tools.command.main import value_of
from tools.command.playbooks import VERBS


def test_every_variable_is_one_of_its_playbooks():
    """A variable that a playbook does not read would be an option that does nothing."""
    for name, verb in ((name, verb) for name, verb in VERBS.items() if not verb.run):
        text = "".join((TOP / f"playbooks/{book}.yml").read_text(encoding="utf-8") for book in verb.playbooks)
        text += "".join(path.read_text(encoding="utf-8") for path in (TOP / "playbooks/vars").glob("*.yml"))
        text += "".join(path.read_text(encoding="utf-8") for path in (TOP / "plugins/plugin_utils").rglob("*.py"))
        options = (*verb.words.values(), *verb.options.values())
        variables = {verb.hosts, verb.json, *(option["variable"] for option in options)}
        for variable in variables - {"", None, "-l"}:
            assert re.search(rf"\b{variable}\b", text), f"{name}: {variable}"


def test_an_old_python_is_named_in_one_sentence():
    """Before the import of anything that it lacks."""
    program = f"import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_path({str(TOP / 'bin/inference')!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"inference: found Python \S+, expected 3.11 or newer; activate the .*\n", done.stderr)


def test_every_verb_is_on_its_page():
    page = (TOP / "docs/operate/command.md").read_text(encoding="utf-8")
    verbs = [*VERBS, "lab up", "lab down", "completion bash", "completion zsh"]
    verbs = [name for name in verbs if name not in ("lab", "completion")]
    assert [name for name in verbs if f"`{name}" not in page and f"inference {name}" not in page] == []


def test_its_page_names_the_verbs_without_site_or_document():
    page = (TOP / "docs/operate/command.md").read_text(encoding="utf-8")
    for part, said in (("site", "have no site"), ("json", "have no `--json`")):
        (names,) = re.findall(rf"((?:`\w+`(?:, | and )?)+) {said}", page)
        assert re.findall(r"`(\w+)`", names) == [name for name, verb in VERBS.items() if part not in verb.common]


def test_the_command_stays_small():
    """It chooses playbooks and variables; what decides more belongs to a playbook."""
    files = [TOP / "bin/inference", *(TOP / "tools/command").glob("*.py")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= 600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stauts"], "nearest: status"),
        (["fit", "--modles", "a/b"], "nearest: --models"),
        # plan has no --force: the nearest of its own, or none.
        (["plan", "--forec"], "unrecognized arguments: --forec. `inference plan -h` lists what"),
        (["plan", "--instanse", "a"], "nearest: --instance"),
        (["key", "lst"], "nearest: list"),
        (["key", "add", "a", "--taem", "b"], "nearest: --team"),
        (["drain", "a", "--timeout", "5m"], "--timeout: found '5m', expected seconds"),
        (["drain", "a", "--timeout", "soon"], "found 'soon', expected seconds. `inference drain -h` lists what"),
        (["fit", "openai/gpt-oss-20b"], "unrecognized arguments: openai/gpt-oss-20b. `inference fit -h` lists what"),
        (["key", "list", "--nonsense=1"], "`inference key list -h` lists what"),
        ([], "VERB. `inference -h` lists what"),
        (["drain"], "drain takes exactly one of HOST, --instance; found none"),
        (["undrain", "a", "--instance", "b"], "found HOST and --instance"),
        (["bench"], "bench would concern every host: name HOST"),
        (["remove"], "remove would concern every host"),
        (["remove", "a"], "takes exactly one of --instance, --model, --environment, --image, --everything; found none"),
        (["rollback"], "rollback takes exactly one of HOST, --rollout; found none"),
        (["render"], "render needs --directory. `inference render -h` lists what there is"),
        (["-i", "x", "plan"], "-i stands before the verb; options follow it, as in `inference plan -i`"),
        (["plan", "-i", "a", "-i", "b"], "-i stands there 2 times: name one site"),
        (["plan", "-e", '{"a":'], "is no JSON"),
        (["plan", "-e", "nonsense"], "found 'nonsense', expected NAME=VALUE, JSON or @FILE"),
        (["plan", "-e", "@nope.yml"], "'nope.yml' is no file"),
        (["plan", ""], "found nothing, expected a value"),
        (["fit", "--chips", ""], "found nothing, expected a value"),
        (["logs", "a", "b", "-n", "-5"], "-n/--lines: found '-5', expected a number"),
        (["logs", "a", "b", "-l", "c"], "unrecognized arguments: -l c"),
        (
            ["chat", "-i", "{full}/../hosts.yml", "gpu-9", "chat", "hello"],
            "no host of the site matches 'gpu-9'; nearest: 'gpu-1'",
        ),
        (["apply", "-i", "{full}/../hosts.yml", "gpu-9"], "no host of the site matches 'gpu-9'; nearest: 'gpu-1'"),
        (
            ["apply", "-i", "{full}/../hosts.yml", "gpu-1"],
            "none of these is in the group inference, mirrors or gateways",
        ),
        (["key", "add"], "NAME"),
        (["logs", "a", "../b"], "INSTANCE: found '../b', expected the name of an instance"),
        (["logs", "a", "b", "--since", "now; reboot"], "expected a time such as"),
        (["usage", "--since", "yesterdy"], "--since: found 'yesterdy', expected a time such as -1h or"),
        (["lab", "up", "--", "-f", "1"], "lab runs nothing of Ansible that could take -f"),
        (["plan"], "no site: {empty} has no hosts.yml; name one with -i DIR"),
        (["plan", "-i", "nowhere"], "-i nowhere: there is no such file or directory"),
    ],
)
def test_a_wrong_line_is_one_sentence(tmp_path, words, message):
    empty, full = tmp_path / "empty", tmp_path / "full"
    for directory in (empty, full):
        directory.mkdir()
    (full / "file").touch()
    (tmp_path / "hosts.yml").write_text("all: {hosts: {gpu-1: }}\n", encoding="utf-8")
    done = run(*(word.replace("{empty}", str(empty)).replace("{full}", str(full)) for word in words), cwd=empty)
    assert done.returncode == main.USAGE
    assert message.replace("{empty}", str(empty)) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"file", "hosts.yml"}


def test_completion_knows_verbs_and_options():
    script = run("completion", "bash").stdout
    asked = 'COMP_WORDS=(inference "$@"); COMP_CWORD=$#; _inference; printf "%s\\n" "${COMPREPLY[@]}"'

    def complete(*words):
        return subprocess.run(
            ["bash", "-c", f"{script}\n{asked}", "bash", *words], capture_output=True, text=True, check=True
        ).stdout.split()

    assert complete("dr") == ["drain"]
    assert complete("drain", "--re") == ["--reason"]
    assert complete("key", "") == ["add", "list", "end", "-h", "--help"]
    assert "--team" in complete("key", "add", "alice", "--t") and not complete("key", "end", "alice", "--t")
    assert run("completion", "zsh").stdout == script


def parser_of(parser, verb):
    for word in verb.split():
        parser = parser._subparsers._group_actions[0].choices[word]
    return parser


@pytest.mark.parametrize(
    ("verb", "text"), [("lab", "up or down"), ("completion", "bash or zsh"), ("usage", "table or csv")]
)
def test_the_help_names_the_words_to_choose_from(verb, text):
    assert text in parser_of(main.make_parser(), verb).format_help()


def test_the_script_of_completion_has_every_verb_and_option():
    """tools/command/completion.bash. To write it again: copy what this test expects."""
    parser = main.make_parser()
    words = {"": main.words_of(parser)}
    words |= {name: main.words_of(parser_of(parser, name)) for name in parser._subparsers._group_actions[0].choices}
    words |= {name: main.words_of(parser_of(parser, name)) for name in VERBS if name.startswith("key ")}
    lines = [f"    '{name}') listed='{' '.join(listed)}' ;;" for name, listed in words.items()]
    script = (TOP / "tools/command/completion.bash").read_text(encoding="utf-8")
    assert [line for line in script.splitlines() if " listed='" in line] == lines


@pytest.mark.parametrize(
    "text", ["-1h", "30d", "2h30min", "yesterday", "03:00", "2026-11", "2026-11-28", "2026-11-28T03:00:00Z"]
)
def test_a_time_is_what_journalctl_and_the_gateways_take(text):
    assert value_of("TIME")(text) == text
