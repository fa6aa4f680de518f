# SPDX-License-Identifier: GPL-3.0-or-later
"""The module instance_slot on a tree of files, with a systemctl and engines that only remember."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.modules import instance_slot

from tests.fakes.engine import FakeEngine
from tests.fakes.module_arguments import patch_module_args
from tests.fakes.systemd import FakeInstances, FakeSystemd

UNIT = "vllm@chat.service"
REF = "mirror:5000/lab/vllm:1"
OLD, NEW = {"Id": "sha256:11aa"}, {"Id": "sha256:22bb"}
B = "b" * 40


def run(**arguments):
    """Run the module in this process; return what it prints."""
    said, mask = io.StringIO(), os.umask(0o022)
    try:
        with patch_module_args(arguments), contextlib.redirect_stdout(said), pytest.raises(SystemExit):
            instance_slot.main()
    finally:
        os.umask(mask)
    return json.loads(said.getvalue())


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A systemctl on the path."""
    found = FakeSystemd(tmp_path / "systemd.json")
    found.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return found


@pytest.fixture
def systemd(program, monkeypatch):
    """The same, called in this process: the program takes 0.1 s to start, and a test asks it a dozen times."""
    monkeypatch.setattr(AnsibleModule, "run_command", lambda _module, words, **_options: program(words))
    return program


@pytest.fixture
def there(tmp_path):
    return FakeInstances(tmp_path / "root")


@pytest.fixture
def slot(there, systemd):
    def slot(state, instance="chat", **options):
        return run(instance=instance, state=state, root=str(there.root), **options)

    return slot


@pytest.fixture
def kept(there, systemd, slot):
    """Make what is installed the good state."""

    def kept(**options):
        systemd.runs(UNIT)
        result = slot("kept", **options)
        assert "msg" not in result, result
        systemd.asked()
        return result

    return kept


def slots_of(there):
    return there.at("/var/lib/vllm/chat/slots")


def test_the_same_state_is_kept_once(there, kept):
    there.template()
    first = kept(plan={"model": "example/tiny", "release": "0.32.0", "unused": 1}, record={"tokens_per_second": 7.5})
    assert first["changed"] and first["good"]["digest"] == first["digest"]
    assert first["good"]["plan"]["model"] == "example/tiny" and "unused" not in first["good"]["plan"]
    again = kept(plan={"model": "example/tiny", "release": "0.32.0"})
    assert not again["changed"] and again["good"] == first["good"] and again["previous"] is None
    measured = kept(record={"tokens_per_second": 9})
    assert measured["changed"] and measured["good"]["record"] == {"tokens_per_second": 9}
    assert measured["good"]["plan"] == first["good"]["plan"]
    assert measured["good"]["kept_at"] == first["good"]["kept_at"]
    assert len(measured["slots"]) == 1


def test_a_slot_is_roots_alone_and_its_secrets_are_in_nothing_that_is_said(there, kept, slot):
    there.template()
    old_mask = os.umask(0)
    try:
        results = [kept(_ansible_diff=True)]
    finally:
        os.umask(old_mask)
    there.common(flag="2", key="another-s3cret")
    results += [slot("status"), slot("restored", _ansible_diff=True, _ansible_verbosity=3)]
    assert results[-1]["changed"] and "/etc/vllm/chat.secrets" in results[-1]["differences"]
    assert "s3cret" not in json.dumps(results)
    for parent, directories, names in os.walk(slots_of(there)):
        for name in directories + names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                wanted = 0o700 if name in directories else 0o600
                assert os.stat(path).st_mode & 0o777 == wanted, path


def test_a_change_that_failed_is_taken_back(there, kept, slot, systemd):
    there.template()
    digest, before = kept()["digest"], there.picture()
    there.template(flag="2", venv="0.33.0-cpu-bb", revision=B)
    changed = slot("restored")
    assert changed["changed"] and changed["digest"] == digest and changed["up"] and not changed["stale"]
    assert changed["differences"] == [
        "/etc/vllm/chat.yaml", "/var/lib/vllm/chat/serve", "/var/lib/vllm/chat/model",
    ]  # fmt: skip
    assert there.picture() == before
    assert systemd.asked() == [
        f"stop {UNIT}", "daemon-reload", f"enable {UNIT}", f"reset-failed {UNIT}", f"start {UNIT}",
    ]  # fmt: skip
    again = slot("restored")
    assert not again["changed"] and systemd.asked() == []


