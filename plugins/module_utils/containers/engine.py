# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which container engine runs an instance, and with which words; for docker, podman and podman's quadlet. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

ENGINES = ("docker", "podman")
PACKAGES = {"docker": "docker.io (Debian) or docker-ce", "podman": "podman"}

# The first releases that can do it.
QUADLET = (4, 4)
CDI = {"docker": (25,), "podman": (4, 1)}
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
NVIDIA = "nvidia.com/gpu"

# Who brings a device node or a file of a driver, by how its path begins.
ORIGINS = (
    ("/dev/kfd", "AMD's driver (package amdgpu-dkms, module amdgpu)"),
    ("/dev/dri", "AMD's or Intel's driver (package amdgpu-dkms, module amdgpu; module xe)"),
    ("/dev/davinci", "Huawei's driver (Ascend HDK)"),
    ("/dev/devmm_svm", "Huawei's driver (Ascend HDK)"),
    ("/dev/hisi_hdc", "Huawei's driver (Ascend HDK)"),
    ("/usr/local/Ascend", "Huawei's driver (Ascend HDK)"),
    ("/usr/local/dcmi", "Huawei's driver (Ascend HDK)"),
    ("/usr/local/bin/npu-smi", "Huawei's driver (Ascend HDK)"),
    ("/etc/ascend_install.info", "Huawei's driver (Ascend HDK)"),
)

# Variables that the engine's own command would obey. It runs as root, and HOME is a directory that vLLM's user owns:
# from its .docker or .config root would take orders. These reach the container by value, the command never sees them.
_STEERING = re.compile(
    r"(HOME|PATH|TMPDIR|REGISTRY_AUTH_FILE|NOTIFY_SOCKET|GODEBUG|(XDG|LD|DOCKER|CONTAINERS?|PODMAN|STORAGE|LISTEN)_\w+)\Z"
)


class ContainerError(ValueError):
    """This host cannot run the containers that were asked for; the message is the whole sentence."""


@dataclass(frozen=True)
class Found:
    """An engine's command on a host. ``version`` is the engine's own, empty where it does not answer (``why``)."""

    name: str
    command: str
    version: str = ""
    why: str = ""
    cgroup_v2: bool = True
    generator: bool = True
    cdi_dirs: Sequence[str] = ()


