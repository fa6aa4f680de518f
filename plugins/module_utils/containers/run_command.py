# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line that runs an instance's container, and the quadlet that does the same with podman."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, Sequence

from ..instance.marks import CONFIG_DIR, CONTAINER, RUN_DIR
from ..usage.record import PROOF_VARIABLE
from ..vllm.files import LIBRARY, env_path
from ..vllm.plan_document import PlanDocument
from .image_names import reference

# Where processes may write in an otherwise read-only image. Code compiled at run time is loaded from there.
_TEMPORARY = ("/tmp:exec,mode=1777", "/var/tmp:exec,mode=1777", "/run:mode=755")  # noqa: S108

# Of the engine's own set, what a container of root would turn against its host: device nodes, and files with
# capabilities, in its cache; packets of any kind in the host's network.
DROPPED = ("MKNOD", "NET_RAW", "SETFCAP")

# Seconds between the end of vLLM's own drain timeout and the moment at which the engine kills its container.
STOP_MARGIN = 20


def container_settings(
    state: Mapping[str, Any] | None,
    user: str,
    engine: str,
    drain_timeout: float,
    account: Mapping[str, Any] | None = None,
    rocm_guide_flags: bool = True,
) -> dict[str, Any]:
    """Return what the templates need to know of a host's engine and of the user that vLLM runs as.

    ``state`` is the result of vllm_preflight; without a host (playbooks/render.yml) a current engine is assumed.
    ``account`` is the result of the task that created the user, without ``uid`` in check mode.
    """
    settings = {"engine": engine, "user": user, "stop_timeout": int(drain_timeout) + STOP_MARGIN}
    settings["rocm_guide_flags"] = rocm_guide_flags
    known = account or {}
    ids = {"uid": known["uid"], "gid": known["group"]} if "uid" in known else {}
    return {**settings, **((state or {}).get("container") or {}), **ids}


def run_words(plan: PlanDocument, settings: Mapping[str, Any]) -> list[list[str]]:
    """Return the arguments of the engine's ``run``, in groups that belong together, up to and including the image.

    ``settings`` is the role's ``__vllm_container``. vLLM's own arguments follow the last one.
    """
    container, docker = plan["container"] or {}, settings.get("engine") != "podman"
    # podman 4.4 and later run instances through quadlet; this is for older releases.
    identity = f"{RUN_DIR}/{plan['instance']}/{CONTAINER}"
    engine = (
        ["--log-driver", "none", "--cidfile", identity]
        if docker
        else ["--replace", "--cgroups", "split", "--log-driver", "passthrough"]
    )
    return [
        [command_of(settings), "run", "--rm", "--name", container_name(plan["instance"])],
        engine,
        # As process 1, vLLM would ignore signals until it has set up its handlers, and would not reap orphans.
        *([["--init"]] if settings.get("init", True) else []),
        ["--pull", "never", "--network", "host", "--ipc", "private", "--shm-size", container["shm_size"]],
        ["--user", user_of(container, settings)],
        *(["--group-add", group] for group in groups_of(container, settings)),
        *([word] if isinstance(word, str) else list(word) for word in _confinement(container, settings)),
        *limits(container, settings),
        ["--stop-timeout", str(settings["stop_timeout"])],
        *device_words(container["devices"], settings),
        *(["--mount", _mount(mount)] for mount in mounts_of(plan)),
        ["--env-file", env_path(plan["instance"])],
        *(["--env", name] for name in secret_names(plan)),
        *(["--entrypoint", word] for word in container["command"][:1]),
        [reference(container["image"]), *container["command"][1:], *plan["middleware"]],
    ]


