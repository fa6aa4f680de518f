# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import stat

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet import render as _rendered
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.plans import Alike, Fleet
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.render import (
    ANY_HOST,
    RenderError,
    Tree,
    summary,
    texts_of,
    write_fleet,
)

ENV = """{{ ansible_managed | comment }}
{% for name in item.plan.env | sort %}
{{ name }}={{ item.plan.env[name] }}
{% endfor %}
"""
UNIT = "User={{ vllm_user }}\nStop={{ vllm_drain_timeout + 30 }}\n"

VARIABLES = {"vllm_user": "vllm", "vllm_drain_timeout": 60, "vllm_engine": ""}


@pytest.fixture(autouse=True)
def role_templates(tmp_path_factory, monkeypatch):
    """Templates in place of the role's; those are rendered in test_example_inventory.py."""
    top = tmp_path_factory.mktemp("templates")
    (top / "instance.env.j2").write_text(ENV)
    (top / "unit.j2").write_text(UNIT)
    monkeypatch.setattr(_rendered, "TEMPLATES", top)


def plan(instance="chat", **more):
    return {
        "host": "a",
        "instance": instance,
        "env": {"B": "two words", "A": "1"},
        "config": {"model": "/srv/m", "served-model-name": ["m"], "port": 8000},
        "launch": ["/opt/vllm/bin/vllm", "serve"],
        **more,
    }


def files_of(entry, _variables):
    """Stands for instance_files."""
    name = entry["instance"]
    found = [("env", "instance.env.j2", False), ("unit", "unit.j2", False), ("secrets", "secrets.j2", True)]
    return [
        {"path": f"/etc/vllm/{name}.{kind}", "template": template, "secret": secret, "shared": False}
        for kind, template, secret in found
    ]


def alike(*hosts, **plans):
    return Alike(list(hosts), plans or {"chat": plan()}, VARIABLES)


def write(top, *groups, skipped=(), **how):
    tree = Tree(top, **how)
    write_fleet(Fleet(list(groups), list(skipped)), tree, DataLoader(), files_of)
    return tree


def files_in(top):
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir())


def test_each_instance_has_its_plan_and_its_files(tmp_path):
    tree = write(tmp_path, alike("a", "b"))
    assert files_in(tmp_path) == [
        f"{host}/chat/{name}"
        for host in ("a", "b")
        for name in ("files/etc/vllm/chat.env", "files/etc/vllm/chat.unit", "plan.json")
    ]
    assert sorted(tree.written) == files_in(tmp_path) and tree.removed == []


def test_a_plan_is_that_of_its_host_with_the_keys_in_their_order(tmp_path):
    write(tmp_path, alike("a", "b"))
    found = json.loads((tmp_path / "b/chat/plan.json").read_text())
    assert found == {**plan(), "host": "b"} and list(found) == list(plan())


def test_a_template_is_rendered_as_the_template_module_does(tmp_path):
    write(tmp_path, alike("a"))
    text = (tmp_path / "a/chat/files/etc/vllm/chat.env").read_text()
    assert text == "#\n# Ansible managed\n#\nA=1\nB=two words\n"
    unit = (tmp_path / "a/chat/files/etc/vllm/chat.unit").read_text()
    assert unit == "User=vllm\nStop=90\n"


def test_a_value_that_looks_like_a_template_stays_as_it_is(tmp_path):
    write(tmp_path, alike("a", chat=plan(env={"A": "{{ 1 + 1 }}"})))
    assert "A={{ 1 + 1 }}" in (tmp_path / "a/chat/files/etc/vllm/chat.env").read_text()


def test_a_text_is_rendered_once_for_all_hosts(monkeypatch, tmp_path):
    calls = []

    def counted(entry, variables):
        calls.append(entry["instance"])
        return files_of(entry, variables)

    write_fleet(Fleet([alike(*(f"h{n}" for n in range(20)))]), Tree(tmp_path), DataLoader(), counted)
    assert calls == ["chat"] and len(files_in(tmp_path)) == 60


def test_the_host_is_open_in_shared_texts():
    class Templates:
        def container(self, variables):
            return {"user": "vllm"}

        def render(self, template, item, variables):
            return f"# {item['plan']['host']}\n"

    texts = texts_of(alike("a"), Templates(), files_of)
    assert texts["chat"]["files/etc/vllm/chat.env"] == f"# {ANY_HOST}\n"


def test_a_second_run_writes_nothing(tmp_path):
    write(tmp_path, alike("a"))
    before = os.stat(tmp_path / "a/chat/plan.json")
    tree = write(tmp_path, alike("a"))
    assert tree.written == [] and os.stat(tmp_path / "a/chat/plan.json").st_ino == before.st_ino