def version_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``20.10.24+dfsg1`` is (20, 10, 24). Empty where there is none."""
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def has_quadlet(found: Found) -> bool:
    """Return whether this podman makes units from quadlets: its release, its generator, and cgroups of version 2."""
    return found.name == "podman" and version_of(found.version) >= QUADLET and found.generator and found.cgroup_v2


def has_cdi(found: Found) -> bool:
    """Return whether ``--device nvidia.com/gpu=0`` means something to this engine.

    docker names its directories of specifications only where the feature is on, which it is by default from 28.2.
    """
    return version_of(found.version) >= CDI[found.name] and bool(found.cdi_dirs)


def choose_engine(wanted: str, there: Sequence[Found]) -> Found:
    """Return the engine that runs this host's instances: the wanted one, else docker, else podman.

    What is installed decides, not what runs: an engine that is down for a while must not hand its instances to the
    other. Raises ContainerError where there is none, or where it does not answer.
    """
    by_name = {found.name: found for found in there}
    names = [wanted] if wanted else [name for name in ENGINES if name in by_name]
    if not names or names[0] not in by_name:
        what = (
            f"vllm_engine is {wanted}, which is not"
            if wanted
            else "the runtime 'container' needs docker or podman: neither is"
        )
        packages = PACKAGES[wanted] if wanted else " or ".join(PACKAGES[name] for name in ENGINES)
        raise ContainerError(
            f"{what} on this host; install the package {packages} first, or let the role container_runtime do it"
        )
    found = by_name[names[0]]
    if not found.version:
        look = "start it (systemctl start docker)" if found.name == "docker" else "see what 'podman info' says there"
        raise ContainerError(
            f"{found.name} is installed but does not answer ({found.why or 'it says nothing'}); {look}"
        )
    return found


def gpus_by(found: Found, devices: Iterable[str], kinds: Iterable[str], hook: bool) -> str:
    """Return how the host's CDI devices are asked for: ``cdi``, or docker's older ``flag`` (--gpus).

    ``kinds`` are those with a CDI specification on the host, ``hook`` says whether NVIDIA's hook for docker is there.
    Raises ContainerError where neither way is open.
    """
    needed = sorted({device.partition("=")[0] for device in devices if not device.startswith("/")})
    missing = [kind for kind in needed if kind not in set(kinds)]
    if not needed or (has_cdi(found) and not missing):
        return "cdi"
    if found.name == "docker" and hook and needed == [NVIDIA]:
        return "flag"
    raise ContainerError(f"{found.name} cannot give {', '.join(needed)} to a container: {_why_not(found, missing)}")


def _why_not(found: Found, missing: Sequence[str]) -> str:
    if has_cdi(found):
        return (
            f"no CDI specification of {', '.join(missing)} is in {' or '.join(found.cdi_dirs)}; install the package "
            "nvidia-container-toolkit and run nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"
        )
    since = ".".join(str(number) for number in CDI[found.name])
    if found.name == "podman":
        return f"podman {found.version} knows no CDI devices; {since} and later do"
    return (
        f"docker {found.version} knows no CDI devices ({since} and later do, with the feature cdi in daemon.json), and "
        "its older way, NVIDIA's hook, is not there; install the package nvidia-container-toolkit"
    )


def cdi_kind(text: str) -> str:
    """Return the kind of a CDI specification, YAML or JSON; empty where it names none."""
    found = re.search(r"""^\s*\{?\s*["']?kind["']?\s*:\s*["']?([\w.-]+/[\w.-]+)""", text, re.MULTILINE)
    if found is None:
        # A JSON document may stand on one line.
        found = re.search(r'"kind"\s*:\s*"([\w.-]+/[\w.-]+)"', text)
    return found.group(1) if found else ""


def needed_paths(containers: Iterable[Mapping[str, Any]], own: Sequence[str]) -> list[str]:
    """Return device nodes and sources of mounts that must be on the host before a start; ``own`` are the role's places.

    What lies below the role's own places comes with the run itself: weights, encodings, caches and configuration.
    """
    paths: dict[str, None] = {}
    for container in containers:
        paths.update((device, None) for device in container["devices"] if device.startswith("/"))
        sources = [mount.split(":")[0] for mount in container["mounts"]]
        paths.update((path, None) for path in sources if not _below(path, own))
    return list(paths)


def origin(path: str) -> str:
    """Return who brings a device node or a driver's file."""
    return next((who for begin, who in ORIGINS if path.startswith(begin)), "the accelerator's driver")


def _below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)


