# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.containers.run_command import quadlet_lines, run_words
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import (
    Entry,
    Image,
    Launch,
    Slot,
    SlotError,
    SlotState,
    choose,
    differences,
    document,
    files_of_kind,
    foreign_paths,
    is_stale,
    launch_of,
    parse,
    seconds_of,
    surplus,
    timestamp,
    utc,
)

YAML = Entry("/etc/vllm/chat.yaml", "1" * 64, "0640", 0, 998)
ENV = Entry("/etc/vllm/chat.env", "2" * 64, "0640", 0, 998)
STATE = SlotState("template", (ENV, YAML), "/srv/models/a", Image("m:1", "sha256:11", "docker"), "/opt/vllm/x")


def test_the_same_state_has_the_same_name():
    assert STATE.digest == replace(STATE, files=(YAML, ENV)).digest
    # podman leaves out what docker writes before an id; where the environment lies is in a file.
    assert STATE.digest == replace(STATE, image=Image("m:2", "11", "podman"), venv="").digest


@pytest.mark.parametrize(
    "other",
    [
        replace(STATE, files=(ENV,)),
        replace(STATE, files=(ENV, replace(YAML, sha256="3" * 64))),
        replace(STATE, files=(ENV, replace(YAML, mode="0600"))),
        replace(STATE, files=(ENV, replace(YAML, gid=0))),
        replace(STATE, files=(ENV, replace(YAML, path="/etc/vllm/chat.secrets"))),
        replace(STATE, model="/srv/models/b"),
        replace(STATE, image=Image("m:1", "sha256:22", "docker")),
        replace(STATE, image=None),
    ],
)
def test_another_state_has_another_name_and_differs(other):
    assert other.digest != STATE.digest
    assert differences("chat", STATE, other) and differences("chat", other, STATE)


def test_what_is_written_is_read_again():
    slot = Slot(STATE.digest, STATE, {"model": "m"}, {"tokens_per_second": 7.5}, "2026-11-22T03:00:00Z", True)
    assert parse(document(slot), "chat", slot.digest) == slot
    with pytest.raises(SlotError, match="not what was written"):
        parse(document(slot), "chat", "0" * 16)
    # The files of another instance.
    with pytest.raises(SlotError, match="not what was written"):
        parse(document(slot), "other", slot.digest)


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"schema": 1}', '{"schema": 1, "files": []}', "\0"])
def test_what_is_no_document_is_refused(text):
    with pytest.raises(SlotError, match=r"slot\.json"):
        parse(text, "chat", STATE.digest)


@pytest.mark.parametrize(
    ("to", "digest"), [("good", "b" * 16), ("previous", "a" * 16), ("a" * 16, "a" * 16), ("c" * 16, "c" * 16)]
)
def test_where_to_go_back_to(to, digest):
    assert choose(to, "b" * 16, "a" * 16, ["a" * 16, "b" * 16, "c" * 16]) == digest


@pytest.mark.parametrize(
    ("to", "good", "words"),
    [
        ("good", "", "nothing was kept yet"),
        ("previous", "", "nothing was kept yet"),
        ("previous", "b" * 16, f"only the good one is kept, {'b' * 16}"),
        ("nonsense", "b" * 16, f"no slot nonsense; there are: {'b' * 16}"),
    ],
)
def test_where_there_is_nothing_to_go_back_to(to, good, words):
    with pytest.raises(SlotError, match=words):
        choose(to, good, "", [good] if good else [])


@pytest.mark.parametrize(
    ("keep", "gone"), [(1, ["c", "d", "e"]), (2, ["c", "d", "e"]), (3, ["d", "e"]), (4, ["e"]), (5, []), (9, [])]
)
def test_the_oldest_go_and_never_the_good_or_the_one_before(keep, gone):
    ages = {"a": "1", "b": "2", "c": "9", "d": "5", "e": ""}
    assert surplus(ages, "a", "b", keep) == gone


def test_one_slot_stays_though_none_is_to_be_kept_and_none_was_good():
    assert surplus({"a": "1", "b": "2"}, "", "", 0) == ["a"]