def test_systemctl_is_a_program_on_the_path(there, program):
    there.template()
    program.runs(UNIT)
    root = str(there.root)
    assert run(instance="chat", state="kept", root=root)["changed"]
    there.template(flag="2")
    assert run(instance="chat", state="restored", root=root)["up"]
    assert program.asked()[-1] == f"start {UNIT}"


def test_the_state_before_comes_back_and_the_links_wait_until_it_has_served(there, kept, slot):
    there.template()
    first = kept()["digest"]
    there.template(flag="2")
    second = kept()
    assert second["previous"]["digest"] == first
    back = slot("restored", to="previous")
    assert (back["digest"], back["good"]["digest"]) == (first, second["digest"])
    assert not slot("restored", to="previous")["changed"]
    served = kept()
    assert (served["good"]["digest"], served["previous"]["digest"]) == (first, second["digest"])


def test_old_states_go_but_never_the_two(there, kept):
    digests = []
    for flag in "12345":
        there.template(flag=flag)
        digests.append(kept(keep=3)["digest"])
    assert sorted(entry["digest"] for entry in kept(keep=3)["slots"]) == sorted(digests[-3:])
    assert sorted(entry["digest"] for entry in kept(keep=1)["slots"]) == sorted(digests[-2:])


def test_check_mode_says_what_would_be_and_does_nothing(there, kept, slot, systemd):
    there.template()
    systemd.runs(UNIT)
    assert slot("kept", _ansible_check_mode=True)["changed"] and not slots_of(there).exists()
    kept()
    assert not slot("kept", _ansible_check_mode=True)["changed"]
    there.template(flag="2")
    before = there.picture()
    assert slot("restored", _ansible_check_mode=True)["changed"]
    assert there.picture() == before and systemd.asked() == []


def test_check_mode_knows_of_files_that_the_run_would_write(there, kept, slot, systemd):
    check = {"rewritten": True, "_ansible_check_mode": True, "_ansible_diff": True}
    there.template()
    systemd.runs(UNIT)
    assert slot("kept", **check)["changed"]
    good = kept()["digest"]
    # Another plan: the run makes a new state.
    new = slot("kept", **check)
    assert new["changed"] and new["diff"]["after"] == "(what this run writes)\n"
    # Somebody changed a file: the run restores the good state, which is kept already.
    there.template(flag="by hand")
    drift = slot("kept", **check)
    assert not drift["changed"] and drift["diff"]["before"] == drift["diff"]["after"] == f"{good}\n"


def test_what_is_not_whole_is_not_kept(there, kept, slot, systemd):
    there.template()
    systemd.runs(UNIT)
    there.at("/etc/vllm/chat.secrets").unlink()
    message = slot("kept")["msg"]
    assert message.startswith(f"{os.uname().nodename}: instance chat: /etc/vllm/chat.secrets missing")
    assert not slots_of(there).exists()


def test_what_does_not_serve_is_not_kept(there, slot):
    there.template()
    assert f"{UNIT} is inactive (dead), expected active" in slot("kept")["msg"]


def test_what_runs_with_older_files_is_stale_and_is_not_kept(there, slot, systemd):
    there.template()
    systemd.runs(UNIT, since=time.time() - 60)
    assert slot("status")["stale"]
    assert run(root=str(there.root))["stale_instances"] == ["chat"]
    message = slot("kept")["msg"]
    assert "runs with older files or another image than those installed" in message and "site.yml" in message
    systemd.runs(UNIT)
    assert not slot("status")["stale"]
    assert run(root=str(there.root))["stale_instances"] == []


