# SPDX-License-Identifier: GPL-3.0-or-later
"""A misspelt -e option of a playbook is refused; Ansible would ignore it, and the default would take effect."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.common import playbook_options
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.action import CheckedModule, ControllerAction
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.playbook_options import (
    CHOICES,
    NUMBERS,
    PLAYBOOKS,
    PREFIXES,
    WHOLE_NUMBERS,
    WRITTEN,
    PlaybookOptionError,
    check_places,
    check_playbook_options,
    check_values,
    known_options,
    unknown_options,
    unread_options,
)

TOP = Path(__file__).resolve().parents[5]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("site_driver", "site_drivers"),
        ("render_host", "target_hosts"),
        ("remove_instances", "remove_instance"),
        ("drain_forced", "drain_force"),
        ("explain_formt", "explain_format"),
        ("verify_expct", "verify_expect"),
        ("gateway_status_hosts", "target_hosts"),
        ("lock_releas", "lock_release"),
        ("Site_drivers", "site_drivers"),
        ("drain-force", "drain_force"),
    ],
)
def test_a_misspelt_option_is_an_error_that_names_the_nearest(name, nearest):
    with pytest.raises(PlaybookOptionError) as caught:
        unknown_options(frozenset({name, "target_hosts"}))
    assert str(caught.value) == f"-e {name}: no playbook has this option; nearest: {nearest!r}"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("explain_format", "xml", "table or short or json"),
        ("drift_format", "", "table or json"),
        ("drain_min_available", "x", "a whole number from 0 on"),
        ("drain_timeout", "²", "a number from 0 on"),
        ("discover_timeout", "1.5", "a whole number from 0 on"),
        ("verify_ready_timeout", "inf", "a number from 0 on"),
        ("undrain_timeout", "-1", "a number from 0 on"),
        ("bench_repeats", "²", "a whole number from 1 on"),
        ("bench_repeats", "0", "a whole number from 1 on"),
        ("tune_rounds", "٣", "a whole number from 1 on"),
        ("accept_minutes", "٣", "a number from 0 on"),
        ("drain_force", "maybe", "true or false"),
        ("site_drivers", "nein", "true or false"),
    ],
)
def test_a_value_of_another_kind_is_an_error_under_the_options_own_name(name, value, expected):
    with pytest.raises(PlaybookOptionError) as caught:
        check_values({name: value})
    assert str(caught.value) == f"{name}: found {value!r}, expected {expected}"


def test_values_of_the_right_kind_and_templates_pass():
    check_values(
        {
            "explain_format": "json",
            "drain_min_available": "0",
            "drain_timeout": 300,
            "undrain_timeout": "0.5",
            "site_drivers": "no",
        }
    )
    check_values(
        {"site_drivers": "{{ wanted }}", "drain_timeout": "{{ 5 * 60 }}", "vllm_release": "x", "drain_reason": "x"}
    )


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_is_written_where_ansible_reads_hosts(name, tmp_path, monkeypatch):
    """Every later command of the site would end with: Failed to parse inventory with 'ini' plugin."""
    (tmp_path / "site").mkdir()
    (tmp_path / "link").symlink_to("site")
    monkeypatch.chdir(tmp_path / "site")
    for site in (".", str(tmp_path / "link")):
        for place in ("rendered", "out/page.html", str(tmp_path / "site/rendered")):
            with pytest.raises(
                PlaybookOptionError, match=f"^{name}: .* is in the inventory directory {tmp_path}/site, "
            ):
                check_places({name: place}, [site, "gpu-1,"])
        for place in ("../rendered", "", ".rendered/one", "usage.txt", ".", "~/rendered", "{{ x }}/y"):
            check_places({name: place}, [site])
    check_places({name: "rendered"}, [str(tmp_path / "hosts.yml"), "gpu-1,"])


def test_each_option_of_a_kind_is_one_of_a_playbook():
    assert {*WHOLE_NUMBERS, *NUMBERS, *CHOICES, *WRITTEN} <= known_options()


def test_another_word_is_a_warning_and_the_variables_of_others_are_left_alone():
    assert unknown_options(frozenset({"site_colour", "sites", "datacentre_site", "vllm_release", "bundle_dir"})) == [
        "-e site_colour: no playbook has this option; nothing reads it"
    ]


@pytest.mark.parametrize(
    ("playbook", "names", "unread"),
    [
        ("fit", {"fit_recipes", "vllm_recipe_path"}, []),
        ("fit", {"vllm_release", "render_dir", "colour"}, ["render_dir", "vllm_release"]),
        ("render", {"target_hosts", "render_dir", "vllm_release"}, []),
        ("render", {"fit_release"}, ["fit_release"]),
        ("monitoring", {"vllm_instances", "monitoring_dir"}, []),
        ("provision", {"render_dir"}, []),
    ],
)
def test_an_option_that_the_playbook_does_not_read_is_a_warning(playbook, names, unread):
    found = unread_options(frozenset(names), PLAYBOOKS / f"{playbook}.yml")
    assert found == [f"-e {name}: {playbook}.yml does not read this option" for name in unread]


@pytest.mark.parametrize("playbook", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_hosts_are_refused_where_no_play_reads_them(playbook):
    if playbook.stem in (
        "adopt",
        "drift",
        "fetch_recipes",
        "fit",
        "import_recipe",
        "lock_release",
        "monitoring",
        "pin_weights",
    ):
        with pytest.raises(PlaybookOptionError, match=rf"-e target_hosts: {playbook.stem}.yml reads no hosts"):
            unread_options(frozenset({"target_hosts"}), playbook)
    else:
        assert unread_options(frozenset({"target_hosts"}), playbook) == []


def test_every_option_of_the_documentation_is_known():
    pages = [TOP / "README.md", *(TOP / "docs").rglob("*.md"), *(TOP / "roles").glob("*/README.md")]
    begins = "|".join(PREFIXES)
    pattern = re.compile(rf"-e (?:'\{{\")?((?:{begins})_[a-z_]+)")
    found = {name for page in pages for name in pattern.findall(page.read_text(encoding="utf-8"))}
    assert len(found) > 40
    assert found <= known_options()


def test_every_playbook_with_options_has_its_beginning_here():
    names = {path.stem.split("_")[0] for path in PLAYBOOKS.glob("*.yml")}
    # Their options are those of the roles of the same names.
    of_roles = {"gateway", "health", "host", "rollout", "rollback", "mirror", "provisioner"}
    assert names - of_roles <= {name.split("_")[0] for name in PREFIXES}


def first_actions(path):
    """Yield the modules of a playbook's tasks in order, up to the first that checks the options."""
    for play in yaml.safe_load(path.read_text()):
        tasks = list(play.get("tasks") or [])
        while tasks:
            task = tasks.pop(0)
            role = task.get("ansible.builtin.import_role")
            file = task.get("ansible.builtin.import_tasks")
            if role:
                file = f"../roles/{role['name'].split('.')[-1]}/tasks/{role.get('tasks_from', 'main')}.yml"
            if file:
                where = (path.parent / file).resolve()
                tasks = yaml.safe_load(where.read_text()) + tasks
                continue
            (name,) = (key for key in task if "." in key)
            yield name
            if (TOP / "plugins/action" / f"{name.split('.')[-1]}.py").is_file():
                return