@pytest.mark.parametrize(
    ("started", "changed", "verified", "found"),
    [
        (None, 5, None, False),
        (6, 5, None, False),
        (5, 5, None, False),
        (4, 5, None, True),
        # The very state that is installed was kept while this process ran.
        (4, 9, 5, False),
        # It was kept before this process came.
        (4, 9, 3, True),
        (4, 9, 4, True),
    ],
)
def test_a_process_is_stale_that_runs_with_other_files(started, changed, verified, found):
    assert is_stale(started, changed, verified) is found


def test_times_are_those_of_systemd():
    assert timestamp("Sun 2026-11-22 02:36:16.500000 UTC") == seconds_of("2026-11-22T02:36:16Z") + 0.5
    assert timestamp("Sun 2026-11-22 02:36:16 UTC") == seconds_of("2026-11-22T02:36:16Z")
    assert [timestamp(text) for text in ("", "n/a", "Sun 2026-11-22 02:36:16 CET")] == [None, None, None]
    assert utc(0) == "1970-01-01T00:00:00Z" and seconds_of("yesterday") is None


def container_plan(command):
    container = {
        "image": "mirror:5000/lab/vllm:1", "command": command, "user": "vllm", "shm_size": "16g",
        "devices": ["nvidia.com/gpu=0", "/dev/kfd"], "groups": ["render"], "mounts": ["/srv/m:/srv/m:ro"],
        "memlock": True,
    }  # fmt: skip
    environment = {"HOME": "/a b", "X": "1"}
    return {"instance": "chat", "env": environment, "secrets": ["KEY"], "container": container, "middleware": []}


@pytest.mark.parametrize("command", [[], ["/bin/bash", "-c", 'exec vllm serve "$@"', "vllm"]])
@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("more", [{}, {"init": False, "limits": False}, {"gpus": "flag"}])
def test_the_image_is_found_in_whatever_the_role_writes(engine, command, more):
    settings = {"engine": engine, "user": "vllm", "uid": 998, "gid": 997, "stop_timeout": 80, **more}
    groups = [" ".join(map(shlex.quote, words)) for words in run_words(container_plan(command), settings)]
    script = "#!/bin/sh\n# managed\nexec " + " \\\n  ".join(groups) + ' \\\n  "$@"\n'
    found = launch_of("chat", "unit", {"/var/lib/vllm/chat/serve": script})
    assert found == Launch(ref="mirror:5000/lab/vllm:1", engine=f"/usr/bin/{engine}")


def test_the_image_of_a_quadlet_is_found():
    settings = {"engine": "podman", "user": "vllm", "uid": 998, "gid": 997, "stop_timeout": 80}
    text = "[Container]\n" + "\n".join(quadlet_lines(container_plan([]), settings))
    found = launch_of("chat", "quadlet", {"/etc/containers/systemd/vllm@chat.container": text})
    assert found == Launch(ref="mirror:5000/lab/vllm:1", engine="podman")


@pytest.mark.parametrize(
    ("words", "by_module"),
    [("/opt/vllm/x/bin/vllm serve", False), ("/opt/vllm/x/bin/python -m vllm.entrypoints", True)],
)
def test_the_environment_is_found(words, by_module):
    texts = {"/var/lib/vllm/chat/serve": f'#!/bin/sh\n# managed\nexec {words} "$@"\n'}
    assert launch_of("chat", "template", texts) == Launch(venv="/opt/vllm/x", by_module=by_module)


@pytest.mark.parametrize("text", ["", "#!/bin/sh\n", "#!/bin/sh\nexec 'open\n", "#!/bin/sh\nexec docker run --rm\n"])
@pytest.mark.parametrize("kind", ["template", "unit", "quadlet"])
def test_what_nobody_of_us_wrote_names_nothing(kind, text):
    found = launch_of("chat", kind, {"/var/lib/vllm/chat/serve": text})
    assert (found.venv, found.ref) == ("", "")


def test_the_kinds_have_the_files_of_the_role_and_strangers_are_never_shared():
    assert [entry["path"] for entry in files_of_kind("chat", "template")][-1] == "/etc/systemd/system/vllm@.service"
    assert foreign_paths("chat", "template") == [
        "/etc/containers/systemd/vllm@chat.container", "/etc/systemd/system/vllm@chat.service",
    ]  # fmt: skip
    assert foreign_paths("chat", "quadlet") == ["/etc/systemd/system/vllm@chat.service", "/var/lib/vllm/chat/serve"]