def test_adapters_that_the_running_engine_has_taken_over_make_nothing_stale(there, slot, systemd):
    there.template()
    systemd.runs(UNIT)
    time.sleep(0.01)
    there.write("/etc/vllm/chat.yaml", "port: 8000\nlora-modules:\n- sql=/b\n")
    assert slot("status")["stale"]
    note = there.root / "run/vllm/chat/adapters"
    note.parent.mkdir(parents=True)
    note.write_text("0" * 64 + "\n")
    assert slot("status")["stale"]
    note.write_text(hashlib.sha256((there.root / "etc/vllm/chat.yaml").read_bytes()).hexdigest() + "\n")
    assert not slot("status")["stale"] and run(root=str(there.root))["stale_instances"] == []
    assert "msg" not in slot("kept")
    # Of another configuration, and of other files, it says nothing.
    there.write("/etc/vllm/chat.yaml", "port: 8000\nlora-modules:\n- sql=/c\n")
    assert slot("status")["stale"]


def test_a_newer_file_beside_the_adapters_is_stale(there, slot, systemd):
    there.template()
    systemd.runs(UNIT)
    time.sleep(0.01)
    there.write("/etc/vllm/chat.yaml", "port: 8000\nlora-modules:\n- sql=/b\n")
    there.write("/etc/vllm/chat.env", "A=2\n")
    note = there.root / "run/vllm/chat/adapters"
    note.parent.mkdir(parents=True)
    note.write_text(hashlib.sha256((there.root / "etc/vllm/chat.yaml").read_bytes()).hexdigest())
    assert slot("status")["stale"] and "chat.env" in slot("kept")["msg"]


def test_a_touch_after_it_was_kept_makes_nothing_stale_and_a_change_does(there, kept, slot, systemd):
    there.template()
    assert not kept()["stale"]
    # It ran before it was kept, and it was kept in a second that is over.
    systemd.runs(UNIT, since=time.time() - 60)
    there.at("/etc/vllm/chat.yaml").touch()
    assert not slot("status")["stale"]
    there.template(flag="2")
    assert slot("status")["stale"]


def test_there_is_nothing_before_the_first_state(there, kept, slot, systemd):
    there.template()
    assert "no good slot to go back to: nothing was kept yet" in slot("restored")["msg"]
    digest = kept()["digest"]
    assert (
        f"no previous slot to go back to: only the good one is kept, {digest}" in slot("restored", to="previous")["msg"]
    )
    message = slot("restored", to="0" * 16)["msg"]
    assert f"there is no slot {'0' * 16}; there are: {digest}" in message
    assert systemd.asked() == []


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (f"/srv/models/example/tiny/{'a' * 40}/config.json", "weights: "),
        (f"/srv/models/example/tiny/{'a' * 40}/.verified.json", "weights: "),
        ("/opt/vllm/0.32.0-cpu-aa/bin/python", "environment: "),
    ],
)
def test_what_is_needed_is_looked_for_before_anything_stops(there, kept, slot, systemd, gone, words):
    there.template()
    kept()
    there.template(flag="2", venv="0.33.0-cpu-bb", revision=B)
    there.at(gone).unlink()
    before = there.picture()
    message = slot("restored")["msg"]
    assert f"{words}{there.at(gone)} is not there" in message and "Nothing was changed" in message
    assert there.picture() == before and systemd.asked() == []


def test_weights_that_were_cut_are_named(there, kept, slot):
    there.template()
    kept()
    there.template(flag="2")
    there.at(f"/srv/models/example/tiny/{'a' * 40}/config.json").write_text("")
    assert "weights: config.json of" in slot("restored")["msg"]