def test_one_line_says_what_was_done(tmp_path):
    fleet = Fleet([alike("a", "b", chat=plan(), quick=plan("quick")), alike("c", chat=plan())])
    tree = Tree(tmp_path)
    write_fleet(fleet, tree, DataLoader(), files_of)
    count = len(tree.written)
    assert summary(fleet, tree) == f"{tmp_path}: 5 instances of 3 hosts; {count} files written"
    again = Tree(tmp_path)
    write_fleet(fleet, again, DataLoader(), files_of)
    assert summary(fleet, again) == f"{tmp_path}: 5 instances of 3 hosts; nothing changed"
    (tmp_path / "c/chat/plan.json").write_text("old")
    checked = Tree(tmp_path, check=True)
    only = Fleet([alike("c", chat=plan())], skipped=["a"])
    write_fleet(only, checked, DataLoader(), files_of)
    assert summary(only, checked) == (
        f"{tmp_path}: 1 instance of 1 host; 1 file would be written, {len(checked.removed)} files would be removed"
    )


def test_only_what_differs_is_written(tmp_path):
    write(tmp_path, alike("a"))
    tree = write(tmp_path, alike("a", chat=plan(env={"A": "2"})))
    assert sorted(tree.written) == ["a/chat/files/etc/vllm/chat.env", "a/chat/plan.json"]


def test_check_mode_tells_and_writes_nothing(tmp_path):
    tree = write(tmp_path / "new", alike("a"), check=True)
    assert len(tree.written) == 3 and not (tmp_path / "new").exists()
    write(tmp_path, alike("a"))
    tree = write(tmp_path, skipped=["a"], check=True)
    assert len(tree.removed) == 3 and len(files_in(tmp_path)) == 3


def test_differences_are_shown_when_asked_for(tmp_path):
    write(tmp_path, alike("a"))
    tree = write(tmp_path, alike("a", chat=plan(env={"A": "2", "B": "two words"})), diff=True)
    texts = [entry["prepared"] for entry in tree.diffs]
    assert any("\n-A=1\n+A=2\n" in text for text in texts)
    assert write(tmp_path, alike("a"), diff=False).diffs == []


def test_files_of_an_earlier_run_are_removed_with_their_empty_directories(tmp_path):
    write(tmp_path, alike("a"))
    stale = tmp_path / "a/chat/files/var/lib/vllm/chat/serve"
    stale.parent.mkdir(parents=True)
    stale.write_text("old")
    tree = write(tmp_path, alike("a"))
    assert tree.removed == ["a/chat/files/var/lib/vllm/chat/serve"] and tree.written == []
    assert not (tmp_path / "a/chat/files/var").exists()


def test_an_instance_that_is_gone_is_removed(tmp_path):
    write(tmp_path, alike("a", chat=plan(), quick=plan("quick")))
    write(tmp_path, alike("a"))
    assert not (tmp_path / "a/quick").exists() and (tmp_path / "a/chat/plan.json").exists()


def test_a_host_without_instances_loses_its_files(tmp_path):
    write(tmp_path, alike("a", "b"))
    write(tmp_path, alike("b"), skipped=["a"])
    assert not (tmp_path / "a").exists() and (tmp_path / "b/chat").exists()


def test_what_is_not_ours_is_not_touched(tmp_path):
    write(tmp_path, alike("a", "b"))
    for name in ("a/notes.txt", "a/chat/notes.txt", "a/mine/files/x", "a/other/plan.json", "a/other/files/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"instance": "another", "host": "a"}')
    write(tmp_path, skipped=["a"])
    kept = [name for name in files_in(tmp_path) if name.startswith("a/")]
    assert kept == ["a/chat/notes.txt", "a/mine/files/x", "a/notes.txt", "a/other/files/x", "a/other/plan.json"]
    # A run that was limited to one host leaves the others alone.
    assert (tmp_path / "b/chat/plan.json").exists()


def test_modes_do_not_follow_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        write(tmp_path / "out", alike("a"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "out/a/chat").st_mode) == 0o755
    assert stat.S_IMODE(os.stat(tmp_path / "out/a/chat/plan.json").st_mode) == 0o644


def test_a_link_does_not_lead_out_of_the_directory(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/a/chat").mkdir(parents=True)
    (tmp_path / "out/a/chat/files").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RenderError, match="a/chat/files expected a directory that is not a link"):
        write(tmp_path / "out", alike("a"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_in_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(RenderError, match=r"render_dir: .*out"):
        write(tmp_path / "out", alike("a"))


@pytest.mark.parametrize("name", ["../b", "..", "a/b", ""])
def test_a_host_whose_name_leads_elsewhere_is_refused_before_anything_is_written(tmp_path, name):
    with pytest.raises(RenderError, match="cannot be the name of a directory"):
        write(tmp_path / "out", alike("a", name))
    assert not (tmp_path / "out").exists()


def test_no_half_file_stays_behind(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device", "x")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RenderError, match="No space left"):
        write(tmp_path, alike("a"))
    assert files_in(tmp_path) == []
