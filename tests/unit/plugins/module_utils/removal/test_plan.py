# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes, what stays, and what is refused."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.removal.model import (
    Contents,
    Directory,
    Model,
    RemovalError,
    Request,
    StoredImage,
    Use,
)
from ansible_collections.baremetal.inference.plugins.module_utils.removal.plan import SERVING, decide

A, B = "a" * 40, "b" * 40
TOP = "/srv/models/openai/gpt-oss-20b"
MODEL = Model("openai/gpt-oss-20b", TOP, (Directory(A, f"{TOP}/{A}", 7), Directory(B, f"{TOP}/{B}", 5)))
VENV = Directory("0.32.0-cpu-0123456789ab", "/opt/vllm/0.32.0-cpu-0123456789ab", 9)
IMAGE = StoredImage("docker", "sha256:11aa", ("vllm/vllm-openai:v0.33.0",), 3)


def ask(kind, *names, **options):
    return Request(kind, names, **options)


def gone(plan):
    return [(item.kind, item.target) for item in plan.items]


def test_an_instance_that_is_named_goes_though_it_is_declared():
    plan = decide(ask("instance", "chat", declared=("chat",)), Contents({"chat": 4, "code": 1}))
    assert gone(plan) == [("instance", "vllm@chat.service")]
    assert plan.items[0].size == 4
    assert plan.kept == ("vllm_instances still declares chat: the next run of site.yml installs it again",)


def test_the_copies_of_a_declared_instance_go_with_it_unless_declared_themselves():
    found = Contents({"chat": 0, "chat-2": 0, "chat-3": 0})
    assert len(decide(ask("instance", "chat", declared=("chat",)), found).items) == 3
    two = decide(ask("instance", "chat", declared=("chat", "chat-2")), found)
    assert len(two.items) == 2 and "if they are copies" not in "".join(two.kept)
    alone = decide(ask("instance", "chat"), found)
    assert gone(alone) == [("instance", "vllm@chat.service")]
    assert alone.kept == ("chat-2, chat-3 stay; if they are copies of chat, name them too",)


@pytest.mark.parametrize(
    ("kind", "name", "contents"),
    [
        ("model", "openai/gtp-oss-20b", Contents(models=(MODEL,))),
        ("model", "openai/gpt-oss-20", Contents(models=(MODEL,))),
        ("image", "vllm/vlm-openai:v0.33.0", Contents(images=(IMAGE,))),
    ],
)
def test_a_misspelt_name_is_an_error_with_the_nearest_one(kind, name, contents):
    with pytest.raises(RemovalError, match=f"{kind} '{name}' is not on this host; nearest: .*Nothing was removed"):
        decide(ask(kind, name), contents)


@pytest.mark.parametrize("revision", [A[:-1], f"1{A[1:]}"])
def test_a_misspelt_revision_is_an_error(revision):
    with pytest.raises(
        RemovalError, match=rf"revision of openai/gpt-oss-20b '{revision}' is not on this host; nearest"
    ):
        decide(ask("model", f"openai/gpt-oss-20b@{revision}"), Contents(models=(MODEL,)))


@pytest.mark.parametrize("name", ["chta", "cod", "codes"])
def test_an_instance_that_looks_misspelt_is_not_refused_because_another_host_may_have_it(name):
    plan = decide(ask("instance", name), Contents({"chat": 0, "code": 0}))
    assert (plan.items, plan.mistaken) == ((), (name,))
    assert plan.absent[name].startswith(f"instance '{name}' is not on this host; nearest: ")
    assert decide(ask("instance", name, declared=(name,)), Contents({"chat": 0, "code": 0})).mistaken == ()


@pytest.mark.parametrize("name", ["chat-2", "chat", "chat-33", "code2", "embed"])
def test_a_second_run_names_what_has_gone_and_removes_nothing(name):
    plan = decide(ask("instance", name), Contents({"chat-3": 0, "code": 0}))
    assert plan.items == ()
    assert plan.absent[name].startswith(f"instance '{name}' is not on this host; ")


@pytest.mark.parametrize(
    "use",
    [
        Use("instance chat", "chat", model=f"{TOP}/{A}"),
        Use("the kept state 0123 of chat", "chat", model=f"{TOP}/{B}"),
        Use("process 71 (python3)", model=f"{TOP}/{A}"),
        Use("an instance by another path", model=f"/data/models/openai/gpt-oss-20b/{A}"),
    ],
)
def test_a_model_that_somebody_uses_stays(use):
    with pytest.raises(
        RemovalError, match=f"model openai/gpt-oss-20b: {use.by.replace('(', '.').replace(')', '.')} uses"
    ):
        decide(ask("model", "openai/gpt-oss-20b"), Contents(models=(MODEL,), uses=(use,)))