@pytest.mark.parametrize("path", ["files/etc/vllm/chat.yaml", "files/etc/vllm/chat.secrets", "slot.json", "model"])
@pytest.mark.parametrize("how", ["gone", "other"])
def test_a_damaged_slot_is_refused_named_and_made_again(there, kept, slot, systemd, path, how):
    there.template()
    digest = kept()["digest"]
    place = slots_of(there) / digest / path
    place.unlink()
    if how == "other" and path == "model":
        place.symlink_to("/srv/else")
    elif how == "other":
        place.write_text("{}")
    there.template(flag="2")
    before = there.picture()
    message = slot("restored")["msg"]
    assert f"the slot {digest} is damaged: " in message and path.rpartition("/")[2] in message
    assert there.picture() == before and systemd.asked() == []
    assert [bool(entry["damage"]) for entry in slot("status")["slots"]] == [True]
    there.template()
    assert kept()["changed"]
    assert [entry["damage"] for entry in slot("status")["slots"]] == [[]]


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"/etc/passwd": {"sha256": "0" * 64, "mode": "0644", "uid": 0, "gid": 0}}},
        {"schema": 2},
        {"kind": "other"},
        {"model": "/srv/else"},
    ],
)
def test_a_slot_cannot_be_made_to_write_elsewhere(there, kept, slot, change):
    there.template()
    digest = kept()["digest"]
    place = slots_of(there) / digest / "slot.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    there.template(flag="2")
    assert f"the slot {digest} is damaged" in slot("restored")["msg"]


def test_a_unit_that_ended_with_the_right_files_is_started(there, kept, slot, systemd):
    there.template()
    kept()
    systemd.change(units={})
    assert slot("restored", _ansible_check_mode=True)["changed"] and systemd.asked() == []
    result = slot("restored")
    assert result["changed"] and result["up"] and result["differences"] == []
    assert f"start {UNIT}" in systemd.asked()


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_tag_that_was_moved_comes_back(there, kept, slot, tmp_path, name):
    engine = FakeEngine(tmp_path / "bin", name, store={REF: OLD})
    there.unit(str(engine.command), REF)
    first = kept()
    engine.change(store={REF: NEW, "dangling": OLD})
    second = slot("status")
    assert second["digest"] != first["digest"]
    back = slot("restored")
    assert back["differences"] == [f"image {REF}"] and back["digest"] == first["digest"]
    assert engine.state["store"][REF] == OLD and ["tag", "11aa", REF] in engine.state["asked"]
    assert not slot("restored")["changed"]


def test_a_container_of_an_image_that_its_name_has_left_is_stale(there, kept, slot, tmp_path):
    engine = FakeEngine(tmp_path / "bin", store={REF: OLD}, containers={"vllm-chat": "sha256:11aa"})
    there.unit(str(engine.command), REF)
    assert not kept()["stale"]
    engine.change(store={REF: NEW, "dangling": OLD})
    assert slot("status")["stale"]


def test_an_image_that_is_gone_is_named(there, kept, slot, systemd, tmp_path):
    engine = FakeEngine(tmp_path / "bin", store={REF: OLD})
    there.unit(str(engine.command), REF)
    kept()
    engine.change(store={REF: NEW})
    message = slot("restored")["msg"]
    assert f"has no {REF} with the id sha256:11aa" in message and "Nothing was changed" in message
    assert systemd.asked() == []
    engine.change(store={})
    assert f"the image {REF} is not in the store" in slot("kept")["msg"]


def test_a_name_by_digest_cannot_be_given_to_an_image(there, kept, slot, tmp_path):
    exact = "mirror:5000/lab/vllm@sha256:" + "0" * 64
    engine = FakeEngine(tmp_path / "bin", store={exact: OLD})
    there.unit(str(engine.command), exact)
    kept()
    engine.change(store={"dangling": OLD})
    assert f"has no {exact} with the id" in slot("restored")["msg"]


KINDS = ["template", "unit", "quadlet"]