# They go on with what rollout.yml, rollback.yml and provision.yml have checked.
CHECKED_BEFORE = {"rollout_waves", "provision_next"}


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_checks_its_options_before_a_host_is_contacted(path):
    if path.stem in CHECKED_BEFORE:
        return
    *before, check = first_actions(path)
    # These are decided on the controller.
    assert set(before) <= {"ansible.builtin.assert", "ansible.builtin.debug"}
    module = importlib.import_module(f"ansible_collections.baremetal.inference.plugins.action.{check.split('.')[-1]}")
    assert issubclass(module.ActionModule, (ControllerAction, CheckedModule)) or "check_options" in vars(module)


def test_only_tasks_of_our_playbooks_judge_extra_variables(monkeypatch, tmp_path):
    """Those of a checkout, too, which run with the plugins of an installed collection."""
    mark = tmp_path / "plugins/plugin_utils/common/places.py"
    mark.parent.mkdir(parents=True)
    mark.touch()
    monkeypatch.setattr(playbook_options, "load_extra_vars", lambda _loader: {"site_driver": "false"})
    with pytest.raises(PlaybookOptionError):
        check_playbook_options(f"{PLAYBOOKS / 'site.yml'}:27")
    with pytest.raises(PlaybookOptionError):
        check_playbook_options(f"{PLAYBOOKS / 'tasks' / 'inspect.yml'}:3")
    with pytest.raises(PlaybookOptionError):
        check_playbook_options(f"{tmp_path}/playbooks/site.yml:27")
    assert check_playbook_options(f"{tmp_path}/inventories/site.yml:3") == []
    assert check_playbook_options("/home/alice/site.yml:3") == []
    assert check_playbook_options(None) == []


@pytest.mark.slow
def test_ansible_playbook_refuses_it():
    command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "inventories/example", "playbooks/site.yml"]
    done = subprocess.run([*command, "-e", "site_driver=false"], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "-e site_driver: no playbook has this option; nearest: 'site_drivers'" in done.stdout + done.stderr