def test_a_copy_of_a_model_with_the_same_revision_is_another_model():
    copy = Use("instance code", "code", model=f"/srv/models/site/gpt-oss-20b/{A}")
    assert len(decide(ask("model", "openai/gpt-oss-20b"), Contents(models=(MODEL,), uses=(copy,))).items) == 2


def test_one_revision_can_go_while_another_is_used():
    contents = Contents(models=(MODEL,), uses=(Use("instance chat", "chat", model=f"{TOP}/{A}"),))
    assert gone(decide(ask("model", f"openai/gpt-oss-20b@{B}"), contents)) == [("model", f"{TOP}/{B}")]


def test_a_model_that_the_inventory_needs_or_that_other_hosts_may_use_stays():
    planned = (Use("the inventory", model="openai/gpt-oss-20b"),)
    with pytest.raises(RemovalError, match="the inventory uses it"):
        decide(ask("model", "openai/gpt-oss-20b", planned=planned), Contents(models=(MODEL,)))
    shared = Contents(models=(Model(MODEL.name, MODEL.path, MODEL.revisions, shared=True),))
    with pytest.raises(RemovalError, match="other hosts may use"):
        decide(ask("model", "openai/gpt-oss-20b"), shared)
    assert len(decide(ask("model", "openai/gpt-oss-20b", shared=False), shared).items) == 2


def test_the_revision_that_the_inventory_needs_stays_and_an_older_one_goes():
    planned = (Use("the inventory", model="openai/gpt-oss-20b"), Use("the inventory", model=A))
    contents = Contents(models=(MODEL,))
    with pytest.raises(RemovalError, match="the inventory uses it"):
        decide(ask("model", f"openai/gpt-oss-20b@{A}", planned=planned), contents)
    assert gone(decide(ask("model", f"openai/gpt-oss-20b@{B}", planned=planned), contents)) == [("model", f"{TOP}/{B}")]


def test_weights_that_the_role_did_not_publish_stay():
    why = "the role weights did not publish it"
    own = Model("me/mine", "/srv/models/me/mine", (Directory(A, f"/srv/models/me/mine/{A}", 1, "foreign", why),))
    used = Use("process 71 (python3)", model=own.revisions[0].path)
    plan = decide(ask("model", "me/mine"), Contents(models=(own,)))
    assert plan == decide(ask("model", "me/mine"), Contents(models=(own,), uses=(used,)))
    assert plan.items == ()
    assert plan.kept == (f"/srv/models/me/mine/{A} stays: the role weights did not publish it",)


def test_a_release_names_its_environments():
    left = Directory(VENV.name, "/opt/vllm/.0.32.0-cpu-0123456789ab.removed", 1, "abandoned")
    other = Directory("0.33.0-cpu-0123456789ab", "/opt/vllm/0.33.0-cpu-0123456789ab")
    plan = decide(ask("environment", "0.32.0"), Contents(environments=(left, VENV, other)))
    assert [target for _kind, target in gone(plan)] == [left.path, VENV.path]


@pytest.mark.parametrize("planned", [True, False])
def test_an_environment_that_somebody_uses_stays(planned):
    use = Use("somebody", venv=VENV.path)
    contents = Contents(environments=(VENV,), uses=() if planned else (use,))
    with pytest.raises(RemovalError, match=r"environment 0\.32\.0: somebody uses it"):
        decide(ask("environment", "0.32.0", planned=(use,) if planned else ()), contents)


def test_docker_leaves_out_its_own_registry():
    plan = decide(ask("image", "docker.io/vllm/vllm-openai:v0.33.0"), Contents(images=(IMAGE,)))
    assert [(item.target, item.detail) for item in plan.items] == [("docker.io/vllm/vllm-openai:v0.33.0", "docker")]


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.33.0", "docker.io/vllm/vllm-openai:v0.33.0", "sha256:11aa"])
def test_an_image_that_an_instance_or_a_kept_state_names_stays(image):
    with pytest.raises(RemovalError, match="the kept state 0123 of chat uses it"):
        decide(
            ask("image", "vllm/vllm-openai:v0.33.0"),
            Contents(images=(IMAGE,), uses=(Use("the kept state 0123 of chat", "chat", image=image),)),
        )