@pytest.mark.parametrize("new", KINDS)
@pytest.mark.parametrize("old", KINDS)
def test_from_any_kind_of_unit_back_to_any_other(there, kept, slot, systemd, tmp_path, old, new):
    docker = FakeEngine(tmp_path / "bin", store={REF: OLD})
    FakeEngine(tmp_path / "bin", "podman", store={REF: OLD})
    write = {
        "template": there.template,
        "unit": lambda **words: there.unit(str(docker.command), REF, **words),
        "quadlet": lambda **words: there.quadlet(REF, **words),
    }
    own = ["etc/systemd/system/vllm@chat.service", "etc/containers/systemd/vllm@chat.container"]
    write[old]()
    digest, before = kept()["digest"], there.picture()
    for path in [*own, "var/lib/vllm/chat/serve"]:
        (there.root / path).unlink(missing_ok=True)
    write[new](flag="2")
    assert slot("restored", _ansible_check_mode=True)["changed"]
    back = slot("restored")
    assert back["digest"] == digest and back["up"]
    after = there.picture()
    # What other instances may have too stays.
    assert {path: entry for path, entry in after.items() if path in before} == before
    assert set(after) - set(before) <= {"etc/systemd/system/vllm@.service"}
    asked = systemd.asked()
    assert (f"disable {UNIT}" in asked) == (old != new and new != "quadlet")
    assert (f"enable {UNIT}" in asked) == (old != "quadlet")
    assert asked.index(f"stop {UNIT}") < asked.index("daemon-reload") < asked.index(f"start {UNIT}")
    assert not slot("restored")["changed"]


def group(there, role="head", hosts=("a", "b")):
    """Write what an instance that spans hosts has besides."""
    there.write("/etc/vllm/chat.group.json", json.dumps({"hosts": list(hosts), "role": role, "rank": 0}))
    there.write("/etc/vllm/chat.nft", f"# {hosts}\n")
    there.write("/etc/systemd/system/vllm-group@.service", "[Unit]\n")
    there.write("/etc/systemd/system/vllm@chat.service.d/group.conf", "[Unit]\n")


def test_the_files_of_a_group_are_kept_and_come_back(there, kept, slot):
    there.template()
    group(there)
    first = kept()
    assert first["group"] == {"hosts": ["a", "b"], "role": "head"} and first["missing"] == []
    before = there.picture()
    group(there, "worker", ("b", "a", "c"))
    there.at("/etc/vllm/chat.nft").unlink()
    assert slot("status")["missing"] == ["/etc/vllm/chat.nft"]
    back = slot("restored")
    assert set(back["differences"]) == {"/etc/vllm/chat.group.json", "/etc/vllm/chat.nft"}
    assert back["digest"] == first["digest"] and back["group"]["role"] == "head" and there.picture() == before


def test_a_group_goes_back_to_one_host_and_leaves_nothing(there, kept, slot, tmp_path):
    asked = tmp_path / "asked"
    nft = tmp_path / "bin/nft"
    nft.write_text(f'#!/bin/sh\necho "$@" >>{asked}\n')
    nft.chmod(0o755)
    there.template()
    alone = kept()
    assert alone["group"] == {}
    before = there.picture()
    group(there)
    there.template(flag="2")
    kept()
    back = slot("restored", to=alone["digest"])
    assert back["digest"] == alone["digest"] and back["group"] == {}
    # Other groups of the host share the unit of the watchdog.
    assert set(there.picture()) - set(before) == {"etc/systemd/system/vllm-group@.service"}
    assert asked.read_text() == "delete table inet vllm-group-chat\ndelete table inet vllm_group_chat\n"


@pytest.mark.parametrize("kind", ["residents", "preload"])
def test_an_instance_goes_back_to_its_own_chips_and_to_shared_ones(there, kept, slot, kind):
    service, drop_in = (
        f"/etc/systemd/system/vllm-{kind}@.service",
        f"/etc/systemd/system/vllm@chat.service.d/{kind}.conf",
    )
    there.template()
    alone, before = kept(), there.picture()
    there.write(service, "[Unit]\n")
    there.write(drop_in, "[Unit]\n# gpu0\n")
    there.template(flag="2")
    shared = kept()
    there.at(service).unlink()
    assert slot("status")["missing"] == [service]
    there.write(service, "[Unit]\n")
    back = slot("restored", to=alone["digest"])
    assert back["digest"] == alone["digest"] and not there.at(drop_in).exists()
    # Other instances of the host share the service.
    assert set(there.picture()) - set(before) == {service[1:]}
    back = slot("restored", to=shared["digest"])
    assert back["digest"] == shared["digest"] and there.at(drop_in).read_text() == "[Unit]\n# gpu0\n"