def run_words(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> list[list[str]]:
    """Return the words of the engine's ``run``, in groups that belong together, up to and with the image.

    ``settings`` is the role's ``__vllm_container``. vLLM's own arguments follow the last word.
    """
    container, docker = plan["container"], settings.get("engine") != "podman"
    # podman 4.4 and later run instances through quadlet; what is left here is older.
    engine = ["--log-driver", "none"] if docker else ["--replace", "--cgroups", "split", "--log-driver", "passthrough"]
    return [
        [command_of(settings), "run", "--rm", "--name", container_name(plan["instance"])],
        engine,
        # As process 1 vLLM would be deaf to signals until it has set up its own handlers, and would reap no orphans.
        *([["--init"]] if settings.get("init", True) else []),
        ["--pull", "never", "--network", "host", "--ipc", "private", "--shm-size", container["shm_size"]],
        ["--user", user_of(container, settings)],
        *(["--group-add", group] for group in groups_of(container, settings)),
        *([word] if isinstance(word, str) else list(word) for word in _confinement(container)),
        *_limits(container, settings),
        ["--stop-timeout", str(settings["stop_timeout"])],
        *_device_words(container["devices"], settings),
        *(["--mount", _mount(mount)] for mount in container["mounts"]),
        *(["--env", word] for word in env_words(plan)),
        *(["--entrypoint", word] for word in container["command"][:1]),
        [reference(container["image"]), *container["command"][1:]],
    ]


def quadlet_lines(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section [Container] of the instance's quadlet.

    Only keys of podman 4.4, the first with quadlets: an unknown key would cost the whole unit. The rest are PodmanArgs.
    """
    container = plan["container"]
    user, _colon, group = user_of(container, settings).partition(":")
    pairs: list[tuple[str, str]] = [
        ("ContainerName", container_name(plan["instance"])),
        ("Image", reference(container["image"])),
        ("Exec", _quoted([*container["command"][1:], "--config", f"/etc/vllm/{plan['instance']}.yaml"])),
        ("Network", "host"),
        ("User", user),
        *([("Group", group)] if group else []),
        *([("RunInit", "true")] if settings.get("init", True) else []),
        ("NoNewPrivileges", "true"),
        ("SecurityLabelDisable", "true"),
    ]
    arguments = [["--pull=never"], ["--log-driver=passthrough"], ["--ipc=private"]]
    arguments += [[f"--shm-size={container['shm_size']}"], [f"--stop-timeout={settings['stop_timeout']}"]]
    if _confined(container):
        pairs += [("ReadOnly", "true"), ("DropCapability", "all"), ("AddCapability", "SYS_NICE")]
        # /dev/shm can be written to only with it; podman 4.4 would leave it out.
        arguments += [["--read-only-tmpfs=true"], *([f"--tmpfs={place}"] for place in _TEMPORARY)]
    pairs += [("AddDevice", device) for device in container["devices"]]
    pairs += [("Volume", mount) for mount in container["mounts"]]
    arguments += [[f"--group-add={number}"] for number in groups_of(container, settings)]
    arguments += [["=".join(words)] for words in _limits(container, settings)]
    arguments += [[f"--entrypoint={word}"] for word in container["command"][:1]]
    arguments += [[f"--env={word}"] for word in env_words(plan)]
    pairs += [("PodmanArgs", _quoted(words)) for words in arguments]
    return [f"{key}={value}" for key, value in pairs]


def reference(image: str) -> str:
    """Return an image's name in full, as podman wants it: with its registry, without a tag beside a digest."""
    name, at, digest = image.partition("@")
    first, slash, _rest = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}"
    if not at:
        return name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    top, slash, last = name.rpartition("/")
    return f"{top}{slash}{last.partition(':')[0]}@{digest}"


def registry_of(image: str) -> str:
    """Return the registry of an image."""
    return reference(image).partition("/")[0]


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
    """Return the groups that open the device nodes, by their numbers here: an image may number them otherwise."""
    numbers = settings.get("gids") or {}
    return [str(numbers.get(name, name)) for name in container["groups"]]


def env_words(plan: Mapping[str, Any]) -> list[str]:
    """Return what follows ``--env`` for each variable: its name, and a value only where the engine would obey it.

    systemd reads the files of environment and secrets for both runtimes, so that a value means the same in both, and
    the engine takes the values of the names from its own environment. No secret is in an argument.
    """
    env, secret = plan["env"], [name for name in plan["secrets"] if name not in plan["env"]]
    plain = [f"{name}={value}" if _STEERING.match(name) else name for name, value in sorted(env.items())]
    return [*plain, *sorted(secret)]


def unset_names(plan: Mapping[str, Any]) -> list[str]:
    """Return the variables that the unit keeps from the engine's command."""
    return sorted(name for name in plan["env"] if _STEERING.match(name))


def command_of(settings: Mapping[str, Any]) -> str:
    """Return the path of the engine's command."""
    return str(settings.get("command") or f"/usr/bin/{settings.get('engine') or 'docker'}")


# What an engine says when it cannot have an image -> what that means, and what to do about it.
_TROUBLE = (
    (r"HTTP response to HTTPS client", "the registry speaks plain HTTP; tell the engine so ({insecure})"),
    (r"x509|certificate", "the registry's certificate is not trusted; put the site's CA bundle at {ca}"),
    (
        r"unauthorized|denied|no basic auth|authentication required|\b401\b|\b403\b",
        "the registry wants a login; name a file with it in vllm_registry_auth_file",
    ),
    (
        r"manifest unknown|not found|name unknown|does not exist|no such manifest|\b404\b",
        "the registry has no such image; check vllm_registry, vllm_image and the release, or push the image there",
    ),
    (
        r"connection refused|no such host|timeout|unreachable|deadline exceeded|server misbehaving|no route|lookup ",
        "the registry cannot be reached from this host; see that it is up and that vllm_registry is right",
    ),
    (r"no space left", "the disk of the engine's images is full"),
    (
        r"toomanyrequests|rate limit",
        "the registry refuses more downloads; use one of the site's own (vllm_registry)",
    ),
)
_INSECURE = {
    "docker": "insecure-registries in /etc/docker/daemon.json",
    "podman": "insecure = true for it in a file of /etc/containers/registries.conf.d",
}
_CERTIFICATES = {"docker": "/etc/docker/certs.d", "podman": "/etc/containers/certs.d"}


def trouble_with(engine: str, image: str, said: str) -> str:
    """Return the sentence about an image that the engine could not have, from what the engine said."""
    registry = registry_of(image)
    advice = next((text for pattern, text in _TROUBLE if re.search(pattern, said, re.IGNORECASE)), "")
    advice = advice.format(insecure=_INSECURE[engine], ca=f"{_CERTIFICATES[engine]}/{registry}/ca.crt")
    words = " ".join(said.split())[-400:]
    return (
        f"image {image} cannot be had from registry {registry}: {advice + '. ' if advice else ''}{engine} said: {words}"
    )


def unanswered(said: str) -> bool:
    """Return whether these are the words of a client that does not reach its engine."""
    return bool(re.search(r"cannot connect to the docker daemon|is the docker daemon running", said, re.IGNORECASE))


# Where processes may write in an image that is read-only otherwise. What is compiled at run time is loaded from there.
_TEMPORARY = ("/tmp:exec,mode=1777", "/var/tmp:exec,mode=1777", "/run:mode=755")  # noqa: S108


def _confined(container: Mapping[str, Any]) -> bool:
    """Return whether the container gets no privilege at all.

    Images that serve as root only (Ascend's) open device nodes of other users and write to their own tree, as their
    makers run them: they keep the engine's own, small set of capabilities and a writable tree.
    """
    return bool(container["user"] != "root")


def _confinement(container: Mapping[str, Any]) -> list[Any]:
    words: list[Any] = [("--security-opt", "no-new-privileges"), ("--security-opt", "label=disable")]
    if _confined(container):
        # With SYS_NICE the engine's filter of system calls lets mbind and set_mempolicy through: NUMA.
        words += ["--read-only", *(("--tmpfs", place) for place in _TEMPORARY)]
        words += [("--cap-drop", "ALL"), ("--cap-add", "SYS_NICE")]
    return words


def _limits(container: Mapping[str, Any], settings: Mapping[str, Any]) -> list[list[str]]:
    """Return the limits of the container; none on a host that is itself confined and may not raise them."""
    if not settings.get("limits", True):
        return []
    memlock = [["--ulimit", "memlock=-1:-1"]] if container["memlock"] else []
    return [*memlock, ["--ulimit", "nofile=65536:65536"]]


def _device_words(devices: Sequence[str], settings: Mapping[str, Any]) -> list[list[str]]:
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