def test_an_image_of_a_container_stays():
    image = StoredImage("docker", "sha256:11aa", ("a:1",), 3, ("mine",))
    with pytest.raises(RemovalError, match="image a:1: mine of docker uses it"):
        decide(ask("image", "a:1"), Contents(images=(image,)))


FULL = Contents(
    {"chat": 4},
    (
        Use("instance chat", "chat", f"{TOP}/{A}", VENV.path, IMAGE.names[0]),
        Use("process 7 (backup)", model=f"{TOP}/{B}"),
    ),
    (MODEL,),
    (VENV,),
    (IMAGE, StoredImage("docker", "sha256:22", ("postgres:16",), 9)),
    {"weights": 3},
    {"/srv/encodings/o200k_base.tiktoken": 2},
    {"/etc/vllm": 1},
    ("vllm",),
)


def test_everything_takes_all_but_what_others_use():
    plan = decide(ask("everything"), FULL)
    assert gone(plan) == [
        ("instance", "vllm@chat.service"),
        ("service", "weights"),
        ("model", f"{TOP}/{A}"),
        ("environment", VENV.path),
        ("image", "vllm/vllm-openai:v0.33.0"),
        ("encodings", "/srv/encodings/o200k_base.tiktoken"),
        ("shared files", "/etc/vllm"),
        ("user", "vllm"),
    ]
    assert plan.kept == (f"{TOP}/{B} stays: process 7 (backup) uses it",)


@pytest.mark.parametrize(("container", "stays"), [("vllm-chat", False), ("db", True)])
def test_an_image_goes_with_its_own_container_and_stays_with_that_of_somebody_else(container, stays):
    image = StoredImage("docker", "sha256:11aa", IMAGE.names, 3, (container,))
    plan = decide(ask("everything"), Contents({"chat": 0}, images=(image,)))
    assert bool(plan.kept) is stays and (("image", IMAGE.names[0]) in gone(plan)) is not stays


def test_everything_is_refused_while_the_inventory_declares_something():
    with pytest.raises(
        RemovalError, match=r"chat: vllm_instances still declares it for this host.*remove_instance=chat"
    ):
        decide(ask("everything", declared=("chat",)), FULL)
    with pytest.raises(RemovalError, match="chat-2: vllm_instances still declares it"):
        decide(ask("everything", declared=("chat",)), Contents({"chat-2": 0}))
    with pytest.raises(RemovalError, match="still in the group gateways"):
        decide(ask("everything", groups=("gateways",)), Contents(services={"gateway": 0}))


def test_a_store_that_cannot_be_asked_ends_the_removal_of_an_image_and_no_other():
    contents = Contents(trouble=("docker image ls: Cannot connect",))
    with pytest.raises(RemovalError, match="Cannot connect; start the engine first"):
        decide(ask("image", "a:1"), contents)
    kept = decide(ask("everything"), contents).kept
    assert kept == ("images stay where an engine does not answer: docker image ls: Cannot connect",)


def test_nothing_goes_while_a_rollout_is_at_work():
    with pytest.raises(RemovalError, match="a rollout is updating this host; wait"):
        decide(ask("instance", "chat"), Contents({"chat": 0}, rollout="a rollout is updating this host"))


def test_the_images_of_every_release_count_as_serving(pytestconfig):
    import re

    texts = [path.read_text() for path in (pytestconfig.rootpath / "catalog/releases").glob("*.yml")]
    images = {
        found for text in texts for found in re.findall(r"^[^#\n]*?([\w./-]+/[\w.-]+:[\w.-]*v?\d[\w.-]*)$", text, re.M)
    }
    assert len(images) > 10
    assert [image for image in images if not SERVING.search(image)] == []


def test_driver_and_engine_go_when_they_are_asked_for_and_nobody_uses_them():
    contents = Contents(
        packages={"driver": ("nvidia-kernel-dkms",), "container_engine": ("docker.io",)},
        settings={"driver": ("/etc/modprobe.d/baremetal-nouveau.conf",)},
        busy={"container_engine": ("the container db of docker",)},
    )
    plan = decide(ask("everything", also=("driver", "container_engine")), contents)
    assert gone(plan) == [("packages", "nvidia-kernel-dkms")]
    assert plan.items[0].detail == "/etc/modprobe.d/baremetal-nouveau.conf"
    assert plan.kept == (
        "the driver's loaded modules stay until the next boot",
        "the container engine stays: the container db of docker",
    )
    assert decide(ask("everything"), contents).items == ()
