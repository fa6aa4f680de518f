# SPDX-License-Identifier: GPL-3.0-or-later
"""What --check says is what the run would find: sources of weights, encodings, wheels and images are asked, too."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.fakes.inventory_plugin import TOP, command
from tests.fakes.outputs import squeezed

CLOSED = "http://127.0.0.1:9"
DIGEST = "0" * 64
MODEL = {"repository": "org/tiny", "revision": "0" * 40, "files": {"config.json": {"size": 2, "sha256": DIGEST}}}
NO_ANSWER = {
    "weights": f"org/tiny revision {'0' * 40}: no source has its 1 missing file",
    "encodings": "no source has cl100k_base.tiktoken",
}


def check(tmp_path, role, *words, **variables):
    """Run a role as site.yml does in check mode: first its preflight, then itself."""
    tasks = [{"ansible.builtin.include_role": {"name": f"baremetal.inference.{role}", "tasks_from": "preflight"}},
             {"ansible.builtin.include_role": {"name": f"baremetal.inference.{role}"}}]  # fmt: skip
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    options = {
        "ansible_become": False,
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "weights_root": str(tmp_path / "models"),
        "weights_models": [MODEL],
        "weights_sources": [CLOSED],
        "encodings_dir": str(tmp_path / "encodings"),
        "encodings_files": ["cl100k_base.tiktoken"],
        "encodings_sources": [CLOSED],
        **variables,
    }
    words = ("ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml"), "-e", json.dumps(options), *words)
    return command(tmp_path, *words, ANSIBLE_REMOTE_TMP=str(tmp_path / "tmp"), no_proxy="127.0.0.1")


@pytest.mark.parametrize("role", NO_ANSWER)
def test_a_source_that_does_not_answer_fails_in_check_mode(role, tmp_path):
    done = check(tmp_path, role, "--check")
    told = squeezed(done.stdout + done.stderr)
    assert done.returncode == 2, told
    assert squeezed(NO_ANSWER[role]) in told


@pytest.mark.parametrize("role", NO_ANSWER)
def test_a_mirror_that_the_run_would_install_is_not_asked(role, tmp_path):
    done = check(tmp_path, role, "--check", inference_awaits_mirror=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert check(tmp_path, role, inference_awaits_mirror=True).returncode == 2


def test_no_option_leaves_a_check_out_in_check_mode():
    for path in sorted(TOP.glob("roles/*/defaults/main.yml")):
        for name, value in (yaml.safe_load(path.read_text()) or {}).items():
            if "ansible_check_mode" in str(value):
                awaits = "inference_awaits_mirror | default(false) | bool"
                assert value == "{{ not (ansible_check_mode and " + awaits + ") }}", name


def test_the_playbook_knows_the_mirrors_that_it_would_install(tmp_path):
    text = (TOP / "playbooks/vars/site.yml").read_text()
    (tmp_path / "vars.yml").write_text(text)
    register = {"ansible.builtin.debug": {"msg": "x"}, "register": "mirror_to_install", "changed_when": "lacks | bool"}
    shown = {"ansible.builtin.debug": {"msg": "awaits={{ inference_awaits_mirror | bool }}"}}
    plays = [
        {"hosts": "mirrors", "gather_facts": False, "tasks": [{**register, "when": "runs | bool"}]},
        {"hosts": "h1", "gather_facts": False, "vars_files": ["vars.yml"], "tasks": [shown]},
    ]
    (tmp_path / "play.yml").write_text(json.dumps(plays))
    for number, (lacks, runs, awaits) in enumerate([("yes", "yes", True), ("no", "yes", False), ("yes", "no", False)]):
        hosts = {"h1": {}, "m1": {"lacks": lacks, "runs": runs}, "m2": {"lacks": "no", "runs": "no"}}
        groups = {"mirrors": {"hosts": {"m1": {}, "m2": {}}}}
        (tmp_path / f"{number}.json").write_text(json.dumps({"all": {"hosts": hosts, "children": groups}}))
        done = command(tmp_path, "ansible-playbook", "-i", str(tmp_path / f"{number}.json"), str(tmp_path / "play.yml"))
        assert f"awaits={awaits}" in done.stdout, done.stdout + done.stderr