def quadlet_lines(plan: PlanDocument, settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section [Container] of the instance's quadlet.

    Only keys of podman 4.4, the first with quadlets: an unknown key would invalidate the whole unit. The rest are
    PodmanArgs.
    """
    container = plan["container"] or {}
    user, _colon, group = user_of(container, settings).partition(":")
    words = [*container["command"][1:], *plan["middleware"]]
    pairs: list[tuple[str, str]] = [
        ("ContainerName", container_name(plan["instance"])),
        ("Image", reference(container["image"])),
        ("Exec", _quoted([*words, "--config", f"{CONFIG_DIR}/{plan['instance']}.yaml"])),
        ("Network", "host"),
        ("User", user),
        *([("Group", group)] if group else []),
        *([("RunInit", "true")] if settings.get("init", True) else []),
        ("NoNewPrivileges", "true"),
        ("SecurityLabelDisable", "true"),
    ]
    arguments = [["--pull=never"], ["--log-driver=passthrough"], ["--ipc=private"]]
    arguments += [[f"--shm-size={container['shm_size']}"], [f"--stop-timeout={settings['stop_timeout']}"]]
    if not _confined(container):
        pairs += [("DropCapability", " ".join(DROPPED))]
    else:
        guided = _guided(container, settings)
        pairs += [("DropCapability", "all"), ("AddCapability", "SYS_NICE SYS_PTRACE" if guided else "SYS_NICE")]
        arguments += [["--security-opt=seccomp=unconfined"]] if guided else []
        arguments += [[f"--tmpfs={place}"] for place in _TEMPORARY]
        if not _has_hooks(container):
            pairs += [("ReadOnly", "true")]
            # /dev/shm can be written to only with it; podman 4.4 would leave it out.
            arguments += [["--read-only-tmpfs=true"]]
    pairs += [("AddDevice", device) for device in container["devices"]]
    pairs += [("Volume", mount) for mount in mounts_of(plan)]
    arguments += [[f"--group-add={number}"] for number in groups_of(container, settings)]
    arguments += [["=".join(words)] for words in limits(container, settings)]
    arguments += [[f"--entrypoint={word}"] for word in container["command"][:1]]
    arguments += [[f"--env-file={env_path(plan['instance'])}"]]
    arguments += [[f"--env={name}"] for name in secret_names(plan)]
    pairs += [("PodmanArgs", _quoted(words)) for words in arguments]
    return [f"{key}={value}" for key, value in pairs]


def container_name(instance: str) -> str:
    """Return the name of an instance's container, the same for every engine."""
    return f"vllm-{instance}"


def user_of(container: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the user of the container by number, since the image has no such name. Before it exists, its name."""
    if container["user"] == "root":
        return "0:0"
    uid, gid = settings.get("uid"), settings.get("gid")
    return f"{settings['user'] if uid is None else uid}:{settings['user'] if gid is None else gid}"


def owner_of(container: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the name of the user that owns the instance's cache on the host."""
    return "root" if container["user"] == "root" else str(settings["user"])


def groups_of(container: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the groups that may open the device nodes, by the host's numbers: an image may number them differently."""
    numbers = settings.get("gids") or {}
    return [str(numbers.get(name, name)) for name in container["groups"]]


def mounts_of(plan: PlanDocument) -> list[str]:
    """Return the mounts of the plan, and those of the middleware that answers gateways."""
    run = f"{RUN_DIR}/{plan['instance']}"
    return [*(plan["container"] or {})["mounts"], f"{LIBRARY}:{LIBRARY}:ro", f"{run}:{run}:ro"]


def secret_names(plan: PlanDocument) -> list[str]:
    """Return the names of the secrets, which the engine takes from its own environment: no argument has their values.

    It reads the other variables from their file. Its command runs as root, and would obey some of them. A name without
    a value there, such as that of the gateways at a site without one, is not set in the container either.
    """
    return sorted(name for name in {*plan["secrets"], PROOF_VARIABLE} if name not in plan["env"])


def command_of(settings: Mapping[str, Any]) -> str:
    """Return the path of the engine's command."""
    return str(settings.get("command") or f"/usr/bin/{settings.get('engine') or 'docker'}")


def _confined(container: Mapping[str, Any]) -> bool:
    """Return whether the container gets no privilege at all.

    Images that serve as root only (Ascend's) open device nodes of other users and write to their own tree, as their
    vendors run them: they keep most of the engine's own, small set of capabilities and a writable tree.
    """
    return bool(container["user"] != "root")


def _has_hooks(container: Mapping[str, Any]) -> bool:
    """Return whether CDI changes the container's tree when podman makes it, so that the tree cannot be read-only.

    crun, podman's runtime, makes the tree read-only before it runs NVIDIA's hooks, which then end with status 1 (seen
    with crun 1.21 and nvidia-cdi-hook 1.20.0 on an H100). runc, docker's, runs them first. vLLM's user owns nothing in
    the tree, and has no capability to change it.
    """
    return any("=" in device for device in container["devices"])


def _guided(container: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Return whether a container gets the flags of vLLM's guide for ROCm.

    Of these, --ipc=host stands for --shm-size, which every container here has.
    """
    return "/dev/kfd" in container["devices"] and bool(settings.get("rocm_guide_flags", True))


def _confinement(container: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Any]:
    docker = settings.get("engine") != "podman"
    words: list[Any] = [("--security-opt", "no-new-privileges"), ("--security-opt", "label=disable")]
    if not _confined(container):
        words += [("--cap-drop", name) for name in DROPPED]
    else:
        # With SYS_NICE the engine's system call filter allows mbind and set_mempolicy: NUMA.
        words += [("--tmpfs", place) for place in _TEMPORARY]
        words += ["--read-only"] if docker or not _has_hooks(container) else []
        words += [("--cap-drop", "ALL"), ("--cap-add", "SYS_NICE")]
    if _guided(container, settings):
        words += [("--cap-add", "SYS_PTRACE"), ("--security-opt", "seccomp=unconfined")]
    return words


def limits(container: Mapping[str, Any], settings: Mapping[str, Any]) -> list[list[str]]:
    """Return the limits of the container; none on a host that is itself confined and may not raise them."""
    if not settings.get("limits", True):
        return []
    memlock = [["--ulimit", "memlock=-1:-1"]] if container["memlock"] else []
    return [*memlock, ["--ulimit", "nofile=65536:65536"]]


def device_words(devices: Sequence[str], settings: Mapping[str, Any]) -> list[list[str]]:
    if settings.get("gpus") != "flag":
        return [["--device", device] for device in devices]
    chips = [device.partition("=")[2] for device in devices]
    # docker reads the value as CSV: a list needs quotes of its own.
    return [["--gpus", "all" if "all" in chips else f'"device={",".join(chips)}"']]


def _mount(mount: str) -> str:
    """Return SOURCE:DESTINATION[:ro] as a --mount, which refuses a source that is not there instead of making it."""
    source, destination, *options = mount.split(":")
    readonly = ",readonly" if "ro" in options else ""
    return f"type=bind,source={source},target={destination}{readonly}"


def _quoted(words: Iterable[str]) -> str:
    """Return words for a line of a unit: quoted where they need it, with nothing that systemd would expand."""
    return " ".join(_quote(word) for word in words)


def _quote(word: str) -> str:
    word = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