def test_what_instances_share_is_not_touched_where_it_is_right(there, kept, slot, tmp_path):
    docker = FakeEngine(tmp_path / "bin", store={REF: OLD})
    there.template()
    kept()
    there.unit(str(docker.command), REF)
    shared = there.at("/etc/systemd/system/vllm@.service")
    before = shared.stat()
    assert str(shared.relative_to(there.root)) not in " ".join(slot("restored")["differences"])
    assert (shared.stat().st_ino, shared.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_every_instance_of_the_host_is_told_of(there, kept, systemd):
    there.template()
    there.template("other")
    kept()
    there.write("/var/lib/vllm/rollout.json", '{"id": "20261122T030101Z-ab12"}')
    found = run(root=str(there.root))
    assert sorted(found["instances"]) == ["chat", "other"] and found["turn"] == {"id": "20261122T030101Z-ab12"}
    assert found["instances"]["chat"]["good"] and not found["instances"]["other"]["slots"]
    assert found["instances"]["chat"]["running_since"] and not found["instances"]["other"]["up"]


def test_nothing_is_left_to_keep_until_plan_files_slots_or_copies_change(there, kept, slot):
    plan = {"model": "example/tiny", "release": "0.32.0"}

    def is_kept(changed=None, **options):
        return run(root=str(there.root), plans={"chat": changed or plan}, **options)["instances"]["chat"]["kept"]

    there.template()
    assert not is_kept()
    kept(plan=plan, record={"tokens_per_second": 7.5})
    assert is_kept() and not slot("kept", plan=plan)["changed"]
    # Without a plan nothing can be said.
    assert not run(root=str(there.root))["instances"]["chat"]["kept"]
    assert not is_kept({**plan, "release": "0.33.0"})
    there.template(flag="2")
    assert not is_kept()
    for flag in "34":
        there.template(flag=flag)
        kept(plan=plan, keep=9)
    assert is_kept(keep=9) and not is_kept(keep=2)
    (copy,) = slots_of(there).glob("good/files/etc/vllm/chat.env")
    copy.write_text("A=2\n")
    assert not is_kept(keep=9)


@pytest.mark.parametrize(
    ("word", "enabled"), [("enabled", True), ("generated", True), ("enabled-runtime", False), ("disabled", False)]
)
def test_a_unit_starts_at_boot_where_systemd_says_so(there, systemd, slot, word, enabled):
    there.template()
    systemd.runs(UNIT)
    systemd.change(units={UNIT: {**systemd.state["units"][UNIT], "UnitFileState": word}})
    assert slot("status")["enabled"] is enabled


def test_a_host_without_instances_has_none(there, slot):
    assert run(root=str(there.root))["instances"] == {}
    found = slot("status")
    assert (found["installed"], found["digest"], found["good"], found["stale"]) == (False, "", None, False)


@pytest.mark.parametrize("name", ["../chat", "", "a/b", ".hidden", "chat\n"])
def test_a_name_that_is_none_is_refused(slot, name):
    assert "expected a name such as chat" in slot("status", instance=name)["msg"]


def test_systemd_that_refuses_to_start_is_quoted(there, kept, slot, systemd):
    there.template()
    kept()
    there.template(flag="2")
    systemd.change(broken=["start"])
    assert f"systemctl start --no-block {UNIT}: start refused" in slot("restored")["msg"]
    systemd.change(broken=[])
    assert slot("restored")["changed"] and slot("status")["up"]


def test_a_stop_that_fails_leaves_everything(there, kept, slot, systemd):
    there.template()
    kept()
    there.template(flag="2")
    before = there.picture()
    systemd.change(broken=["stop"])
    assert f"systemctl stop {UNIT}: stop refused" in slot("restored")["msg"]
    assert there.picture() == before
