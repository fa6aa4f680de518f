# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance runs vLLM: in a virtual environment on the host, or in a container of the vendor's image."""

from typing import Any, Mapping, Sequence

from ...module_utils.accelerator.partitions import mig_instances
from .hardware import Accelerator
from .inputs import PlanError

GIB = 1024**3

# The release of each stack where the site names none. The roles cuda, rocm and cann install the driver of the same one.
DEFAULT_RELEASES = {"cann": "0.30.0", "cpu": "0.32.0", "cuda": "0.33.0", "rocm": "0.33.0", "xpu": "0.33.0"}
# Stacks whose images keep vLLM below /root, so that only root can start it.
ROOT_STACKS = ("cann",)


def choose_release(requested: str, accelerator: Accelerator) -> str:
    """Return the requested release, else the collection's for this stack. Raises PlanError where it has none."""
    name = requested or DEFAULT_RELEASES.get(accelerator.stack)
    if not name:
        raise PlanError(
            f"vllm_release is empty, and the collection has no release for stack {accelerator.stack!r} (accelerator "
            f"{accelerator.model!r}); name one in vllm_release, and put its file into vllm_release_path"
        )
    return name


def choose_stack(release: Mapping[str, Any], name: str, accelerator: Accelerator) -> Mapping[str, Any]:
    """Return the release's entry for this hardware. Raises PlanError where it has none."""
    stacks = release["stacks"]
    if accelerator.stack not in stacks:
        other = DEFAULT_RELEASES.get(accelerator.stack)
        way_out = f"; set vllm_release: {other!r} for these hosts, or leave it out" if other else ""
        raise PlanError(
            f"vllm_release {name!r} does not support stack {accelerator.stack!r} (accelerator {accelerator.model!r}); "
            f"it supports: {', '.join(sorted(stacks))}{way_out}"
        )
    found: Mapping[str, Any] = stacks[accelerator.stack]
    return found


def choose_runtime(stack: Mapping[str, Any], requested: str, image: str, release: str, where: str) -> str:
    """Return the requested runtime, else the stack's own. Raises PlanError where the release lacks it."""
    runtime = requested or str(stack["runtime"])
    if runtime == "venv" and not stack.get("requirements"):
        raise PlanError(
            f"{where}.runtime: release {release!r} has no lock of wheels for this stack, so the host cannot have a "
            "virtual environment; use the runtime 'container', or name a lock (requirements) in a release of your own"
        )
    if runtime == "container" and not (image or stack.get("image") or stack.get("images")):
        raise PlanError(
            f"{where}.runtime: release {release!r} names no image for this stack; use the runtime 'venv', or set "
            "vllm_image"
        )
    return runtime


def image_of(
    stack: Mapping[str, Any], accelerator: Accelerator, override: str, registry: str, own: str | None = None
) -> str:
    """Return the reference of the image: the site's own, else the recipe's ``own`` or the release's.

    The latter two come from the site's registry where it has one.
    """
    if override:
        return override
    exact = own or accelerator.pick(stack.get("images") or {})
    image = exact or accelerator.pick(stack.get("image"))
    if not image:
        raise PlanError(
            f"vllm_release: the release names no image for {accelerator.model}; it has "
            f"{', '.join(sorted(stack['images']))}; set vllm_image"
        )
    if registry:
        first, slash, rest = image.partition("/")
        # The first part is a registry if it cannot be the name of a repository.
        bare = rest if slash and ("." in first or ":" in first or first == "localhost") else image
        image = f"{registry.rstrip('/')}/{bare}"
    # The digest belongs to `image`; an entry of `images`, or a recipe's image, carries its own.
    digest = None if exact else stack.get("digest")
    return f"{image}@{digest}" if digest and "@" not in image else str(image)


def visible_env(accelerator: Accelerator, chips: Sequence[int], runtime: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that restricts an instance to its chips; empty where it can see no others.

    CUDA numbers by speed unless told otherwise, and the plan by PCI addresses. Chips of one model have the same order.
    """
    name = accelerator.visible_env
    if name is None or not chips or not _restricted(accelerator, chips) or name in env:
        return {}
    if runtime == "container" and accelerator.stack == "cuda":
        # The container gets only its own chips, numbered from 0.
        return {}
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if accelerator.numbers and accelerator.stack == "cuda" else {}
    return {**order, name: ",".join(str(accelerator.number_of(chip)) for chip in chips)}


def _restricted(accelerator: Accelerator, chips: Sequence[int]) -> bool:
    """Return whether the host has chips besides those of an instance, of its model or another."""
    return len(chips) < accelerator.count or accelerator.numbers is not None


def devices_of(accelerator: Accelerator, chips: Sequence[int]) -> list[str]:
    """Return the device nodes or CDI names that an instance needs.

    Only NVIDIA's are restricted to the instance's chips; a MIG instance is named by its chip and its number there. The
    tools of other vendors select chips by a variable, as their own instructions do, and number them as on the host.
    CDI has the numbers of NVML, which are in the order of PCI addresses: nvidia-ctk passes them on (VisitDevices of
    go-nvlib), and leaves a number out where it leaves a GPU out, such as the display of a DGX Station A100.
    """
    devices: list[str] = []
    parts = mig_instances(accelerator.partition)
    for device in accelerator.devices:
        if parts and device.endswith("=all"):
            devices += [device.replace("=all", f"={accelerator.number_of(chip)}:{chip % parts}") for chip in chips]
        elif device.endswith("=all") and chips and _restricted(accelerator, chips):
            devices += [device.replace("=all", f"={accelerator.number_of(chip)}") for chip in chips]
        elif "{index}" in device:
            devices += [device.format(index=index) for index in range(accelerator.count)]
        else:
            devices.append(device)
    return devices


def container_of(
    stack: Mapping[str, Any],
    accelerator: Accelerator,
    image: str,
    devices: Sequence[str],
    mounts: Sequence[str],
    shm_size: str,
) -> dict[str, Any]:
    """Return what the container engine needs besides arguments and environment."""
    entrypoint = stack.get("entrypoint", "image")
    command = [] if entrypoint in ("image", "module") else [str(word) for word in entrypoint]
    return {
        "image": image,
        "command": command,
        "user": "root" if accelerator.stack in ROOT_STACKS else "vllm",
        "shm_size": shm_size,
        "devices": list(devices),
        "groups": list(accelerator.groups),
        "mounts": list(mounts),
        "memlock": True,
    }


def venv_of(
    release: Mapping[str, Any], stack: Mapping[str, Any], accelerator: Accelerator, root: str
) -> dict[str, Any]:
    """Return the path of the virtual environment, whose name contains the lock's hash, and what it is made from.

    ``python`` is the interpreter on the host, ``locks`` are all that the host may need where its Python is unknown.
    """
    name = f"{release['vllm']}-{accelerator.stack}"
    return {
        "name": name,
        "path": f"{root}/{name}-{stack['requirements_sha256'][:12]}",
        "requirements": stack["requirements"],
        "locks": list(stack.get("locks") or [stack["requirements"]]),
        "python": stack["interpreter"],
        "size_bytes": int(stack.get("venv_size_gib", 0) * GIB),
    }


def launch_of(venv: Mapping[str, Any] | None, container: Mapping[str, Any] | None) -> list[str]:
    """Return the words before vLLM's own arguments in this runtime."""
    return [f"{venv['path']}/bin/vllm", "serve"] if venv else list((container or {"command": ()})["command"])
