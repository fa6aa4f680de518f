# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of a lab: their keys, their network, their containers, and their boot."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.lab.plan import (
    Host,
    Lab,
    LabError,
    archive,
    clashes,
    digest,
    known_hosts,
    labels,
    network_options,
    next_step,
    routed,
    ssh_command,
)
from tools.lab.podman import podman, run, say, write

# A boot ends once every instance of vLLM on the host serves, and several start on the same processors.
BOOT_SECONDS = 900
# Longer than any unit's TimeoutStopSec here, so that a host that is restarted stops its services properly.
STOP_SECONDS = 120


# Keys


def ensure_keys(lab: Lab, hosts: Iterable[Host]) -> dict[Host, str]:
    """Create missing keys and their known_hosts; return each host's public key."""
    lab.directory.mkdir(mode=0o700, exist_ok=True)
    lab.ssh.mkdir(mode=0o700, exist_ok=True)
    ensure_key(lab.ssh / "id_ed25519", f"lab-{lab.name}")
    for host in hosts:
        ensure_key(host_key(lab, host), host.name)
    public_keys = {host: host_key(lab, host).with_suffix(".pub").read_text() for host in hosts}
    write(lab.ssh / "known_hosts", known_hosts(lab, public_keys))
    return public_keys


def host_key(lab: Lab, host: Host) -> Path:
    return lab.ssh / f"host_{host.name}"


def ensure_key(path: Path, comment: str) -> None:
    """Create a key pair; the private half is written last, so a pair with one is complete."""
    if path.exists():
        return
    partial = path.with_name(f".{path.name}.partial")
    for leftover in (partial, partial.with_suffix(".partial.pub")):
        leftover.unlink(missing_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(partial)])
    partial.with_suffix(".partial.pub").replace(path.with_suffix(".pub"))
    partial.replace(path)


def credentials(lab: Lab, host: Host) -> dict[str, tuple[str, int]]:
    """Return the files that admit the lab's key to a host, and identify the host to its clients."""
    key = host_key(lab, host)
    return {
        "/root/.ssh/authorized_keys": ((lab.ssh / "id_ed25519.pub").read_text(), 0o600),
        "/etc/ssh/ssh_host_ed25519_key": (key.read_text(), 0o600),
        "/etc/ssh/ssh_host_ed25519_key.pub": (key.with_suffix(".pub").read_text(), 0o644),
    }


# Network


def find_network(lab: Lab) -> dict[str, Any] | None:
    return next((network for network in networks() if network["name"] == lab.network), None)


def networks() -> list[dict[str, Any]]:
    # A single command: another lab may remove its network before a second command runs.
    found: list[dict[str, Any]] = json.loads(podman("network", "ls", "--format", "json"))
    return found


def ensure_network(lab: Lab) -> None:
    """Create the lab's network, or fail where another network uses its name or its addresses."""
    network = find_network(lab)
    if network:
        check_network(lab, network)
        return
    used = routed(json.loads(run(["ip", "-json", "-4", "route", "show"]) or "[]"))
    for other in networks():
        subnets = [subnet["subnet"] for subnet in other.get("subnets") or []]
        used += [(subnet, f"podman network {other['name']}") for subnet in subnets if ":" not in subnet]
    found = clashes(lab.subnet, used)
    if found:
        raise LabError(
            f"The subnet {lab.subnet} is already used here ({', '.join(found)}). "
            "Set LAB_SUBNET_PREFIX to a free one, as in LAB_SUBNET_PREFIX=10.87.77"
        )
    say(f"network {lab.network}: {lab.subnet}")
    marks = [word for key, value in labels(lab).items() for word in ("--label", f"{key}={value}")]
    podman("network", "create", "--subnet", lab.subnet, *network_options(lab), *marks, lab.network)


def check_network(lab: Lab, network: Mapping[str, Any]) -> None:
    """Fail where a network with the lab's name belongs to another checkout or has other addresses."""
    check_owner(lab, network.get("labels") or {})
    subnet = network["subnets"][0]["subnet"]
    if subnet != lab.subnet:
        prefix = subnet.rsplit(".", 1)[0]
        raise LabError(
            f"Lab {lab.name} runs on {subnet}, not {lab.subnet}. Set LAB_SUBNET_PREFIX={prefix}, "
            f"or remove the lab first: LAB_NAME={lab.name} bin/lab down"
        )
    if bool(network.get("internal")) != lab.internal:
        raise LabError(
            f"Lab {lab.name} already runs {'with' if lab.internal else 'without'} access to other networks. "
            f"{'Unset LAB_INTERNAL' if lab.internal else 'Set LAB_INTERNAL=1'} to use it as it is, or delete it with "
            f"all its hosts: LAB_NAME={lab.name} bin/lab down"
        )


def ensure_address(lab: Lab) -> None:
    """Add an address of the controller to an internal network, because podman adds none there."""
    network = find_network(lab)
    if network and network.get("internal"):
        run(["ip", "address", "replace", f"{lab.gateway}/24", "dev", network["network_interface"]])


def check_owner(lab: Lab, found: Mapping[str, str]) -> None:
    home = found.get("bminf.home")
    if home != str(lab.home):
        raise LabError(
            f"Lab {lab.name} already exists and belongs to {home}, not to {lab.home}. Set LAB_NAME to another name."
        )


# Hosts


def find_containers(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return podman's data on the containers of a lab, by host name."""
    filters = [word for key, value in labels(lab).items() for word in ("--filter", f"label={key}={value}")]
    listed = json.loads(podman("ps", "--all", *filters, "--format", "json"))
    return {item["Labels"]["bminf.host"]: item for item in listed}


def ensure_container(lab: Lab, host: Host, command: list[str], public_key: str, found: Mapping[str, Any] | None) -> str:
    """Start a host's container, created by ``command`` if needed; return the step that this took."""
    wanted = digest(*command, public_key, (lab.ssh / "id_ed25519.pub").read_text())
    state, definition = (found["State"], found["Labels"].get("bminf.definition")) if found else (None, None)
    step = next_step(state, definition, wanted)
    name = lab.container(host)
    if step == "recreate":
        say(f"{host.name}: incomplete or outdated, creating it again")
        remove_containers([name])
    if step in ("create", "recreate"):
        for source, _target in host.mounts:
            (lab.home / source).mkdir(parents=True, exist_ok=True)
        podman("create", "--label", f"bminf.definition={wanted}", *command[1:])
        podman("cp", "-", f"{name}:/", data=archive(credentials(lab, host)))
    if step == "restart":
        podman("stop", "--time", str(STOP_SECONDS), name)
    if step != "keep":
        say(f"{host.name}: starting at {lab.address(host)}")
        start_container(name)
    return step


def start_container(name: str) -> None:
    """Start a container, which may have been stopped this moment."""
    # podman returns from a stop before it has freed the address, and then refuses it at the start.
    podman("container", "cleanup", name)
    podman("start", name)


def require_container(lab: Lab, host: Host) -> None:
    if host.name not in find_containers(lab):
        raise LabError(f"Lab {lab.name} has no host {host.name} yet. Run: bin/lab up {host.name}")


def remove_containers(names: Sequence[str]) -> None:
    if not names:
        return
    # On a busy machine processes can take longer to die than podman waits.
    for _attempt in range(2):
        with contextlib.suppress(LabError):
            podman("rm", "--force", "--ignore", "--time", "0", "--volumes", *names)
            return
    podman("rm", "--force", "--ignore", "--time", "0", "--volumes", *names)


def wait_until_up(lab: Lab, host: Host) -> str:
    """Return systemd's state of a host (running, degraded) over SSH, as soon as it has booted."""
    command = ssh_command(lab, host, "ControlPath=none", "ConnectTimeout=3", "BatchMode=yes")
    command += ["timeout", str(BOOT_SECONDS), "systemctl", "is-system-running", "--wait"]
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        result = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        state = result.stdout.strip()
        if state in ("running", "degraded"):
            return state
        if time.monotonic() > deadline:
            said = result.stderr.strip() or f"systemd says {state}"
            raise LabError(
                f"{host.name} at {lab.address(host)} is not up after {BOOT_SECONDS} s: {said}.\n"
                f"Read its journal with: podman exec -it {lab.container(host)} journalctl -b"
            )
        time.sleep(0.2)


def failed_units(lab: Lab, host: Host) -> str:
    listed = podman("exec", lab.container(host), "systemctl", "list-units", "--failed", "--plain", "--no-legend")
    return ", ".join(line.split()[0] for line in listed.splitlines())


def report_up(lab: Lab, host: Host, step: str) -> None:
    """Wait for a host and report its state: a new host must be healthy; an older one may have been changed by hand."""
    state = wait_until_up(lab, host)
    if state == "running":
        say(f"{host.name}: up at {lab.address(host)}")
        return
    units = failed_units(lab, host)
    if all(unit.startswith("user@") for unit in units.split(", ")):
        # On a busy machine the login that polled the host came too early for its own session.
        podman("exec", lab.container(host), "systemctl", "reset-failed", "user@*.service")
        say(f"{host.name}: up at {lab.address(host)}")
        return
    if step in ("create", "recreate"):
        raise LabError(f"{host.name}: booted with failed units: {units}. See: bin/lab ssh {host.name} systemctl status")
    say(f"{host.name}: up at {lab.address(host)}, with failed units: {units}")
